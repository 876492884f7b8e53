"""Which images to take, and which of them to keep for testing."""

import dataclasses

import numpy as np

from experiments import image_sources
from tff_fedemb import errors


@dataclasses.dataclass(frozen=True)
class Classes:
  """The classes of a run, numbered by what the source says they are.

  The numbers do not depend on the images that a run takes, so that files of
  several runs agree.

  Attributes:
    labels: Those of the source, ascending, int64 `[K]`.
    warnings: What the user should know of them.
  """

  labels: np.ndarray
  warnings: tuple[str, ...] = ()

  def number(self, labels: np.ndarray) -> np.ndarray:
    """From labels of the source, of these classes, to 0 ... K - 1."""
    return np.searchsorted(self.labels, labels).astype(np.int64)

  def find_empty(self, labels: np.ndarray) -> tuple[str, ...]:
    """A warning if classes have none of the examples with these labels."""
    numbers = np.flatnonzero(~np.isin(self.labels, labels))
    if not len(numbers):
      return ()
    names = image_sources.name_some([f"{number}" for number in numbers])
    return (
      f"{len(numbers):,} of {len(self.labels):,} classes have no example:"
      f" label {names}",
    )


def choose_classes(
  source: image_sources.ImageSource,
  num_classes: int,
  generator: np.random.Generator,
  *,
  min_images: int,
) -> Classes:
  """Draws classes at random from all that the source has.

  Args:
    source: Whose images.
    num_classes: How many, 0 for all.
    generator: Draws them.
    min_images: Those with fewer images in the source are not drawn; with 0,
      two sources of the same classes give the same.

  Returns:
    The classes.

  Raises:
    errors.FieldError: If there are not as many.
  """
  labels = source.class_labels
  if not num_classes:
    return Classes(labels)
  sizes = np.zeros(len(labels), np.int64)
  np.add.at(sizes, np.searchsorted(labels, source.labels), 1)
  large = labels[sizes >= min_images]
  if num_classes > len(large):
    which = f"the classes with {min_images} images or more"
    raise errors.FieldError(
      "num_classes",
      f"be at most {len(large)}, {which if min_images else 'all classes'}",
      num_classes,
    )
  drawn = np.sort(generator.choice(large, size=num_classes, replace=False))
  if len(large) == len(labels):
    return Classes(drawn)
  return Classes(
    drawn,
    (
      f"classes were drawn from {len(large):,} of {len(labels):,}, those"
      f" with {min_images} images or more",
    ),
  )


def check_testable(source: image_sources.ImageSource, rows: np.ndarray) -> None:
  """Checks that every class can be in two files.

  Args:
    source: Whose images.
    rows: Which ones, int64 `[m]`.

  Raises:
    errors.FieldError: If a class has one image only.
  """
  labels, sizes = np.unique(source.labels[rows], return_counts=True)
  for label in labels[sizes < 2][:1]:
    raise errors.FieldError(
      "test_output",
      "be of classes of two images or more",
      f"one image of class {source.name_class(label)} that is taken",
    )


def split_test(
  labels: np.ndarray, test_share: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  """Draws the same share of each class, but at least one and not all.

  Args:
    labels: int64 `[n]`, each at least twice.
    test_share: In (0, 1).
    generator: Draws them.

  Returns:
    Rows to train on and rows to test on, ascending.
  """
  rows_of_test = []
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    num_test = min(max(round(test_share * len(rows)), 1), len(rows) - 1)
    rows_of_test.append(generator.choice(rows, size=num_test, replace=False))
  test = np.sort(np.concatenate(rows_of_test))
  return np.setdiff1d(np.arange(len(labels)), test), test
