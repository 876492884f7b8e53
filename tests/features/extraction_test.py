"""Tests of features of models of `tf.keras.applications`."""

import functools

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from tests.features import extractions
from tff_fedemb.serving import saved_models


@pytest.fixture(name="options")
def _options(tmp_path):
  """Three images of two classes, a grey value and a corner of a colour."""
  for name, value in {"a/0": 3, "a/1": 99, "b/0": 200}.items():
    path = tmp_path / "images" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (32, 32), (value, value, value))
    image.paste((250, 20, 90), (0, 0, 20, 10))
    image.save(path)
  return {
    "application": "MobileNetV2",
    "image_folder": tmp_path / "images",
    "image_size": 32,
  }


@pytest.mark.slow
def test_random_weights_and_those_of_a_file(options, tmp_path):
  """Features are those of Keras' own model and preparation."""
  extract = functools.partial(extractions.extract, tmp_path, **options)
  keras = tf.keras.applications
  model = keras.MobileNetV2(weights=None, classes=5, input_shape=(32, 32, 3))
  model.save_weights(tmp_path / "weights.h5")
  paths = sorted(options["image_folder"].glob("*/*.png"))
  pixels = np.stack([np.asarray(Image.open(path)) for path in paths])
  prepared = keras.mobilenet_v2.preprocess_input(pixels.astype(np.float32))
  for layer, name in (
    (None, "global_average_pooling2d"),
    ("block_1_project", "block_1_project"),
  ):
    found, _ = extract(weights=tmp_path / "weights.h5", layer=layer)
    expected = tf.keras.Model(
      model.input,
      next(each for each in model.layers if each.name.startswith(name)).output,
    )(prepared).numpy()
    np.testing.assert_allclose(
      found.features,
      expected.reshape(3, -1, expected.shape[-1]).mean(axis=1),
      rtol=1e-3,
      atol=1e-4,
    )
  # Every process has the same random weights.
  first, _ = extract(weights="none", seed=7)
  features = np.array(first.features)
  saved_models.load_application.cache_clear()
  second, _ = extract(weights="none", seed=7)
  np.testing.assert_array_equal(features, second.features)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"application": "MobileNet2"}, "of 71, such as MobileNetV2"),
    ({"image_size": 8}, "--application must be made with image_size 8 and wei"),
    ({"weights": "w.h5"}, "--weights must be a SavedModel's directory"),
    ({"layer": "block_1_projct"}, "such as block_1_project"),
  ],
)
def test_mistakes(options, tmp_path, changes, message):
  extractions.check_refused(
    tmp_path, message, **{"weights": "none"} | options | changes
  )
