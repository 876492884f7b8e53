"""Exports a backbone as a SavedModel that plain TensorFlow loads."""

import os
import pathlib
import shutil

import tensorflow as tf


class EmbeddingModel(tf.Module):
  """A backbone with unit-norm embeddings and one signature."""

  def __init__(self, backbone: tf.keras.Model):
    """Initialises the module.

    Args:
      backbone: A Keras model from images `[batch, height, width, channels]` in
        [0, 255] to embeddings `[batch, dim]`.
    """
    super().__init__()
    self._backbone = backbone
    self._spec = tf.TensorSpec(
      [None, *backbone.input_shape[1:]], tf.float32, name="images"
    )

  def build_signature(self) -> tf.types.experimental.ConcreteFunction:
    """The function from `images` to unit-norm `embeddings`."""

    @tf.function(input_signature=[self._spec])
    def embed(images):
      return {
        "embeddings": tf.math.l2_normalize(
          self._backbone(images, training=False), axis=1
        )
      }

    return embed.get_concrete_function()


def export_backbone(
  backbone: tf.keras.Model, path: str | os.PathLike[str]
) -> None:
  """Writes a SavedModel, whole or not at all, in place of an earlier one.

  Its default signature maps `images` float32 `[batch, height, width,
  channels]` in [0, 255] to unit-norm `embeddings` float32 `[batch, dim]`.

  Args:
    backbone: A Keras model from images to embeddings.
    path: The SavedModel's directory.
  """
  path = pathlib.Path(path)
  temporary = path.with_name(f".{path.name}.partial")
  shutil.rmtree(temporary, ignore_errors=True)
  model = EmbeddingModel(backbone)
  tf.saved_model.save(
    model,
    os.fspath(temporary),
    signatures={"serving_default": model.build_signature()},
  )
  shutil.rmtree(path, ignore_errors=True)
  os.replace(temporary, path)
