"""Small backbones of examples that are no images: vectors and sequences.

Convolutions over time as of Kim, "Convolutional Neural Networks for Sentence
Classification", EMNLP 2014, with the mean over time in place of the maximum.
"""

from __future__ import annotations

from etils import epy

from tff_fedemb import checks
from tff_fedemb import errors

with epy.lazy_imports():
  import tensorflow as tf

_DENSE = (128, 128)
_CONV1D = ((32, 5), (64, 5), (64, 3))


def _create(
  shape: tuple[int, ...],
  embedding_dim: int,
  *,
  axes: str,
  name: str,
  layers: list[tf.keras.layers.Layer],
) -> tf.keras.Model:
  """Creates a model of layers, for examples of so many axes."""
  checks.check_integer("embedding_dim", embedding_dim, minimum=1)
  if len(shape) != axes.count(",") + 1:
    raise errors.FieldError(
      "image_shape", f"be ({axes}) for backbone {name}", tuple(shape)
    )
  first = tf.keras.layers.InputLayer(input_shape=tuple(shape))
  last = tf.keras.layers.Dense(embedding_dim, name="embedding")
  return tf.keras.Sequential([first, *layers, last], name=name)


def create_dense(
  shape: tuple[int, ...], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates two dense layers, for vectors.

  Args:
    shape: `(size,)`. Numbers should be about 1 in size: they are taken as they
      are.
    embedding_dim: As of `backbones.create_backbone`.

  Raises:
    errors.FieldError: If an argument is out of its range.
  """
  layers = [
    tf.keras.layers.Dense(size, activation="relu", name=f"dense{number}")
    for number, size in enumerate(_DENSE, 1)
  ]
  return _create(shape, embedding_dim, axes="size", name="dense", layers=layers)


def create_conv1d(
  shape: tuple[int, ...], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates convolutions over time and their mean, for short sequences.

  Each sequence is standardised by itself, so that a loud one is as a quiet one.

  Args:
    shape: `(time, channels)`; of any length, and the number of weights does not
      depend on it.
    embedding_dim: As of `backbones.create_backbone`.

  Raises:
    errors.FieldError: If an argument is out of its range.
  """
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
  return _create(
    shape, embedding_dim, axes="time, channels", name="conv1d", layers=layers
  )
