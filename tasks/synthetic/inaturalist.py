"""Federated iNaturalist's files, filled with synthetic photographs.

iNaturalist 2017 (Van Horn et al., 2018, "The iNaturalist Species Classification
and Detection Dataset", CVPR) was grouped by observer, and by place, by Hsu et
al., 2020, "Federated Visual Classification with Real-World Data Distribution",
ECCV. TensorFlow Federated 0.87 writes the grouping by observer to `user_120k/`
(and looks for it in `USER_120K/`, so that it does not find its own files on
most systems).
"""

from tasks.synthetic import species
from tasks.synthetic import tfrecord_twin

TWIN = tfrecord_twin.Twin(
  name="inaturalist",
  version=2,
  draw=species.draw_species,
  folders={"user_120k": 1.0},
)
