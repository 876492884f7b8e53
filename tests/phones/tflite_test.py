"""Tests of the conversion to TensorFlow Lite."""

import os
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.models import backbones
from tff_fedemb.phones import tflite
from tff_fedemb.records import export

_SHAPE = (12, 10, 1)


def _export(directory, name, shape, embedding_dim=7):
  tf.keras.utils.set_random_seed(0)
  backbone = backbones.create_backbone(name, shape, embedding_dim=embedding_dim)
  export.export_backbone(backbone, directory / "model")
  return backbone, directory / "model"


def _check(backbone, path, number_format, min_similarity):
  """Compares what comes out with the backbone itself; returns the file."""
  shape = backbone.input_shape[1:]
  images = tflite.make_up_images(shape, 8)
  content = tflite.convert(path, number_format)
  with warnings.catch_warnings():
    # TensorFlow warns of its own plans, which no user could act on.
    warnings.simplefilter("error", UserWarning)
    embedder = tflite.Embedder(content)
  assert embedder.image_shape == shape
  found = embedder.embed(images)
  expected = backbone(images.astype(np.float32)).numpy()
  expected /= np.linalg.norm(expected, axis=1, keepdims=True)
  assert found.dtype == np.float32
  # In int8 pictures of little contrast come out less alike.
  assert np.mean(np.sum(found * expected, axis=1)) > min_similarity
  return content


def test_every_format_gives_the_embeddings_of_the_backbone(tmp_path):
  backbone, path = _export(tmp_path, "lenet", _SHAPE, 64)
  sizes = [
    len(_check(backbone, path, number_format, least))
    for number_format, least in (
      ("float32", 0.99999),
      ("float16", 0.9999),
      ("int8", 0.9),
    )
  ]
  # Four, two and one byte a parameter, and some kilobytes of structure.
  for size, width in zip(sizes, (4, 2, 1), strict=True):
    parameters = width * backbone.count_params()
    assert parameters < size < parameters + 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "side"),
  [
    *((name, 32) for name in backbones.BACKBONES if name.endswith("_small")),
    # Makes its images smaller.
    ("conv4_48", 50),
  ],
)
def test_every_kind_of_backbone_is_converted(tmp_path, name, side):
  backbone, path = _export(tmp_path, name, (side, side, 3))
  _check(backbone, path, "float16", 0.9999)


def test_what_cannot_be_converted_is_one_line(tmp_path):
  class Model(tf.Module):
    @tf.function(
      input_signature=[
        tf.TensorSpec([None, *_SHAPE], tf.float32, name="images")
      ]
    )
    def embed(self, images):
      # TensorFlow Lite has no such operation of its own.
      squares = tf.reshape(images[:, :10], [-1, 1, 10, 10])
      return {"embeddings": tf.linalg.det(squares)}

  model = Model()
  path = os.fspath(tmp_path / "model")
  tf.saved_model.save(model, path, {"serving_default": model.embed})
  with pytest.raises(errors.FieldError) as error:
    tflite.convert(path, "float16")
  assert str(error.value).startswith("formats must be what the model can be")
  assert "MatrixDeterminant" in str(error.value)
  assert "\n" not in str(error.value)
  with pytest.raises(errors.FieldError, match="formats must be one of"):
    tflite.convert(path, "int4")


class TestMadeUpImages:
  @pytest.mark.parametrize("shape", [(28, 28, 1), (4, 9, 3)])
  def test_they_fill_the_range(self, shape):
    images = tflite.make_up_images(shape, 40)
    assert images.shape == (40, *shape)
    assert images.dtype == np.uint8
    assert images.min() < 60
    assert images.max() > 200
    np.testing.assert_array_equal(images, tflite.make_up_images(shape, 40))
