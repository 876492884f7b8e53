"""Tests of the symbols of pen strokes."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.synthetic import strokes

_COUNT = 6


@pytest.fixture(name="symbols", scope="module")
def _symbols():
  return strokes.Symbols(3)


def _draw(symbols, numbers, count=_COUNT):
  """Images `[symbols, count, 28, 28]`."""
  images = symbols.draw(
    tf.constant(numbers, tf.int64), tf.fill([len(numbers)], count)
  )
  return images.numpy().reshape(len(numbers), count, 28, 28)


def test_an_image_has_the_same_bits_in_any_company(symbols):
  together = _draw(symbols, range(40))
  traced = tf.function(
    symbols.draw,
    input_signature=[
      tf.TensorSpec([None], tf.int64),
      tf.TensorSpec([None], tf.int32),
    ],
  )
  for number in (0, 17, 39):
    alone = traced([number], [3]).numpy()[..., 0]
    np.testing.assert_array_equal(alone, together[number, :3])
  backwards = _draw(symbols, range(39, -1, -1))
  np.testing.assert_array_equal(backwards[::-1], together)


def test_numbers_and_seeds_are_symbols_of_their_own(symbols):
  far = 2**40
  images = _draw(symbols, [0, 1, far, far + 1])
  others = _draw(strokes.Symbols(4), [0, 1, far, far + 1])
  every = np.concatenate([images, others]).reshape(-1, 28 * 28)
  assert len(np.unique(every, axis=0)) == 8 * _COUNT


def test_symbols_are_ink_on_white_paper(symbols):
  drawn = _draw(symbols, range(200))
  assert drawn.max() == 255
  assert drawn.min(axis=(2, 3)).max() < 64
  assert 0.02 < (drawn < 128).mean() < 0.15
  assert (drawn[..., [0, -1]] > 128).mean() > 0.97
  # As wide as a pen: whoever sees a line sees both of its edges.
  runs = np.diff(np.pad(drawn < 128, [(0, 0)] * 3 + [(1, 1)]).astype(int))
  starts = np.flatnonzero(runs == 1)
  ends = np.flatnonzero(runs == -1)
  assert 1 <= np.median(ends - starts) <= 3


def test_images_of_a_symbol_are_alike(symbols):
  """They are more so than the images of other symbols, on average."""
  drawn = 255.0 - _draw(symbols, range(60)).reshape(60, _COUNT, -1)
  drawn -= drawn.mean(axis=2, keepdims=True)
  drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
  similar = np.einsum("aix,bjx->abij", drawn, drawn)
  same = similar[np.arange(60), np.arange(60)]
  same = same[:, ~np.eye(_COUNT, dtype=bool)]
  other = similar[~np.eye(60, dtype=bool)]
  assert same.max() < 0.99
  assert same.mean() > 2 * other.mean() > 0


def test_numbers_of_images_follow_their_law(symbols):
  numbers = tf.range(20_000, dtype=tf.int64)
  counts = symbols.count_images(numbers).numpy()
  assert counts.min() == 4
  assert 7.7 < counts.mean() < 8.3
