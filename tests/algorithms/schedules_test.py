"""Tests of schedules, server optimizers, and what all settings refuse."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.algorithms import local_training
from tff_fedemb.algorithms import schedules
from tff_fedemb.algorithms import server_optimizers


@pytest.mark.parametrize(
  ("name", "expected"),
  [("linear", [1.0, 0.75, 0.0, 0.0]), ("cosine", [1.0, 0.853553, 0.0, 0.0])],
)
def test_factor_falls_from_one_to_zero(name, expected):
  schedule = schedules.ScheduleConfig(client_lr_schedule=name).build(4)
  factors = [schedule(tf.constant(r)).numpy() for r in (0, 1, 4, 9)]
  np.testing.assert_allclose(factors, expected, atol=1e-6)


def test_number_of_rounds():
  assert schedules.ScheduleConfig().build(4) is None
  with pytest.raises(ValueError, match=r"rounds must be .* at least 1"):
    schedules.ScheduleConfig(client_lr_schedule="linear").build(0)


@pytest.mark.parametrize("name", server_optimizers.SERVER_OPTIMIZERS)
def test_server_optimizer_goes_downhill(name):
  optimizer = server_optimizers.ServerOptimizerConfig(
    server_optimizer=name, server_learning_rate=0.1, server_momentum=0.0
  ).build()
  state = optimizer.initialize(tf.TensorSpec([2], tf.float32))
  _, weights = optimizer.next(
    state, tf.constant([1.0, 1.0]), tf.constant([2.0, -2.0])
  )
  assert weights[0] < 1.0 < weights[1]
  if name == "sgd":
    np.testing.assert_allclose(weights, [0.8, 1.2])


_TRAINING = local_training.LocalTrainingConfig
_OPTIMIZER = server_optimizers.ServerOptimizerConfig


@pytest.mark.parametrize(
  ("config", "name", "value", "requirement"),
  [
    (_TRAINING, "client_learning_rate", -1.0, ""),
    (_TRAINING, "batch_size", 0, "an integer of at least 1, found 0"),
    (_TRAINING, "local_epochs", 0, "an integer of at least 1"),
    (_TRAINING, "client_optimizer", "lion", "one of"),
    (_TRAINING, "client_momentum", 1.0, "in"),
    (_OPTIMIZER, "server_optimizer", "lamb", "one of"),
    (_OPTIMIZER, "server_learning_rate", -1.0, "at"),
    (_OPTIMIZER, "server_momentum", 1.0, "in"),
    (schedules.ScheduleConfig, "client_lr_schedule", "step", "one of"),
  ],
)
def test_mistakes_are_named(config, name, value, requirement):
  with pytest.raises(errors.FieldError, match=f"{name} must be {requirement}"):
    config(**{name: value})
