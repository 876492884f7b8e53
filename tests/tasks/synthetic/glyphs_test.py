"""Tests of the drawn characters: where they lie and how hands differ."""

import itertools

import numpy as np

from tasks.synthetic import glyphs


def _draw(seed, labels):
  return glyphs.draw_images(np.random.default_rng(seed), labels)


def test_characters_are_centred_with_a_margin():
  images = np.concatenate(
    [_draw(seed, np.tile(np.arange(62), 2)) for seed in range(10)]
  )
  ink = 1.0 - images
  assert images.dtype == np.float32
  # Paper is exactly 1.0, also in every image's corners.
  assert np.all(images[:, [0, 0, -1, -1], [0, -1, 0, -1]] == 1.0)
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


def test_same_characters_of_a_writer_look_alike():
  def distance(a, b):
    return np.square(a - b).sum()

  same, across = [], []
  labels = np.repeat(np.arange(62), 2)
  hands = [_draw(seed, labels) for seed in range(8)]
  for label in range(62):
    images = [hand[labels == label] for hand in hands]
    same += [distance(own[0], own[1]) for own in images]
    across += [
      distance(a[0], b[0]) for a, b in itertools.combinations(images, 2)
    ]
  assert min(same) > 0
  assert np.mean(same) < 0.75 * np.mean(across)
