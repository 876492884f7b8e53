"""Google Landmarks v2 by author: photos of sights (Hsu et al. 2020).

Weyand et al., "Google Landmarks Dataset v2: A Large-Scale Benchmark for
Instance-Level Recognition and Retrieval", CVPR 2020; split by author in Hsu, Qi
and Brown, "Federated Visual Classification with Real-World Data Distribution",
ECCV 2020. Read from the files that `tff.simulation.datasets.gldv2` writes.
"""

from etils import epy

from tasks import task_config
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from tasks import user_photos

# Published numbers of classes. gld160k has 1,262 authors and 164,172 images;
# gld23k, a part of it, has 233 authors and 23,080 images.
_VARIANTS = {
  "gld160k": (2028, "an author of photos"),
  "gld23k": (203, "an author of photos"),
}


def create_gld_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the task of Google Landmarks v2.

  A user is the author of photos, a class is a landmark.
  `user_photos.create_task` describes the held-out images and the
  configuration; the variants are "gld160k" and "gld23k".

  Args:
    config: See there.

  Returns:
    A task of colour images `[side, side, 3]`, with as many classes as the
    variant has.

  Raises:
    FieldError: If the files are not there.
    DataError: If they are damaged and that is not to be skipped.
  """
  return user_photos.create_task(config, name="gld", variants=_VARIANTS)
