"""Tests of schedules, server optimizers, and what all settings refuse."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.algorithms import local_training
from tff_fedemb.algorithms import server_optimizers


@pytest.mark.parametrize(
  ("name", "expected"),
  [("linear", [1.0, 0.75, 0.0, 0.0]), ("cosine", [1.0, 0.853553, 0.0, 0.0])],
)
def test_factor_falls_from_one_to_zero(name, expected):
  config = local_training.LocalTraining(schedule=name, rounds=4)
  factors = [
    config.learning_rate_factor(tf.constant(r)).numpy() for r in (0, 1, 4, 9)
  ]
  np.testing.assert_allclose(factors, expected, atol=1e-6)


def test_number_of_rounds():
  constant = local_training.LocalTraining()
  assert constant.learning_rate_factor(tf.constant(7)) == 1.0
  with pytest.raises(ValueError, match=r"rounds must be .* at least 1"):
    local_training.LocalTraining(schedule="linear", rounds=0)


@pytest.mark.parametrize("name", server_optimizers.SERVER_OPTIMIZERS)
def test_server_optimizer_goes_downhill(name):
  options = {"momentum": 0.0} if name == "sgd" else {}
  optimizer = server_optimizers.SERVER_OPTIMIZERS[name](
    learning_rate=0.1, **options
  ).build()
  state = optimizer.initialize(tf.TensorSpec([2], tf.float32))
  _, weights = optimizer.next(
    state, tf.constant([1.0, 1.0]), tf.constant([2.0, -2.0])
  )
  assert weights[0] < 1.0 < weights[1]
  if name == "sgd":
    np.testing.assert_allclose(weights, [0.8, 1.2])


_TRAINING = local_training.LocalTraining
_OPTIMIZER = server_optimizers.SgdMomentum


@pytest.mark.parametrize(
  ("config", "name", "value", "requirement"),
  [
    (_TRAINING, "learning_rate", -1.0, ""),
    (_TRAINING, "batch_size", 0, "an integer of at least 1, found 0"),
    (_TRAINING, "epochs", 0, "an integer of at least 1"),
    (_TRAINING, "optimizer", "lion", "one of"),
    (_TRAINING, "momentum", 1.0, "in"),
    (_OPTIMIZER, "learning_rate", -1.0, "at"),
    (_OPTIMIZER, "momentum", 1.0, "in"),
    (_TRAINING, "schedule", "step", "one of"),
  ],
)
def test_mistakes_are_named(config, name, value, requirement):
  with pytest.raises(errors.FieldError, match=f"{name} must be {requirement}"):
    config(**{name: value})
