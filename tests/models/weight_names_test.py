"""Tests of the names of a model's weights."""

import tensorflow as tf

from tff_fedemb.models import weight_names

_layers = tf.keras.layers


def test_numbers_begin_anew_and_given_names_stay():
  for _ in range(2):
    model = tf.keras.Sequential(
      [
        _layers.InputLayer(input_shape=(4, 1)),
        _layers.LayerNormalization(center=False),
        _layers.Conv1D(2, 1, use_bias=False),
        _layers.Conv1D(2, 1, use_bias=False),
        _layers.Bidirectional(_layers.SimpleRNN(2, use_bias=False)),
        _layers.Dense(2, use_bias=False, name="block_3_expand"),
        _layers.Dense(2, name="embedding"),
      ]
    )
    found = weight_names.portable_weights(model)
    assert [name for name, _ in found] == [
      "layer_normalization/gamma",
      "conv1d/kernel",
      "conv1d_1/kernel",
      "bidirectional/kernel",
      "bidirectional/recurrent_kernel",
      "bidirectional/kernel_1",
      "bidirectional/recurrent_kernel_1",
      "block_3_expand/kernel",
      "embedding/kernel",
      "embedding/bias",
    ]
    for (_, weight), other in zip(found, model.weights, strict=True):
      assert weight is other
