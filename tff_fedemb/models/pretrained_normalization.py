"""Turns the batch normalisation of a pretrained network into a backbone's.

Frozen normalisation takes its weights unchanged. Group normalisation looks at
one image at a time, so its scales and offsets are computed to stand in for the
mean and deviation of each channel over all data.
"""

import numpy as np
import tensorflow as tf

from tff_fedemb.models import blocks

OF_BATCHES = ("gamma", "beta", "moving_mean", "moving_variance")

_Weights = dict[str, np.ndarray]


def _take_normalization(
  weights: _Weights, layer: tf.keras.layers.Layer
) -> list[np.ndarray] | None:
  """Takes out the file's batch normalisation for a layer, if it has any.

  It looks for the names of `tf.keras.applications`. Removes what it finds from
  `weights` and returns it in the order of `OF_BATCHES`, each float64
  `[channels]`.
  """
  base = layer.name.removesuffix("_norm")
  for layer_in_file in (f"{base}_bn", f"{base}_BN", f"bn_{base}"):
    names = [f"{layer_in_file}/{part}" for part in OF_BATCHES]
    shapes = [weights[name].shape for name in names if name in weights]
    if shapes == [layer.gamma.shape] * len(OF_BATCHES):
      return [weights.pop(name).astype(np.float64) for name in names]
  return None


def convert_weights(weights: _Weights, backbone: tf.keras.Model) -> None:
  """Replaces a file's batch normalisation by weights of the backbone's layers.

  Frozen normalisation takes the weights unchanged. For group normalisation they
  are converted: batch normalisation computes `gamma (x - m) / s + beta` with
  mean m and deviation s of a channel over all data; group normalisation uses
  the mean M and deviation S of a group of channels in one image instead. If M
  and S have the values that the channels' means and variances give over all
  data, the scale `gamma S / s` and the offset `beta + gamma (M - m) / s` make
  both equal.

  Args:
    weights: Weights of the file by "layer/weight"; changed in place. Layers
      without a counterpart in the file are left alone.
    backbone: The flat model that they are for.
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
  """Scale and offset `[channels]` of group normalisation for those of batches.

  Arguments are `[channels]` each: the weights of the batch normalisation.
  """
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
