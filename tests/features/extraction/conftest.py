"""What features are extracted from and with."""

import os

import numpy as np
from PIL import Image
import pytest

from tests.features.extraction import extractions
from tff_fedemb.features import feature_files
from tff_fedemb.features.extraction import extracting
from tff_fedemb.features.extraction import settings


@pytest.fixture(scope="session")
def models(tmp_path_factory):
  directory = tmp_path_factory.mktemp("models")
  return {
    name: extractions.export(directory / name, shape)
    for name, shape in {
      "digits": (8, 8, 1),
      "emnist": (28, 28, 1),
      "small": (4, 3, 3),
      "square": (6, 6, 3),
    }.items()
  }


@pytest.fixture
def folder(tmp_path):
  """Three classes of 5, 2 and 1 images of one colour each."""
  for name, values in {"a": range(5), "b": (10, 11), "c": (20,)}.items():
    (tmp_path / "images" / name).mkdir(parents=True)
    for value in values:
      Image.new("RGB", (5, 5), (value, value, value)).save(
        tmp_path / "images" / name / f"{value}.png"
      )
  return tmp_path / "images"


@pytest.fixture(scope="session")
def tfds_dir(tmp_path_factory):
  """Twelve images of six classes, as TensorFlow Datasets prepares them."""
  directory = tmp_path_factory.mktemp("tfds")
  images = np.random.default_rng(0).integers(
    0, 256, (12, *extractions.IMAGE_SHAPE)
  )
  labels = np.arange(12) // 2
  extractions.write_tfds(directory, "cifar10", "3.0.2", "train", images, labels)
  return directory, images.reshape(12, -1), labels


@pytest.fixture
def extract(tmp_path):
  """Runs an extraction, and returns what is in its file."""

  def run(**options):
    options = {"output": tmp_path / "o.npz", "overwrite": True} | options
    if "saved_model" not in options:
      options = {"embedding": "pixels"} | options
    extracting.execute(settings.ExtractionConfig(**options))
    return feature_files.read_features(os.fspath(options["output"]))

  return run
