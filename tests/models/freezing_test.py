"""Tests of which weights are trained and which are frozen."""

import numpy as np
import pytest
import tensorflow as tf

from tests.models import reference
from tff_fedemb.models import backbones
from tff_fedemb.models import freezing

_SHAPE = (32, 32, 3)


def _names(variables):
  return {variable.name for variable in variables}


_NUM_TRAINABLE = {
  "mobilenet_v2_small": (161_760, 146_112, 37_440, 32_896),
  "resnet_small": (574_464, 455_744, 70_496, 65_664),
}


@pytest.fixture(scope="module", params=sorted(_NUM_TRAINABLE))
def named_backbone(request):
  tf.keras.utils.set_random_seed(3)
  return request.param, backbones.create_backbone(request.param, _SHAPE)


def test_numbers_of_private_parameters_are_the_documented_ones(named_backbone):
  name, backbone = named_backbone
  reference.check_freezing(name, backbone, _NUM_TRAINABLE[name])


def test_only_the_embedding_of_lenet_can_be_trained_alone():
  backbone = backbones.create_backbone("lenet", (28, 28, 1))
  reference.check_freezing("lenet", backbone, (453_632, None, None, 401_536))


def test_a_step_changes_what_is_trainable_and_nothing_else(named_backbone):
  name, backbone = named_backbone
  images = tf.random.stateless_uniform([2, *_SHAPE], (1, 2), 0, 255)
  target = tf.random.stateless_normal([2, 128], (3, 4))

  def gradients():
    with tf.GradientTape() as tape:
      outputs = backbone(images, training=True)
      loss = tf.reduce_sum(tf.square(outputs - target))
    variables = backbone.trainable_variables
    return dict(
      zip(
        (variable.name for variable in variables),
        tape.gradient(loss, variables),
        strict=True,
      )
    )

  of_all = gradients()
  weights = backbone.get_weights()
  for trainable in ("outer", "norm", "embedding"):
    freezing.freeze(
      backbone, trainable, middle=backbones.BACKBONES[name].middle
    )
    # The order of the weights is the same, whatever is frozen.
    for found, expected in zip(backbone.get_weights(), weights, strict=True):
      np.testing.assert_array_equal(found, expected)
    frozen = _names(backbone.non_trainable_variables)
    before = {v.name: v.numpy() for v in backbone.variables}
    of_part = gradients()
    assert of_part.keys() == of_all.keys() - frozen
    for variable in backbone.trainable_variables:
      gradient = of_part[variable.name]
      np.testing.assert_allclose(
        gradient, of_all[variable.name], rtol=1e-4, atol=1e-4
      )
      variable.assign_sub(0.1 * gradient)
    for variable in backbone.variables:
      is_same = np.array_equal(variable, before[variable.name])
      assert is_same == (variable.name in frozen), variable.name
    backbone.set_weights(weights)


@pytest.mark.parametrize("trainable", ["outer", "norm", "middle"])
def test_senseless_choices_are_named(trainable):
  with pytest.raises(
    ValueError,
    match=(
      "^trainable must be one of all, embedding for backbone"
      f" lenet, found '{trainable}'\\.$"
    ),
  ):
    backbones.create_backbone("lenet", _SHAPE, trainable=trainable)


def test_unknown_choices_are_named(named_backbone):
  name, backbone = named_backbone
  choices = "all, outer, norm, embedding"
  with pytest.raises(ValueError, match=f"one of {choices} for backbone {name}"):
    freezing.freeze(backbone, "", middle=backbones.BACKBONES[name].middle)
