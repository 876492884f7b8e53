"""Google Landmarks v2 by author: photos of sights (Hsu et al. 2020).

Weyand et al., "Google Landmarks Dataset v2: A Large-Scale Benchmark for
Instance-Level Recognition and Retrieval", CVPR 2020; split by author in Hsu, Qi
and Brown, "Federated Visual Classification with Real-World Data Distribution",
ECCV 2020. Read from the files that `tff.simulation.datasets.gldv2` writes.
"""

from tasks import task
from tasks import user_photos

# The published numbers of classes. gld160k: 1,262 authors, 164,172 images;
# gld23k, a part of it: 233 authors, 23,080 images.
_VARIANTS = {
  "gld160k": user_photos.Variant(2028, "an author of photos"),
  "gld23k": user_photos.Variant(203, "an author of photos"),
}


def create_gld_task(config: task.TaskConfig) -> task.Task:
  """Creates the task of Google Landmarks v2.

  A user is the author of photos, a class a landmark. Held out is the published
  test set: other images of the same landmarks. Of its classes, those whose
  number modulo 5 is 4 are for validation, the others for test.

  Args:
    config: `data_dir` holds `gld160k/` or `gld23k/`, or is that folder (under
      any name if `variant` is given): `train/<author>` and `test.tfRecord`.
      `variant` is "gld160k" (default) or "gld23k". `image_size` is 224 by
      default.
  """
  return user_photos.create_task(config, name="gld", variants=_VARIANTS)
