"""Federated EMNIST's file, filled with synthetic handwriting.

Federated EMNIST (Caldas et al., 2018, "LEAF: A Benchmark for Federated
Settings", arXiv 1812.01097; characters from Cohen et al., 2017, "EMNIST: an
extension of MNIST to handwritten letters") groups 62 handwritten characters by
the person who wrote them. TensorFlow Federated reads it from one SQLite file,
`emnist_all.sqlite`. This module writes such a file without any real data.
"""

from collections.abc import Iterator
import dataclasses
import itertools
import pathlib
from typing import Any

import numpy as np

from tasks import emnist
from tasks.synthetic import store
from tff_fedemb import config
from tff_fedemb.data import tfrecord_files

FILE_NAME = emnist.FILE_NAME

_NUM_DIGITS = 10
# Every ninth digit and every ninth letter of a writer is for test.
_TEST_PERIOD = 9
# Writers that are drawn at once.
_DRAWN = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(store.Config):
  """Arguments of the generator of handwriting.

  Attributes:
    examples_per_user: Expected number of characters a writer, both splits
      together; a writer has between half and one and a half times as many.
    compact: Whether pixels are bytes, as `tasks.emnist` reads them but not
      TensorFlow Federated, and digits have no splits of their own: a fifth of
      the size.
  """

  examples_per_user: int = config.field(112, minimum=16)
  compact: bool = False


def _split(labels: np.ndarray, compact: bool) -> dict[str, np.ndarray]:
  """Returns whether each example of a writer is in a split, bool `[n]`.

  Args:
    labels: Labels of the writer's examples, int64 `[n]`.
    compact: Whether digits have no splits of their own.

  Returns:
    Arrays by the name of the split in the file.
  """
  is_digit = labels < _NUM_DIGITS
  is_test = np.zeros(len(labels), bool)
  # Digits and letters are split apart so that either subset has both parts.
  for group in (is_digit, ~is_digit):
    is_test[np.flatnonzero(group)[1::_TEST_PERIOD]] = True
  splits = {"all_train": ~is_test, "all_test": is_test}
  if not compact:
    splits["digits_only_train"] = ~is_test & is_digit
    splits["digits_only_test"] = is_test & is_digit
  return splits


def _draw_writers(given: Config) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yields images and labels of the writers, on all cores and ahead.

  Args:
    given: Arguments of the generator.

  Yields:
    Images uint8 `[n, 28, 28, 1]` and labels int64 `[n]` of a writer.
  """
  # TensorFlow takes seconds to load; a program's help does without it.
  import tensorflow as tf

  from tasks.synthetic import handwriting

  hands = handwriting.Handwriting(given.seed)

  # Nothing here needs autograph, which would take long to find that out.
  @tf.autograph.experimental.do_not_convert
  def draw(users: tf.Tensor) -> tuple[tf.Tensor, ...]:
    counts = hands.spread_images(users, given.examples_per_user)
    images, labels = hands.draw(users, counts)
    return images, labels, counts

  users = tf.data.Dataset.range(given.num_users).batch(_DRAWN)
  drawn = users.map(draw, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
  for images, labels, counts in drawn.as_numpy_iterator():
    ends = np.cumsum(counts)[:-1]
    yield from zip(np.split(images, ends), np.split(labels, ends), strict=True)


def _draw_rows(given: Config) -> Iterator[tuple[str, str, list[bytes]]]:
  """Yields splits with a writer and the writer's serialised examples.

  Args:
    given: Arguments of the generator.

  Yields:
    Name of a split, name of a writer such as "f0001_42", and
    `tf.train.Example`s with `label` and the pixels.
  """
  users = store.show_progress(given.num_users)
  for user, (images, labels) in zip(users, _draw_writers(given), strict=True):
    suffix = np.random.default_rng([given.seed, user]).integers(100)
    writer = f"f{user:04d}_{suffix:02d}"
    examples = []
    for image, label in zip(images, labels, strict=True):
      features = {"label": label}
      if given.compact:
        features[emnist.PIXEL_BYTES] = image.tobytes()
      else:
        features["pixels"] = image / np.float32(255)
      examples.append(tfrecord_files.serialize_example(features))
    for split_name, chosen in _split(labels, given.compact).items():
      if chosen.any():
        yield split_name, writer, list(itertools.compress(examples, chosen))


def write_emnist(output_dir: store.Path, **fields: Any) -> str:
  """Writes handwriting-like data as federated EMNIST's `emnist_all.sqlite`.

  `tff.simulation.datasets.emnist.load_data(cache_dir=output_dir)` reads it. The
  splits are `all_train` and `all_test` (about one example in nine), and
  `digits_only_train` and `digits_only_test`, the digits among them. A writer is
  the same for a given seed however many others there are, and writes in the
  hand of the same user of task handwriting. The file takes about 0.5 MB a
  writer.

  Args:
    output_dir: The folder.
    **fields: Those of `Config`.

  Returns:
    The path of the file.

  Raises:
    errors.FieldError: If one of them is out of range.
    errors.DataError: If the folder holds something else.
  """
  given = Config(**fields)

  def write(folder: pathlib.Path) -> None:
    # TensorFlow takes seconds to load; a program's help does without it.
    from tff_fedemb.data import sqlite_examples

    sqlite_examples.write_examples(folder / FILE_NAME, _draw_rows(given))

  folder = store.write_data(output_dir, given, write, name="emnist")
  return str(folder / FILE_NAME)
