"""What fits on files of features are fitted to and tested on."""

import dataclasses
import functools

import numpy as np

from tff_fedemb import errors
from tff_fedemb.features import feature_files


@dataclasses.dataclass(frozen=True)
class Problem:
  """What to fit on, and what to test on.

  Attributes:
    train: Examples to fit on, of which nothing but a fit may be published.
    test: Examples whose accuracy is published.
    num_classes: K.
    is_from_labels: Whether K was taken from the labels.
    has_users: Whether users are protected, who are then known; else examples.
  """

  train: feature_files.FeatureSet
  test: feature_files.FeatureSet
  num_classes: int
  is_from_labels: bool
  has_users: bool = False

  @functools.cached_property
  def num_protected(self) -> int:
    """How many examples, or users, there are to protect."""
    if self.has_users:
      return len(np.unique(self.train.users))
    return len(self.train.labels)

  @property
  def size(self) -> dict[str, int]:
    """JSON values by name."""
    # Of users their number is public, and not how many examples they have.
    return {
      "num_users" if self.has_users else "train_size": self.num_protected,
      "test_size": len(self.test.labels),
      "dim": self.train.features.shape[1],
      "num_classes": self.num_classes,
    }


def read_problem(
  train: str,
  test: str,
  *,
  num_classes: int | None = None,
  has_users: bool = False,
) -> Problem:
  """Reads the features of a fit.

  Args:
    train: File to fit on.
    test: File to test on.
    num_classes: Above all labels; `None` to take it from the labels.
    has_users: Whether it is to be known whose the examples of `train` are.

  Raises:
    errors.DataError: If a file cannot be used.
    errors.FieldError: If a file does not go with the others.
  """
  paths = {"train": train, "test": test}
  sets = {name: _read(name, path) for name, path in paths.items()}
  if has_users and sets["train"].users is None:
    raise errors.FieldError(
      "train",
      "hold user, whose each example is, with --unit=user",
      f"none in {train}",
    )
  dim, test_dim = (found.features.shape[1] for found in sets.values())
  if test_dim != dim:
    raise errors.FieldError(
      "test",
      f"have {dim} features an example, as --train={train} has",
      f"{test_dim} in {test}",
    )
  largest = {name: int(found.labels.max()) for name, found in sets.items()}
  for name, path in paths.items():
    if num_classes is not None and largest[name] >= num_classes:
      raise errors.FieldError(
        "num_classes",
        "be above all labels",
        f"{num_classes} and label {largest[name]} in --{name}={path}",
      )
  counted = 1 + max(largest.values())
  num_examples = sum(len(found.labels) for found in sets.values())
  # Identifiers in place of labels would take memory for each number between.
  if num_classes is None and not 2 <= counted <= max(num_examples, 2):
    raise errors.FieldError(
      "num_classes",
      "be given unless labels are 0, 1, ... of two or more classes",
      f"labels up to {counted - 1:,} of {num_examples:,} examples",
    )
  return Problem(
    **sets,
    num_classes=num_classes or counted,
    is_from_labels=num_classes is None,
    has_users=has_users,
  )


def _read(name: str, path: str) -> feature_files.FeatureSet:
  feature_files.check_suffix(path, name=name)
  try:
    return feature_files.read_features(path)
  except feature_files.FeatureFileError as error:
    raise bad_file(name, error) from error


def bad_file(name: str, error: Exception) -> errors.DataError:
  """Says of which flag's file an error is."""
  return errors.DataError(f"--{name} must be a file of features: {error}")
