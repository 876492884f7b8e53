"""A task of your own: scikit-learn's digits, shared among made-up users.

Copy this file, change what `create` reads, and name the class:

  python -m binaries.run_federated --task=examples.own_task:OwnTask \
    --users=40 --run_dir=runs/own ...
"""

from __future__ import annotations

import dataclasses

from etils import epy
import numpy as np

from tff_fedemb import config
from tff_fedemb.spec import array_task
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from sklearn import datasets

# Their images are held out.
_FIRST_HELD_OUT_CLASS = 7


@dataclasses.dataclass(frozen=True)
class OwnTask(task_lib.TaskSource):
  """Handwritten digits of 8 x 8 pixels; 0 to 6 for training, 7 to 9 held out.

  Attributes:
    users: Number of users, among whom the 1,264 images are shared out in turn.
  """

  users: int = config.field(50, minimum=2, maximum=1_264)

  @property
  def num_train_users(self) -> int:
    return self.users

  def create(self) -> task_lib.Task:
    digits = datasets.load_digits()
    images = np.round(255 / 16 * digits.images).astype(np.uint8)[
      ..., np.newaxis
    ]
    trains = digits.target < _FIRST_HELD_OUT_CLASS
    return array_task.ArrayTask(
      images[trains],
      digits.target[trains],
      np.arange(trains.sum()) % self.users,
      test=(images[~trains], digits.target[~trains]),
      held_out_users=True,
      name="digits",
    ).create()
