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
_NAMES = ("size",), ("time", "channels")


def _start(
  shape: tuple[int, ...], embedding_dim: int, *, rank: int, name: str
) -> tf.keras.Sequential:
  """Starts a model of examples of so many axes.

  Raises:
    errors.FieldError: If the shape has others, or an argument is out of its
      range.
  """
  checks.check_integer("embedding_dim", embedding_dim, minimum=1)
  if len(shape) != rank:
    raise errors.FieldError(
      "image_shape",
      f"be ({', '.join(_NAMES[rank - 1])}) for backbone {name}",
      tuple(shape),
    )
  model = tf.keras.Sequential(name=name)
  model.add(tf.keras.layers.InputLayer(input_shape=tuple(shape)))
  return model


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
  model = _start(shape, embedding_dim, rank=1, name="dense")
  for number, units in enumerate(_DENSE, 1):
    model.add(
      tf.keras.layers.Dense(units, activation="relu", name=f"dense{number}")
    )
  model.add(tf.keras.layers.Dense(embedding_dim, name="embedding"))
  return model


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
  layers = tf.keras.layers
  model = _start(shape, embedding_dim, rank=2, name="conv1d")
  model.add(layers.LayerNormalization(axis=[1, 2], center=False, scale=False))
  for number, (channels, size) in enumerate(_CONV1D, 1):
    model.add(
      layers.Conv1D(
        channels,
        size,
        padding="same",
        activation="relu",
        name=f"conv{number}",
      )
    )
    model.add(layers.MaxPool1D(2, padding="same"))
  model.add(layers.GlobalAveragePooling1D())
  model.add(layers.Dense(embedding_dim, name="embedding"))
  return model
