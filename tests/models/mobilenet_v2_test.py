"""Tests of MobileNetV2 against `tf.keras.applications`."""

import numpy as np
import pytest
import tensorflow as tf

from tests.models import reference
from tff_fedemb.models import backbones
from tff_fedemb.models import mobilenet_v2

_SHAPE = (32, 32, 3)


@pytest.fixture(scope="module")
def backbone():
  return mobilenet_v2.create_mobilenet_v2(_SHAPE)


@pytest.fixture(scope="module")
def keras_model():
  return tf.keras.applications.MobileNetV2(
    _SHAPE, weights=None, include_top=False
  )


def test_parameter_counts_are_the_documented_ones(backbone, keras_model):
  counts = reference.count_by_kind(backbone)
  assert counts == {
    "convolution": 2_189_760,
    "normalization": 34_112,
    "embedding": 163_968,
  }
  assert backbone.count_params() == sum(counts.values()) == 2_387_840
  assert not backbone.non_trainable_variables
  keras_counts = reference.count_by_kind(keras_model)
  assert counts["convolution"] == keras_counts["convolution"]
  assert counts["normalization"] == keras_counts["normalization"]


def test_numbers_of_private_parameters_are_the_documented_ones(backbone):
  reference.check_freezing(
    "mobilenet_v2", backbone, (2_387_840, 1_876_016, 198_080, 163_968)
  )


def test_convolutions_are_those_of_keras(backbone, keras_model):
  assert reference.kernel_shapes(backbone) == reference.kernel_shapes(
    keras_model
  )
  assert len(reference.kernel_shapes(backbone)) == 52
  reference.copy_convolutions(keras_model, backbone)


def test_is_keras_with_another_normalization(monkeypatch):
  # Maps of odd and of even sides are padded in different ways.
  shape = (45, 64, 3)
  theirs = tf.keras.applications.MobileNetV2(
    shape, weights=None, include_top=False, pooling="avg", alpha=0.35
  )
  reference.normalize_by_batch(monkeypatch)
  ours = mobilenet_v2.create_mobilenet_v2(shape, width_multiplier=0.35)
  reference.assert_same_function(
    ours, theirs, tf.keras.applications.mobilenet_v2.preprocess_input
  )


@pytest.mark.parametrize(
  ("shape", "num_parameters"),
  # The first kernel is 3 x 3 to 16 channels.
  [((28, 28, 1), 161_760 - 2 * 3 * 3 * 16), ((61, 40, 3), 161_760)],
)
def test_small_embeds_images_one_by_one(shape, num_parameters):
  small = backbones.create_backbone("mobilenet_v2_small", shape)
  assert small.count_params() == num_parameters
  assert not small.non_trainable_variables
  reference.check_embeds_one_by_one(small)


@pytest.mark.parametrize(
  ("num_channels", "width_multiplier", "expected"),
  [
    (32, 1.0, 32),
    (32, 0.35, 16),
    (16, 0.35, 8),
    (24, 0.35, 8),
    (96, 0.35, 32),
    (160, 0.35, 56),
    # 16 would be 11 % too few.
    (18, 1.0, 24),
    (24, 1.4, 32),
  ],
)
def test_channels_are_multiples_of_eight(
  num_channels, width_multiplier, expected
):
  scaled = mobilenet_v2._scale_channels(num_channels, width_multiplier)
  assert scaled == expected


@pytest.mark.parametrize("width_multiplier", [0.0, -1.0, 2.1, float("nan")])
def test_impossible_widths_are_named(width_multiplier):
  with pytest.raises(
    ValueError, match=f"width_multiplier must be .* {width_multiplier}"
  ):
    mobilenet_v2.create_mobilenet_v2(_SHAPE, width_multiplier=width_multiplier)


def test_pixels_are_scaled_to_plus_minus_one(backbone):
  scaled = backbone.layers[1](np.array([[0.0, 127.5, 255.0]], np.float32))
  np.testing.assert_allclose(scaled, [[-1.0, 0.0, 1.0]], atol=1e-6)
