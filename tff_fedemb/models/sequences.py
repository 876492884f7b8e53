"""Small backbones of examples that are no images: vectors and sequences.

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
  """Raises FieldError of a shape that has not just these axes."""
  if len(shape) != axes.count(",") + 1:
    raise errors.FieldError(
      "image_shape", f"be ({axes}) for backbone {name}", tuple(shape)
    )


def create_dense(
  shape: tuple[int, ...], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates two dense layers, for vectors.

  Args:
    shape: `(size,)`. Numbers should be about 1 in size: they are taken as they
      are.
    embedding_dim: See `backbones.create_backbone`.

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

  Each sequence is standardised by itself, so that a loud one is as a quiet one.

  Args:
    shape: `(time, channels)`; of any length, and the number of weights does not
      depend on it.
    embedding_dim: See `backbones.create_backbone`.

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
