"""Tests of learning-rate schedules and server optimizers by name."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
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


def test_constant_is_no_schedule():
  assert schedules.ScheduleConfig().build(4) is None


def test_schedule_mistakes_are_named():
  with pytest.raises(ValueError, match="client_lr_schedule must be one of"):
    schedules.ScheduleConfig(client_lr_schedule="step")
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


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"server_optimizer": "lamb"}, "server_optimizer must be one of"),
    ({"server_learning_rate": -1.0}, "server_learning_rate must be at"),
    ({"server_momentum": 1.0}, "server_momentum must be in"),
  ],
)
def test_server_optimizer_mistakes_are_named(options, message):
  with pytest.raises(errors.FieldError, match=message):
    server_optimizers.ServerOptimizerConfig(**options)
