"""iNaturalist by observer or by place: photos of species (Hsu et al. 2020).

Van Horn et al., "The iNaturalist Species Classification and Detection Dataset",
CVPR 2018; split in Hsu, Qi and Brown, "Federated Visual Classification with
Real-World Data Distribution", ECCV 2020. Read from the files that
`tff.simulation.datasets.inaturalist` writes.
"""

from etils import epy

from tasks import task_config
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from tasks import user_photos

_NUM_CLASSES = 1203
# The published splits group the same 120,300 photos by observer (9,275 of them)
# or by a grid on the globe, coarse to fine, all with the same numbering of
# classes. TFF writes only photos whose cell in the grid is known (not "NA"), so
# a split by place may hold fewer.
_PLACE = "a geographic cell (photos of many people, not one person's)"
VARIANTS = {
  "user_120k": (_NUM_CLASSES, "an observer who took photos"),
  "geo_100": (_NUM_CLASSES, _PLACE),
  "geo_300": (_NUM_CLASSES, _PLACE),
  "geo_1k": (_NUM_CLASSES, _PLACE),
  "geo_3k": (_NUM_CLASSES, _PLACE),
  "geo_10k": (_NUM_CLASSES, _PLACE),
  "geo_30k": (_NUM_CLASSES, _PLACE),
}


def create_inaturalist_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the task of iNaturalist 2017.

  A user is an observer, or in the variants "geo_..." a cell of the globe: a
  guarantee for a cell is one for all who took photos in it, but for a person
  only as far as that person's photos lie in one cell. A class is a species.
  `user_photos.create_task` describes the held-out images and the
  configuration; the variants are those of `VARIANTS`.

  Args:
    config: See there.

  Returns:
    A task of colour images `[side, side, 3]` with 1,203 classes.

  Raises:
    FieldError: If the files are not there.
    DataError: If they are damaged and that is not to be skipped.
  """
  return user_photos.create_task(config, name="inaturalist", variants=VARIANTS)
