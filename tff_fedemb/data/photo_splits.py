"""Which of somebody's classes or users are held out, drawn from their names.

The draw is public: its key is a constant, so that it says nothing of the data
but the names.
"""

from collections.abc import Sequence
import dataclasses
import hashlib
import math

from etils import epy
import numpy as np

from tff_fedemb import errors

with epy.lazy_imports():
  from tff_fedemb.data import photo_index

# What is held out: whole classes, whole users, or what a table says.
HOLD_OUT = ("classes", "users", "split_column")
# Of all of them, at least two each.
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1
_MIN_CLASSES = 2
_KEY = b"tff_fedemb photos"


def draw(
  names: Sequence[str], eligible: np.ndarray, minimum: int
) -> np.ndarray:
  """Draws what is held out by a keyed hash of each name.

  Args:
    names: Of classes or of users.
    eligible: bool `[n]`, which of them may be held out; the shares are of
      these.
    minimum: How many are held out of each split at least.

  Returns:
    int8 `[n]` indices into `photo_index.SPLITS`.
  """
  splits = np.full(len(names), photo_index.TRAIN, np.int8)
  order = sorted(
    np.flatnonzero(eligible).tolist(),
    key=lambda i: hashlib.blake2b(names[i].encode(), key=_KEY).digest(),
  )
  test, validation = (
    max(minimum, math.floor(share * len(order) + 0.5))
    for share in (TEST_SHARE, VALIDATION_SHARE)
  )
  splits[order[:test]] = photo_index.TEST
  splits[order[test : test + validation]] = photo_index.VALIDATION
  return splits


@dataclasses.dataclass(frozen=True)
class Assignment:
  """What follows from who and what is held out.

  Attributes:
    split_of_photo: int8 `[photos]`, indices into `photo_index.SPLITS`, or
      `photo_index.LEFT_OUT`.
    splits: The same of "classes" or "users", whichever are held out whole.
    slots: int64 `[users]`, places among those who train by name, or -1.
    labels: int64 `[classes]`: those that train by name, then the others.
  """

  split_of_photo: np.ndarray
  splits: dict[str, np.ndarray]
  slots: np.ndarray
  labels: np.ndarray

  @property
  def num_users(self) -> int:
    """Number of users who train."""
    return int((self.slots >= 0).sum())


def _number(
  names: Sequence[str], first: np.ndarray, *, others: bool
) -> np.ndarray:
  """Numbers some by name from 0, then the others if asked for, else -1."""
  order = sorted(range(len(names)), key=lambda i: (not first[i], names[i]))
  numbers = np.empty(len(names), np.int64)
  numbers[order] = np.arange(len(names))
  return numbers if others else np.where(first, numbers, -1)


def assign(
  users: Sequence[str],
  classes: Sequence[str],
  columns: np.ndarray,
  hold_out: str,
) -> Assignment:
  """Decides what is held out.

  Args:
    users, classes: Their names.
    columns: int `[photos, 3]`: numbers of user and class, and the list's own
      split or -1.
    hold_out: One of `HOLD_OUT`.

  Raises:
    FieldError: If there is too little to hold out.
  """
  splits = {}
  if hold_out == "classes":
    sizes = np.bincount(columns[:, 1], minlength=len(classes))
    splits["classes"] = draw(classes, sizes > 1, _MIN_CLASSES)
    split_of_photo = splits["classes"][columns[:, 1]]
  elif hold_out == "users":
    one_class = len(np.unique(columns[:, :2], axis=0)) == len(users)
    if one_class:
      # To be compared with each other, as classes are.
      sizes = np.bincount(columns[:, 0], minlength=len(users))
      splits["users"] = draw(users, sizes > 1, _MIN_CLASSES)
    else:
      splits["users"] = draw(users, np.ones(len(users), bool), 1)
    split_of_photo = splits["users"][columns[:, 0]]
  else:
    split_of_photo = columns[:, 2]
  is_left_out = columns[:, 2] == photo_index.LEFT_OUT
  split_of_photo = np.where(
    is_left_out, photo_index.LEFT_OUT, split_of_photo
  ).astype(np.int8)
  _check(columns, split_of_photo, len(classes), hold_out)
  trains = split_of_photo == photo_index.TRAIN
  is_user, is_class = np.zeros(len(users), bool), np.zeros(len(classes), bool)
  is_user[columns[trains, 0]] = True
  is_class[columns[trains, 1]] = True
  return Assignment(
    split_of_photo,
    splits,
    _number(users, is_user, others=False),
    _number(classes, is_class, others=True),
  )


def _check(
  columns: np.ndarray,
  split_of_photo: np.ndarray,
  num_classes: int,
  hold_out: str,
) -> None:
  """Refuses a split that nothing can be learned from or be measured on."""
  advice = {
    "classes": (
      f"The {num_classes} classes are too few to hold some out;"
      " hold_out=users holds out users."
    ),
    "users": "They are too few, or have too few classes, to hold some out.",
    "split_column": "Correct the table's column split.",
  }[hold_out]
  for number, name in enumerate(photo_index.SPLITS):
    sizes = np.bincount(columns[split_of_photo == number, 1])
    sizes = sizes[sizes > 0]
    if sizes.size < _MIN_CLASSES or sizes.max() < 2:
      raise errors.FieldError(
        "hold_out",
        f"leave two classes for {name}, one of them with two images, of"
        f" {hold_out.replace('_', ' ')}",
        f"{sizes.size} with at most {sizes.max(initial=0)} images",
        advice,
      )
