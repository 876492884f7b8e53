"""Federated Google Landmarks v2's files, filled with synthetic photographs.

Google Landmarks v2 (Weyand et al., 2020, "Google Landmarks Dataset v2", CVPR)
was grouped by photographer by Hsu et al., 2020, "Federated Visual
Classification with Real-World Data Distribution", ECCV. TensorFlow Federated
keeps it as `gld160k/` and, smaller, `gld23k/`.
"""

from tasks.synthetic import landmarks
from tasks.synthetic import tfrecord_twin

TWIN = tfrecord_twin.Twin(
  name="gld",
  version=2,
  draw=landmarks.draw_landmark,
  folders={"gld160k": 1.0, "gld23k": 0.5},
)
