"""Tests of the small pictures of a page."""

import base64
import io

import numpy as np
from PIL import Image

from tff_fedemb.report import thumbnails


def _decode(thumbnail):
  data = base64.b64decode(thumbnail.data.partition(",")[2])
  return Image.open(io.BytesIO(data))


def test_drawings_keep_every_pixel_and_are_there_once():
  shown = thumbnails.Thumbnails()
  drawing = np.zeros((28, 20, 1), np.uint8)
  drawing[5:9] = 200
  assert [shown.add(drawing), shown.add(drawing)] == ["t0", "t0"]
  assert shown.add(255 - drawing) == "t1"
  first, _ = shown.all
  assert first.data.startswith("data:image/png;base64,")
  assert (first.width, first.height) == (20, 28)
  np.testing.assert_array_equal(np.asarray(_decode(first)), drawing[..., 0])


def test_photos_become_small_jpegs():
  shown = thumbnails.Thumbnails()
  photo = np.random.default_rng(0).integers(0, 255, (200, 100, 3), np.uint8)
  shown.add(photo)
  (thumbnail,) = shown.all
  assert thumbnail.data.startswith("data:image/jpeg;base64,")
  assert (thumbnail.width, thumbnail.height) == (32, 64)
  picture = _decode(thumbnail)
  assert (picture.size, picture.mode) == ((32, 64), "RGB")
  assert len(thumbnail.data) < 5_000
