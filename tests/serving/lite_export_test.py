"""Tests of the files for phones, and of what is told of them."""

import json
import os

import numpy as np
from PIL import Image
import pytest

from tasks import registry
from tests.program import small_models
from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.serving import lite_export
from tff_fedemb.serving import saved_models

_SHAPE = small_models.SHAPE
_NUM_CLASSES, _IMAGES_OF_CLASS = 10, 4


@pytest.fixture(name="model", scope="module")
def _model(tmp_path_factory):
  """A SavedModel that knows its thresholds, and what they are."""
  return small_models.export_lenet(
    tmp_path_factory.mktemp("model"), privacy={"epsilon": 1.5, "delta": 1e-3}
  )


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
  """Classes of images that are alike."""
  directory = tmp_path_factory.mktemp("images")
  generator = np.random.default_rng(0)
  for number in range(_NUM_CLASSES):
    base = generator.uniform(60, 190, _SHAPE[:2])
    (directory / str(number)).mkdir()
    for image in range(_IMAGES_OF_CLASS):
      pixels = base + generator.normal(0, 30, _SHAPE[:2])
      Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(
        directory / str(number) / f"{image}.png"
      )
  return os.fspath(directory)


def _export(model, output, **options):
  options = {"saved_model": model, "output_dir": os.fspath(output)} | options
  lite_export.execute(lite_export.ExportConfig(**options))


def test_recall_is_that_of_the_file_on_the_same_images(
  model, folder, tmp_path, capsys
):
  _export(model, tmp_path, image_folder=folder, formats=("float16", "int8"))
  names = [f"model_{name}.{end}" for name in ("float16", "int8")
           for end in ("json", "tflite")]  # fmt: skip
  assert sorted(os.listdir(tmp_path)) == names
  labels = np.repeat(np.arange(_NUM_CLASSES), _IMAGES_OF_CLASS)
  images = np.stack(
    [
      np.asarray(Image.open(f"{folder}/{label}/{i % _IMAGES_OF_CLASS}.png"))
      for i, label in enumerate(labels)
    ]
  )[..., np.newaxis]
  recalls = {}
  for name in ("saved_model", "float16", "int8"):
    path = tmp_path / f"model_{name}.tflite"
    loaded = saved_models.load(model if name == "saved_model" else str(path))
    assert loaded.image_shape == _SHAPE
    result = verification.evaluate_pairs(
      loaded.embed(images), labels, false_accept_rates=[0.01]
    )
    recalls[name] = result.recall_at_far[0.01]
    if name != "saved_model":
      known = loaded.card.threshold(0.01)
      assert known["threshold"] == result.threshold_at_far[0.01]
      assert known["recall"] == recalls[name]
      assert loaded.card.privacy == {"epsilon": 1.5, "delta": 1e-3}
      assert "is not known" in loaded.card.verification["privacy"]
  assert 0 < recalls["saved_model"] < 1
  found = json.loads((tmp_path / "model_int8.json").read_text())["conversion"]
  # A model names the folder without its path on this machine.
  assert found["recall"]["source"] == f"images in {os.path.basename(folder)}"
  assert found["recall"]["at_far"]["0.01"] == {
    "recall": recalls["int8"],
    "recall_of_saved_model": recalls["saved_model"],
    "difference": recalls["int8"] - recalls["saved_model"],
  }
  assert found["size_bytes"] == os.path.getsize(tmp_path / "model_int8.tflite")
  assert found["calibration"].startswith("200 images made up")
  assert found["milliseconds_per_image_on_one_core"] > 0
  # The goal for half the size: within 0.005.
  assert abs(recalls["float16"] - recalls["saved_model"]) <= 0.005
  said = capsys.readouterr().out
  assert f"recall {recalls['float16']:.4f} at FAR 0.01 (" in said
  assert "calibrated on 200 images made up" in said


def test_without_images_it_says_so_and_thresholds_stay(model, tmp_path, capsys):
  (tmp_path / "public").mkdir()
  for number in range(3):
    picture = Image.effect_noise((30, 40), 80)
    picture.save(tmp_path / "public" / f"{number}.jpg")
  _export(
    model,
    tmp_path / "out",
    formats=("int8",),
    calibration_folder=os.fspath(tmp_path / "public"),
  )
  card = saved_models.load(str(tmp_path / "out" / "model_int8.tflite")).card
  assert card.threshold(0.01)["threshold"] == 0.5
  assert card.verification["source"] == (
    "test images, embedded by the SavedModel"
  )
  assert card.conversion["recall"] is None
  assert card.conversion["calibration"] == (
    "3 images in public, taken to be public"
  )
  assert "was not measured" in capsys.readouterr().out


def test_a_damaged_file_is_one_line(model, tmp_path):
  _export(model, tmp_path, formats=("float32",))
  path = tmp_path / "model_float32.tflite"
  content = path.read_bytes()
  for damaged in (
    # The interpreter ends its process on such a file: its first table is two
    # gigabytes away.
    b"\xff\xff\xff\x7f" + content[4:],
    # A number of the model is another: the interpreter would not notice.
    content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
  ):
    path.write_bytes(damaged)
    with pytest.raises(errors.FieldError, match="digest is not that in its"):
      saved_models.load(os.fspath(path))
  path.with_suffix(".json").unlink()
  with pytest.raises(errors.FieldError, match=r"\.json file beside it, is mis"):
    saved_models.load(os.fspath(path))


def test_mistakes_are_found_before_the_work(model, folder, tmp_path):
  (tmp_path / "model_int8.json").write_text("precious")
  with pytest.raises(errors.FieldError, match="output_dir must be a new file"):
    _export(model, tmp_path)
  assert (tmp_path / "model_int8.json").read_text() == "precious"
  for options, message in (
    (
      {"image_folder": folder, "task": registry.Emnist()},
      "not both, found both",
    ),
    ({"formats": ("int4",)}, "formats must be one of"),
    (
      {"image_folder": folder, "calibration_folder": f"{folder}/3"},
      "calibration_folder must be of public images",
    ),
    ({"saved_model": "m.tflite"}, "saved_model must be the directory of a Sav"),
  ):
    with pytest.raises(errors.FieldError, match=message):
      _export(model, tmp_path / "new", **options)
  file = tmp_path / "no.tflite"
  file.write_bytes(b"no model")
  with pytest.raises(errors.FieldError, match=r"SavedModel or a \.tflite file"):
    saved_models.load(str(file))
  assert not (tmp_path / "new").exists()
