"""Tests of ONNX files."""

import sys

import numpy as np
import pytest

from tests.binaries import programs
from tests.records import small_models
from tff_fedemb import errors
from tff_fedemb.models import backbones
from tff_fedemb.models import pretrained
from tff_fedemb.models import starts
from tff_fedemb.records import export
from tff_fedemb.serving import lite_export
from tff_fedemb.serving import onnx_files
from tff_fedemb.serving import saved_models

_SHAPE = small_models.SHAPE


@pytest.fixture(name="model", scope="module")
def _model(tmp_path_factory):
  return small_models.export_lenet(tmp_path_factory.mktemp("model"))


@pytest.fixture(name="needs_onnx")
def _needs_onnx():
  for name in ("tf2onnx", "onnxruntime"):
    pytest.importorskip(name)


def _export(model, output):
  config = lite_export.ExportConfig(
    saved_model=model, output_dir=str(output), formats=("onnx",)
  )
  lite_export.execute(config)


def _random_images(count):
  return np.random.default_rng(0).integers(0, 256, (count, *_SHAPE), np.uint8)


@pytest.mark.usefixtures("needs_onnx")
def test_a_file_gives_what_the_saved_model_gives(model, tmp_path, capsys):
  _export(model, tmp_path)
  path = tmp_path / "model.onnx"
  assert f"{path}: " in capsys.readouterr().out
  original, images = saved_models.load(model), _random_images(9)
  for is_alone in (False, True):
    if is_alone:
      (tmp_path / "model.json").unlink()
    loaded = saved_models.load(str(path))
    assert loaded.image_shape == _SHAPE
    np.testing.assert_allclose(
      loaded.embed(images), original.embed(images), atol=1e-6
    )
    assert loaded.card.threshold(0.01)["threshold"] == 0.5
    assert loaded.card.conversion["format"] == "onnx"


@pytest.mark.usefixtures("needs_onnx")
def test_a_file_that_gives_something_else_is_not_written(
  model, tmp_path, monkeypatch
):
  embed = onnx_files.Embedder.embed
  monkeypatch.setattr(
    onnx_files.Embedder, "embed", lambda *args: embed(*args) + 2e-4
  )
  with pytest.raises(errors.FieldError, match=r"differs by up to 0\.0002"):
    _export(model, tmp_path)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ("error", "is_refused"), [(9e-5, False), (1.1e-4, True), (np.nan, True)]
)
def test_one_picture_of_a_hundred_decides(error, is_refused):
  embedder = object.__new__(onnx_files.Embedder)
  offsets = np.where(np.arange(100) == 7, error, 0.0)[:, np.newaxis]
  embedder.embed = lambda images: offsets + np.zeros([len(images), 2])
  images = np.zeros([100, 2, 2, 1])
  expected = np.zeros([100, 2])
  if not is_refused:
    embedder.check(images, expected)
    return
  with pytest.raises(errors.FieldError, match="formats must give "):
    embedder.check(images, expected)


def test_images_that_are_almost_blank_do_not_decide():
  embedder = object.__new__(onnx_files.Embedder)
  images = np.zeros([3, 2, 2, 1])
  images[1, 0] = 9.0
  images[2, 0] = 11.0
  offsets = np.array([1.0, 1.0, 0.0])[:, np.newaxis]
  embedder.embed = lambda images: np.zeros([len(images), 2]) + offsets[-1]
  embedder.check(images, offsets * np.ones([3, 2]))
  embedder.embed = lambda images: np.ones([len(images), 2])
  with pytest.raises(errors.FieldError, match="formats must give "):
    embedder.check(images, np.zeros([3, 2]))


@pytest.mark.slow
@pytest.mark.usefixtures("needs_onnx")
@pytest.mark.parametrize(
  ("name", "shape"), [("conv4_48", (48, 48, 3)), ("resnet_small", (28, 28, 1))]
)
def test_networks_of_photos_and_of_maps_of_one_place(name, shape, tmp_path):
  backbone = backbones.create_backbone(name, shape)
  if name == starts.BACKBONE:
    pretrained.load_pretrained(backbone, starts.PATH)
  export.export_backbone(backbone, tmp_path / "model")
  _export(tmp_path / "model", tmp_path)
  assert (tmp_path / "model.onnx").exists()


@pytest.mark.usefixtures("needs_onnx")
def test_other_files_are_refused(tmp_path):
  path = tmp_path / "model.onnx"
  path.write_bytes(b"nothing")
  with pytest.raises(errors.FieldError, match=r"a \.onnx file that binaries"):
    saved_models.load(str(path))


def test_without_the_packages_there_is_one_line(model, tmp_path, monkeypatch):
  # `import` takes None for a package that is not installed.
  monkeypatch.setitem(sys.modules, "tf2onnx", None)
  ended = programs.call(
    "export",
    *(f"--saved_model={model}", f"--output_dir={tmp_path}", "--formats=onnx"),
  )
  assert ended.status == 1
  assert ended.errors.count("\n") == 1
  assert "`make setup ONNX=1` installs them" in ended.errors
