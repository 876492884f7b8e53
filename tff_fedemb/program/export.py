"""Exports a backbone as a SavedModel that plain TensorFlow loads."""

import os
import pathlib
import shutil

import tensorflow as tf

from tff_fedemb.program import model_card
from tff_fedemb.program import storage


class _EmbeddingModel(tf.Module):
  """A backbone with unit-norm embeddings."""

  def __init__(self, backbone: tf.keras.Model):
    super().__init__()
    self._backbone = backbone

  @tf.function
  def embed(self, images):
    embeddings = self._backbone(images, training=False)
    return {"embeddings": tf.math.l2_normalize(embeddings, axis=1)}


def export_backbone(
  backbone: tf.keras.Model,
  path: str | os.PathLike[str],
  card: model_card.ModelCard | None = None,
) -> None:
  """Writes a SavedModel, whole or not at all, in place of an earlier one.

  Its default signature maps `images` float32 `[batch, height, width,
  channels]` in [0, 255] to unit-norm `embeddings` float32 `[batch, dim]`.

  Args:
    backbone: A Keras model from images to embeddings.
    path: The SavedModel's directory.
    card: Card that goes along with it, as `assets.extra/model_card.json`.

  Raises:
    errors.StorageError: If it cannot be written.
  """
  path = pathlib.Path(path)
  temporary = path.with_name(f".{path.name}.partial")
  shutil.rmtree(temporary, ignore_errors=True)
  model = _EmbeddingModel(backbone)
  images = tf.TensorSpec(
    [None, *backbone.input_shape[1:]], tf.float32, name="images"
  )
  signature = model.embed.get_concrete_function(images)
  with storage.writing(path.parent):
    tf.saved_model.save(
      model, os.fspath(temporary), signatures={"serving_default": signature}
    )
    if card is not None:
      model_card.write(card, temporary / model_card.PATH)
  shutil.rmtree(path, ignore_errors=True)
  os.replace(temporary, path)
