"""Tests of the drawn characters: where they lie and how hands differ."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tasks.synthetic import glyphs
from tasks.synthetic import handwriting

_NUM_LABELS = len(glyphs.CHARACTERS)


@pytest.fixture(name="hands", scope="module")
def _hands():
  return handwriting.Handwriting(5)


def _draw(hands, users, labels):
  """Images `[users, labels, 28, 28]` of the same labels by several hands."""
  images, found = hands.draw(
    tf.constant(users, tf.int64),
    tf.fill([len(users)], len(labels)),
    labels=np.tile(labels, len(users)),
  )
  np.testing.assert_array_equal(found, np.tile(labels, len(users)))
  return images.numpy().reshape(len(users), len(labels), 28, 28)


def test_characters_are_centred_with_a_margin(hands):
  images = _draw(hands, range(10), np.tile(np.arange(_NUM_LABELS), 2))
  images = images.reshape(-1, 28, 28)
  ink = 1.0 - images / 255.0
  # Paper is exactly white, also in every image's corners.
  assert np.all(images[:, [0, 0, -1, -1], [0, -1, 0, -1]] == 255)
  border = np.concatenate(
    [ink[:, [0, -1]].reshape(-1), ink[:, :, [0, -1]].reshape(-1)]
  )
  assert border.mean() < 0.005
  total = ink.sum(axis=(1, 2))
  assert np.all(total > 10)
  offsets = np.arange(28) - 13.5
  for axis in (1, 2):
    centre = (ink.sum(axis=axis) @ offsets) / total
    assert abs(centre.mean()) < 1.0
    assert np.abs(centre).max() < 7.0


def test_same_characters_of_a_writer_look_alike(hands):
  drawn = _draw(hands, range(8), np.repeat(np.arange(_NUM_LABELS), 2)) / 255.0
  first, second = drawn[:, ::2], drawn[:, 1::2]

  def distances(a, b):
    return np.square(a - b).sum(axis=(1, 2))

  pairs = zip(first, second, strict=True)
  same = np.concatenate([distances(*both) for both in pairs])
  across = np.concatenate(
    [distances(*both) for both in itertools.combinations(first, 2)]
  )
  assert same.min() > 0
  assert same.mean() < 0.75 * across.mean()


def test_characters_can_be_told_apart(hands):
  """The mean image of a class is nearest to most of another writer's images."""
  labels = np.arange(10)
  drawn = _draw(hands, range(40), labels) / 255.0
  means = drawn[:30].mean(axis=0).reshape(10, -1)
  others = drawn[30:].reshape(-1, 784)
  distances = np.square(others[:, np.newaxis] - means).sum(axis=2)
  right = np.mean(distances.argmin(axis=1) == np.tile(labels, 10))
  # Not all of them: the task is to be learned.
  assert 0.6 < right < 0.99


def test_characters_are_those_of_the_labels():
  """Straight strokes and rings are where a 1, an l and an O have them."""
  hands = handwriting.Handwriting(0)
  one, ring = (
    _draw(hands, range(30), np.array([label]))[:, 0] < 128 for label in (1, 24)
  )
  assert glyphs.CHARACTERS[24] == "O"
  # In the middle a 1 is inked and an O is not.
  assert np.mean(one[:, 12:16, 10:18].any(axis=(1, 2))) > 0.9
  assert np.mean(ring[:, 12:16, 12:16].any(axis=(1, 2))) < 0.2


def test_a_hand_does_not_depend_on_what_else_may_be_written(hands):
  labels = np.arange(40, 50)
  small = handwriting.Handwriting(5, range(36, 62))
  np.testing.assert_array_equal(
    _draw(small, [1, 7], labels), _draw(hands, [1, 7], labels)
  )


def test_numbers_of_images_follow_their_laws(hands):
  users = tf.range(20_000, dtype=tf.int64)
  spread = hands.spread_images(users, 100).numpy()
  assert (spread.min(), spread.max()) == (50, 150)
  assert abs(spread.mean() - 100) < 1
  assert abs(spread.std() - 100 / 12**0.5) < 0.5
  counts = np.log(hands.count_images(users).numpy())
  assert abs(counts.mean() - np.log(64)) < 0.02
  assert abs(counts.std() - 0.6) < 0.02
  # Neighbours, and the same users of another seed, have nothing in common.
  others = handwriting.Handwriting(6).spread_images(users, 100).numpy()
  for other in (others, np.roll(spread, 1), np.roll(spread, 2**10)):
    assert abs(np.corrcoef(spread, other)[0, 1]) < 0.03
