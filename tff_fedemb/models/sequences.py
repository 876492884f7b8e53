"""Small backbones for examples that are not images: vectors and sequences.

Convolutions over time as in Kim, "Convolutional Neural Networks for Sentence
Classification", EMNLP 2014, with the mean over time in place of the maximum.
"""

from __future__ import annotations

from etils import epy

from tff_fedemb import errors

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks

_DENSE = (128, 128)
_CONV1D = ((32, 5), (64, 5), (64, 3))


def _check_shape(shape: tuple[int, ...], axes: str, name: str) -> None:
  """Checks the number of axes of a shape.

  Raises:
    errors.FieldError: If the shape does not have exactly these axes.
  """
  if len(shape) != axes.count(",") + 1:
    raise errors.FieldError(
      "image_shape", f"be ({axes}) for backbone {name}", tuple(shape)
    )


def create_dense(
  shape: tuple[int, ...], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates two dense layers, for vectors.

  Args:
    shape: `(size,)`. Components should be about 1 in size: they are not
      standardised.
    embedding_dim: Size of an embedding.

  Returns:
    A Keras model from vectors `[batch, size]` to embeddings
    `[batch, embedding_dim]`, not normalised.

  Raises:
    errors.FieldError: If the shape has other axes.
  """
  _check_shape(shape, "size", "dense")
  layers = [
    tf.keras.layers.Dense(size, activation="relu", name=f"dense{number}")
    for number, size in enumerate(_DENSE, 1)
  ]
  return blocks.chain(shape, layers, embedding_dim, name="dense")


def create_conv1d(
  shape: tuple[int, ...], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates convolutions over time and their mean, for short sequences.

  Each sequence is standardised by itself, so that loudness does not matter.

  Args:
    shape: `(time, channels)`, any length; the number of weights does not
      depend on it.
    embedding_dim: Size of an embedding.

  Returns:
    A Keras model from sequences `[batch, time, channels]` to embeddings
    `[batch, embedding_dim]`, not normalised.

  Raises:
    errors.FieldError: If the shape has other axes.
  """
  _check_shape(shape, "time, channels", "conv1d")
  keras = tf.keras.layers
  layers = [keras.LayerNormalization(axis=[1, 2], center=False, scale=False)]
  for number, (channels, size) in enumerate(_CONV1D, 1):
    name = f"conv{number}"
    layers += [
      keras.Conv1D(
        channels, size, padding="same", activation="relu", name=name
      ),
      keras.MaxPool1D(2, padding="same"),
    ]
  layers.append(keras.GlobalAveragePooling1D())
  return blocks.chain(shape, layers, embedding_dim, name="conv1d")
