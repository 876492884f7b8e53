"""Which images to take, and which of them to keep for testing."""

import numpy as np

from binaries import command_line


def choose_classes(
    labels: np.ndarray,
    num_classes: int,
    generator: np.random.Generator,
    *,
    min_images: int,
) -> np.ndarray:
  """Draws classes at random.

  Args:
    labels: int64 `[n]`.
    num_classes: How many, 0 for all.
    generator: Draws them.
    min_images: Those with fewer are not drawn.

  Returns:
    Labels of the classes, ascending.

  Raises:
    UsageError: If there are not as many.
  """
  classes, counts = np.unique(labels, return_counts=True)
  if not num_classes:
    return classes
  classes = classes[counts >= min_images]
  if num_classes > len(classes):
    raise command_line.UsageError(
        f"--num_classes must be at most {len(classes)}, the classes with"
        f" {min_images} images or more, found {num_classes}."
    )
  return np.sort(generator.choice(classes, size=num_classes, replace=False))


def renumber(labels: np.ndarray) -> np.ndarray:
  """Labels 0 ... K - 1 in the order of the old; as they are if they are so."""
  return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def split_test(
    labels: np.ndarray, test_share: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  """Draws the same share of each class, but at least one and not all.

  Args:
    labels: int64 `[n]`.
    test_share: In (0, 1).
    generator: Draws them.

  Returns:
    Rows to train on and rows to test on, ascending.

  Raises:
    UsageError: If a class has one image only.
  """
  test = []
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    if len(rows) < 2:
      raise command_line.UsageError(
          "--test_output must be of classes of two images or more, found one"
          f" image of class {label}."
      )
    num_test = min(max(round(test_share * len(rows)), 1), len(rows) - 1)
    test.append(generator.choice(rows, size=num_test, replace=False))
  test = np.sort(np.concatenate(test))
  return np.setdiff1d(np.arange(len(labels)), test), test
