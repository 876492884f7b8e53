"""Trains a part of a backbone and freezes the rest.

Source: Sidahmed et al. 2021 ("Efficient and Private Federated Learning with
Partially Trainable Networks").

A frozen weight is not part of a client's update: it is neither clipped nor
noised and costs no privacy. That spares noise too: its norm grows with the
square root of the number of weights that are noised, while the norm that
clipping leaves does not. The reason why a frozen weight costs nothing is that
no user has a say in it. Frozen weights must come from chance or from public
data, never from the users' own.
"""

import re

import tensorflow as tf

from tff_fedemb import errors

TRAINABLE = ("all", "outer", "norm", "embedding")
_NORMALIZATION_LAYERS = (
  tf.keras.layers.BatchNormalization,
  tf.keras.layers.GroupNormalization,
  tf.keras.layers.LayerNormalization,
)
_EMBEDDING = "embedding"


def is_normalization(layer: tf.keras.layers.Layer) -> bool:
  """Whether a layer is one of normalisation."""
  return isinstance(layer, _NORMALIZATION_LAYERS)


def is_embedding(layer: tf.keras.layers.Layer) -> bool:
  """Whether a layer is a backbone's last one, which makes the embedding."""
  return layer.name == _EMBEDDING


def _choices(backbone: tf.keras.Model, middle: str | None) -> tuple[str, ...]:
  """What of a backbone can be trained."""
  has_norm = any(
    is_normalization(layer) and layer.weights for layer in backbone.layers
  )
  makes_sense = {"outer": middle is not None, "norm": has_norm}
  return tuple(name for name in TRAINABLE if makes_sense.get(name, True))


def freeze(
  backbone: tf.keras.Model, trainable: str, *, middle: str | None = None
) -> None:
  """Freezes all of a backbone but what is to be trained.

  What is frozen is in `backbone.non_trainable_variables` from then on. The
  order of `backbone.get_weights()` stays what it was.

  Args:
    backbone: A fully trainable Keras model, flat: its layers hold no models;
      the last layer is named "embedding". Changed in place.
    trainable: What to train. "all": everything. "outer": everything but the
      weights of the middle stages that are not normalisation. "norm":
      normalisation and embedding layers. "embedding": the embedding layer.
    middle: Regular expression that the names of the layers in the middle
      stages begin with; `None` for a backbone that has no middle.

  Raises:
    errors.FieldError: If the choice is unknown, or makes no sense for this
      backbone.
    ValueError: If the backbone's last layer is not its embedding.
  """
  if not is_embedding(backbone.layers[-1]):
    raise ValueError(
      f"backbone {backbone.name} must have a last layer named {_EMBEDDING!r},"
      f" found {backbone.layers[-1].name!r}."
    )
  choices = _choices(backbone, middle)
  if trainable not in choices:
    raise errors.FieldError(
      "trainable",
      f"be one of {', '.join(choices)} for backbone {backbone.name}",
      repr(trainable),
    )
  for layer in backbone.layers:
    layer.trainable = (
      trainable == "all"
      or is_embedding(layer)
      or (trainable != "embedding" and is_normalization(layer))
      or (trainable == "outer" and not re.match(middle, layer.name))
    )
