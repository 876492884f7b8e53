"""What fits on files of features are fitted to and tested on."""

from collections.abc import Mapping
import dataclasses
import functools

import numpy as np

from experiments import command_line
from tff_fedemb import checks
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
    UsageError: If a file or the number is not as it has to be.
  """
  if num_classes is not None:
    command_line.call_with_flags(
      checks.check_integer, "num_classes", num_classes, minimum=2
    )
  paths = {"train": train, "test": test}
  sets = {name: _read(name, path) for name, path in paths.items()}
  if has_users and sets["train"].users is None:
    raise command_line.UsageError(
      "--train must hold user, whose each example is, with --unit=user,"
      f" found none in {train}."
    )
  dim = sets["train"].features.shape[1]
  if sets["test"].features.shape[1] != dim:
    raise command_line.UsageError(
      f"--test must have {dim} features an example, as --train={train} has,"
      f" found {sets['test'].features.shape[1]} in {test}."
    )
  largest = {name: int(found.labels.max()) for name, found in sets.items()}
  if num_classes is None:
    return Problem(
      **sets,
      num_classes=_count_classes(sets, largest),
      is_from_labels=True,
      has_users=has_users,
    )
  for name, path in paths.items():
    if largest[name] >= num_classes:
      raise command_line.UsageError(
        f"--num_classes must be above all labels, found {num_classes} and"
        f" label {largest[name]} in --{name}={path}."
      )
  return Problem(
    **sets,
    num_classes=num_classes,
    is_from_labels=False,
    has_users=has_users,
  )


def _count_classes(
  sets: Mapping[str, feature_files.FeatureSet], largest: Mapping[str, int]
) -> int:
  num_classes = 1 + max(largest.values())
  num_examples = sum(len(found.labels) for found in sets.values())
  # Identifiers in place of labels would take memory for each number between.
  if not 2 <= num_classes <= max(num_examples, 2):
    raise command_line.UsageError(
      "--num_classes must be given unless labels are 0, 1, ... of two or more"
      f" classes, found labels up to {num_classes - 1:,} of"
      f" {num_examples:,} examples."
    )
  return num_classes


def _read(name: str, path: str) -> feature_files.FeatureSet:
  try:
    return feature_files.read_features(path)
  except feature_files.FeatureFileError as error:
    raise bad_file(name, error) from error


def bad_file(name: str, error: ValueError) -> command_line.UsageError:
  """Says of which file an error is, by the name of its flag."""
  return command_line.UsageError(
    f"--{name} must be a file of features: {error}"
  )
