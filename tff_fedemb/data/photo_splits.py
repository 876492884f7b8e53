"""Draws which classes or users are held out, from their names.

The draw is public: its key is a constant, so that it says nothing of the data
but the names.
"""

from collections.abc import Sequence
import hashlib
import math

import numpy as np
import pandas as pd

from tff_fedemb import errors
from tff_fedemb.data import photo_index

# Shares of all of them, at least two each.
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1
_MIN_CLASSES = 2
_KEY = b"tff_fedemb photos"


def draw(
  names: Sequence[str], eligible: np.ndarray, minimum: int
) -> np.ndarray:
  """Draws what is held out by a keyed hash of each name.

  Args:
    names: Names of classes or of users.
    eligible: bool `[n]`, which of them may be held out; the shares are of
      these.
    minimum: Least number held out for each split.

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


def _draw_column(photos: pd.DataFrame, hold_out: str) -> pd.Series:
  """The split of each photo by its class or its user."""
  column = {"classes": "label", "users": "user"}[hold_out]
  sizes = photos[column].value_counts()
  eligible, minimum = sizes.to_numpy() > 1, _MIN_CLASSES
  classes_of_user = photos.groupby("user")["label"].nunique()
  # Users of one class are compared with each other, as classes are.
  if hold_out == "users" and classes_of_user.max() > 1:
    eligible, minimum = np.ones(sizes.size, bool), 1
  splits = draw(sizes.index, eligible, minimum)
  return photos[column].map(dict(zip(sizes.index, splits, strict=True)))


def assign(
  photos: pd.DataFrame, hold_out: str
) -> tuple[pd.DataFrame, list[str]]:
  """Decides what is held out.

  Args:
    photos: A row for each with the names `user` and `label`, and the list's own
      `split`: an index into `photo_index.SPLITS`, -1, or
      `photo_index.LEFT_OUT`.
    hold_out: One of `photo_index.HOLD_OUT`.

  Returns:
    The photos with their `split`; with `slot`, the place by name of their user
    among those who train, or -1; and with `number`, that of their class among
    the names of all classes, which are returned as well: those that train by
    name, then the others.

  Raises:
    FieldError: If there is too little to hold out.
  """
  splits = photos["split"]
  if hold_out != "split_column":
    drawn = _draw_column(photos, hold_out)
    splits = drawn.where(splits != photo_index.LEFT_OUT, photo_index.LEFT_OUT)
  _check(photos["label"], splits, hold_out)
  trains = photos[splits == photo_index.TRAIN]
  users = pd.Index(sorted(trains["user"].unique()))
  trained = set(trains["label"])
  classes = sorted(
    photos["label"].unique(), key=lambda name: (name not in trained, name)
  )
  assigned = photos.assign(
    split=splits,
    slot=users.get_indexer(photos["user"]),
    number=pd.Index(classes).get_indexer(photos["label"]),
  )
  return assigned, classes


def _check(labels: pd.Series, splits: pd.Series, hold_out: str) -> None:
  """Refuses a split that nothing can be learned from or be measured on."""
  advice = {
    "classes": (
      f"The {labels.nunique()} classes are too few to hold some out;"
      " hold_out=users holds out users."
    ),
    "users": "They are too few, or have too few classes, to hold some out.",
    "split_column": "Correct the table's column split.",
  }[hold_out]
  for number, name in enumerate(photo_index.SPLITS):
    sizes = labels[splits == number].value_counts().to_numpy()
    if sizes.size < _MIN_CLASSES or sizes[0] < 2:
      raise errors.FieldError(
        "hold_out",
        f"leave two classes for {name}, one of them with two images, of"
        f" {hold_out.replace('_', ' ')}",
        f"{sizes.size} with at most {sizes.max(initial=0)} images",
        advice,
      )
