"""Turns the batch normalisation of a pretrained network into a backbone's.

Frozen normalisation takes it as it is. Group normalisation looks at an image
alone, so scales and offsets have to do what a channel's mean and deviation over
all data did.
"""

import numpy as np
import tensorflow as tf

from tff_fedemb.models import blocks

OF_BATCHES = ("gamma", "beta", "moving_mean", "moving_variance")

_Weights = dict[str, np.ndarray]


def _take_normalization(
  weights: _Weights, layer: tf.keras.layers.Layer
) -> list[np.ndarray] | None:
  """Takes out the file's batch normalisation for a layer, if it has any."""
  base = layer.name.removesuffix("_norm")
  for layer_in_file in (f"{base}_bn", f"{base}_BN", f"bn_{base}"):
    names = [f"{layer_in_file}/{part}" for part in OF_BATCHES]
    shapes = [weights[name].shape for name in names if name in weights]
    if shapes == [layer.gamma.shape] * len(OF_BATCHES):
      return [weights.pop(name).astype(np.float64) for name in names]
  return None


def convert_weights(weights: _Weights, backbone: tf.keras.Model) -> None:
  """Puts weights of normalisation in the place of a file's that do the same.

  Frozen normalisation takes them as they are. Otherwise batch normalisation
  makes `gamma (x - m) / s + beta` of a channel by its mean m and deviation s
  over all data, group normalisation the same by those of a group of channels, M
  and S, in an image. If those are what the means and variances of the channels
  give over all data, the scale `gamma S / s` and the offset `beta + gamma (M -
  m) / s` make both the same.

  Args:
    weights: Weights of the file by name; is changed.
    backbone: The backbone that they are for.
  """
  normalizations = (blocks.FrozenNormalization, blocks.GroupNormalization)
  for layer in backbone.layers:
    if not isinstance(layer, normalizations):
      continue
    found = _take_normalization(weights, layer)
    if found is None:
      continue
    if isinstance(layer, blocks.FrozenNormalization):
      values = dict(zip(OF_BATCHES, found, strict=True))
    else:
      values = _to_groups(layer, *found)
    for name, value in values.items():
      weights[f"{layer.name}/{name}"] = value


def _to_groups(
  layer: blocks.GroupNormalization,
  gamma: np.ndarray,
  beta: np.ndarray,
  mean: np.ndarray,
  variance: np.ndarray,
) -> _Weights:
  """Scale and offset of group normalisation for those of batches."""
  means = mean.reshape(layer.groups, -1)
  variances = variance.reshape(layer.groups, -1) + np.square(means)
  per_group = means.shape[1]
  of_group = np.repeat(means.mean(axis=1), per_group)
  squares = np.repeat(variances.mean(axis=1), per_group)
  slope = gamma / np.sqrt(variance + layer.epsilon)
  deviation = np.sqrt(squares - np.square(of_group) + layer.epsilon)
  return {
    "gamma": slope * deviation,
    "beta": beta + slope * (of_group - mean),
  }
