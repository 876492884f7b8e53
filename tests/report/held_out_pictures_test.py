"""Tests for held_out_pictures."""

import base64
import io
import types

import numpy as np
from PIL import Image
import pytest

from tasks import registry
from tests.data import photo_files
from tests.run import specs
from tff_fedemb import errors
from tff_fedemb.report import held_out_pictures
from tff_fedemb.report import page


@pytest.fixture(name="data_dir")
def _data_dir(tmp_path):
  """Photos of six users, of which one is no image."""
  for user in range(6):
    for label in "abcdefghij":
      folder = tmp_path / "data" / f"user {user}" / label
      folder.mkdir(parents=True)
      for number in range(2):
        content = photo_files.encode(100 * user + ord(label) + number)
        (folder / f"{number}.jpg").write_bytes(content)
  (folder / "broken.jpg").write_bytes(b"no image")
  return tmp_path / "data"


def _open(data_dir, num_bad_examples, **data):
  # A run's record, but for parts that the pictures do not use.
  run = types.SimpleNamespace(
    spec=specs.create(
      registry.Photos(
        data_dir=data_dir, cache_dir=data_dir.parent / "cache", image_size=28
      )
    ),
    summary={"data": {"num_bad_examples": num_bad_examples}},
  )
  config = page.ReportConfig(run_dirs=(), output="unused", **data)
  return page._open_task(run, config)


def test_what_a_run_has_left_out_is_left_out_again(data_dir):
  assert len(_open(data_dir, 1).bad_examples) == 1
  # Neither what is new since the run, nor what is not to be left out now.
  with pytest.raises(errors.DataError, match=r"broken\.jpg"):
    _open(data_dir, 0)
  with pytest.raises(errors.DataError, match=r"broken\.jpg"):
    _open(data_dir, 1, on_bad_example="fail")


def _decode(uri):
  data = base64.b64decode(uri.partition(",")[2])
  return Image.open(io.BytesIO(data))


def test_drawings_keep_every_pixel_and_are_there_once():
  shown = {}
  drawing = np.zeros((28, 20, 1), np.uint8)
  drawing[5:9] = 200
  names = [
    held_out_pictures.add_thumbnail(shown, image)
    for image in (drawing, drawing, 255 - drawing)
  ]
  assert names == ["t0", "t0", "t1"]
  first, _ = shown
  assert first.startswith("data:image/png;base64,")
  assert shown[first] == ("t0", 20, 28)
  np.testing.assert_array_equal(np.asarray(_decode(first)), drawing[..., 0])


def test_photos_become_small_jpegs():
  shown = {}
  photo = np.random.default_rng(0).integers(0, 255, (200, 100, 3), np.uint8)
  held_out_pictures.add_thumbnail(shown, photo)
  ((uri, thumbnail),) = shown.items()
  assert uri.startswith("data:image/jpeg;base64,")
  assert thumbnail == ("t0", 32, 64)
  picture = _decode(uri)
  assert (picture.size, picture.mode) == ((32, 64), "RGB")
  assert len(uri) < 5_000
