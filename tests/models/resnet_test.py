"""Tests of ResNet-50 against `tf.keras.applications`."""

import numpy as np
import pytest
import tensorflow as tf

from tests.models import reference
from tff_fedemb.models import backbones
from tff_fedemb.models import resnet

_SHAPE = (32, 32, 3)


@pytest.fixture(scope="module")
def backbone():
  return resnet.create_resnet50(_SHAPE)


@pytest.fixture(scope="module")
def keras_model():
  return tf.keras.applications.ResNet50(
    input_shape=(33, 48, 3), weights=None, include_top=False, pooling="avg"
  )


def test_parameter_counts_are_the_documented_ones(backbone, keras_model):
  counts = reference.count_by_kind(backbone)
  assert counts == {
    "convolution": 23_481_472,
    "normalization": 53_120,
    "embedding": 262_272,
  }
  assert backbone.count_params() == sum(counts.values()) == 23_796_864
  assert not backbone.non_trainable_variables
  keras_counts = reference.count_by_kind(keras_model)
  assert counts["convolution"] == keras_counts["convolution"]
  assert counts["normalization"] == keras_counts["normalization"]


def test_numbers_of_private_parameters_are_the_documented_ones(backbone):
  reference.check_freezing(
    "resnet50", backbone, (23_796_864, 15_492_736, 315_392, 262_272)
  )


def test_convolutions_are_those_of_keras(backbone, keras_model):
  assert reference.kernel_shapes(backbone) == reference.kernel_shapes(
    keras_model
  )
  assert len(reference.kernel_shapes(backbone)) == 53
  reference.copy_convolutions(keras_model, backbone)


def test_is_keras_with_another_normalization(keras_model, monkeypatch):
  reference.normalize_by_batch(monkeypatch)
  reference.assert_same_function(
    resnet.create_resnet50((33, 48, 3)),
    keras_model,
    tf.keras.applications.resnet.preprocess_input,
  )


@pytest.mark.parametrize(
  ("shape", "num_parameters"),
  # The first kernel is 7 x 7 to 16 channels.
  [((28, 28, 1), 574_464 - 2 * 7 * 7 * 16), ((61, 40, 3), 574_464)],
)
def test_small_embeds_images_one_by_one(shape, num_parameters):
  small = backbones.create_backbone("resnet_small", shape)
  assert small.count_params() == num_parameters
  assert not small.non_trainable_variables
  reference.check_embeds_one_by_one(small)
  if shape[2] == 1:
    # Less the mean of the mean colour.
    (grey,) = small.get_layer(index=1)(np.array([114.8], np.float32)).numpy()
    assert grey == pytest.approx(0.0, abs=0.01)
