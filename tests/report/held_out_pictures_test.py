"""Tests of the pictures of held-out images."""

import base64
import io
import types

import numpy as np
from PIL import Image
import pytest

from tasks import registry
from tests.spec import specs
from tests.tasks import trees
from tff_fedemb import errors
from tff_fedemb.report import held_out_pictures
from tff_fedemb.report import page


@pytest.fixture(name="data_dir")
def _data_dir(tmp_path):
  """Photos of twelve people, of which one is no image."""
  root = trees.write_people(tmp_path / "data")
  (root / "p0" / "broken.jpg").write_bytes(b"no image")
  return root


def _open(data_dir, num_bad_examples):
  """Opens the task of a run, as its report does."""
  photos = registry.Photos(
    data_dir=data_dir, cache_dir=data_dir.parent / "cache", image_size=28
  )
  run = types.SimpleNamespace(
    spec=specs.create(photos),
    summary={"data": {"num_bad_examples": num_bad_examples}},
  )
  config = page.ReportConfig(run_dirs=(), output="unused")
  return page._open_task(run, config)


def test_what_a_run_has_left_out_is_left_out_again(data_dir):
  assert len(_open(data_dir, 1).bad_examples) == 1
  # A photo that broke after the run is an error.
  with pytest.raises(errors.DataError, match=r"broken\.jpg"):
    _open(data_dir, 0)


@pytest.mark.parametrize(
  ("shape", "kind", "size"),
  [((28, 20, 1), "PNG", (20, 28)), ((200, 100, 3), "JPEG", (32, 64))],
)
def test_pictures_are_small_and_there_once(shape, kind, size):
  shown = {}
  image = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
  for added, name in ((image, "t0"), (image, "t0"), (255 - image, "t1")):
    assert held_out_pictures.add_thumbnail(shown, added) == name
  assert len(shown) == 2
  data = base64.b64decode(next(iter(shown)).partition(",")[2])
  picture = Image.open(io.BytesIO(data))
  assert (picture.format, picture.size) == (kind, size)
  assert len(data) < 5_000
  if kind == "PNG":
    # A drawing keeps every pixel.
    np.testing.assert_array_equal(np.asarray(picture), image[..., 0])
