"""Tests of augmentations."""

import numpy as np
import pytest

from tff_fedemb.data import augmentation

_AFFINE = augmentation.AUGMENTATIONS["affine"]
_CROP_FLIP = augmentation.AUGMENTATIONS["crop_flip"]


def _cross():
  """A white image with a dark plus sign off its centre."""
  image = np.full([21, 21, 1], 255, np.uint8)
  image[5:16, 8] = 0
  image[10, 4:13] = 0
  return image


def test_changes_depend_on_the_seed_alone():
  images = np.stack([_cross()] * 3)
  first = _AFFINE(images, (1, 2))
  np.testing.assert_array_equal(first, _AFFINE(images, (1, 2)))
  other = _AFFINE(images, (1, 3))
  assert np.abs(first - other).max() > 10
  # Equal images of a batch are changed differently.
  assert np.abs(first[0] - first[1]).max() > 10


def test_background_stays_background_and_ink_stays_ink():
  images = np.stack([_cross()] * 50)
  changed = _AFFINE(images, (4, 4)).numpy()
  assert changed.shape == images.shape
  assert changed.dtype == np.float32
  assert changed.min() >= 0
  assert changed.max() <= 255 + 1e-3
  # The border of the paper is paper, whatever was shifted in.
  np.testing.assert_allclose(changed[:, 0], 255.0, atol=1e-3)
  ink = (255.0 - changed).sum(axis=(1, 2, 3)) / (255.0 - _cross()).sum()
  # Area goes with the square of the scale, at most exp(0.15)^2 either way.
  assert np.all(ink > np.exp(-0.4))
  assert np.all(ink < np.exp(0.4))


def test_mean_change_is_none():
  """The centre of the ink moves by at most the shift, and not on average."""
  images = np.stack([_cross()] * 400)
  changed = 255.0 - _AFFINE(images, (7, 7)).numpy()[..., 0]
  original = 255.0 - _cross()[..., 0]
  grid = np.arange(21)

  def centre(ink):
    return np.array(
      [
        (ink.sum(axis=-1) * grid).sum(axis=-1) / ink.sum(axis=(-1, -2)),
        (ink.sum(axis=-2) * grid).sum(axis=-1) / ink.sum(axis=(-1, -2)),
      ]
    )

  moved = centre(changed) - centre(original)[:, np.newaxis]
  assert np.abs(moved).max() < 3.5
  assert np.abs(moved.mean(axis=1)).max() < 0.3
  assert moved.std(axis=1).min() > 0.5


def test_crops_lie_in_the_image_and_half_are_mirrored():
  """Pixels that hold their own place tell where they were taken from."""
  height, width = 11, 21
  rows, columns = np.mgrid[:height, :width].astype(np.float32)
  images = np.stack([np.stack([columns, rows], axis=-1)] * 400)
  changed = _CROP_FLIP(images, (1, 2)).numpy()
  x, y = changed[:, height // 2, :, 0], changed[:, :, width // 2, 1]
  assert x.min() >= -1e-3
  assert x.max() <= width - 1 + 1e-3
  assert y.min() >= -1e-3
  assert y.max() <= height - 1 + 1e-3
  side_x = (x[:, -1] - x[:, 0]) / (width - 1)
  side_y = (y[:, -1] - y[:, 0]) / (height - 1)
  np.testing.assert_allclose(np.abs(side_x), side_y, atol=1e-4)
  assert side_y.min() >= 0.8 - 1e-4
  assert side_y.max() <= 1.0 + 1e-4
  assert side_y.std() == pytest.approx(0.2 / np.sqrt(12), rel=0.1)
  # 400 coins: 5 deviations.
  assert 150 < (side_x < 0).sum() < 250
  np.testing.assert_allclose(
    np.diff(x, axis=1), np.tile(side_x[:, np.newaxis], width - 1), atol=1e-3
  )


def test_turned_images_are_further_classes():
  images = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])[..., np.newaxis]
  turned, labels = augmentation.add_turned_classes(images, np.array([0, 7]))
  np.testing.assert_array_equal(labels, [0, 28, 1, 29, 2, 30, 3, 31])
  np.testing.assert_array_equal(turned[:2], images)
  np.testing.assert_array_equal(turned[2, ..., 0], [[2, 4], [1, 3]])
  np.testing.assert_array_equal(turned[4, ..., 0], [[4, 3], [2, 1]])
  np.testing.assert_array_equal(turned[7, ..., 0], [[7, 5], [8, 6]])
