"""Tests of learning-rate schedules and server optimizers by name."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.algorithms import schedules
from tff_fedemb.algorithms import server_optimizers


@pytest.mark.parametrize(
  ("name", "expected"),
  [("linear", [1.0, 0.75, 0.0, 0.0]), ("cosine", [1.0, 0.853553, 0.0, 0.0])],
)
def test_factor_falls_from_one_to_zero(name, expected):
  schedule = schedules.build_schedule(name, rounds=4)
  factors = [schedule(tf.constant(r)).numpy() for r in (0, 1, 4, 9)]
  np.testing.assert_allclose(factors, expected, atol=1e-6)


def test_constant_is_no_schedule():
  assert schedules.build_schedule("constant", rounds=4) is None


def test_schedule_mistakes_are_named():
  with pytest.raises(ValueError, match="client_lr_schedule must be one of"):
    schedules.build_schedule("step", rounds=4)
  with pytest.raises(ValueError, match="rounds must be at least 1"):
    schedules.build_schedule("linear", rounds=0)


@pytest.mark.parametrize("name", server_optimizers.SERVER_OPTIMIZERS)
def test_server_optimizer_goes_downhill(name):
  optimizer = server_optimizers.build_server_optimizer(
    name, learning_rate=0.1, momentum=0.0
  )
  state = optimizer.initialize(tf.TensorSpec([2], tf.float32))
  _, weights = optimizer.next(
    state, tf.constant([1.0, 1.0]), tf.constant([2.0, -2.0])
  )
  assert weights[0] < 1.0 < weights[1]
  if name == "sgd":
    np.testing.assert_allclose(weights, [0.8, 1.2])


@pytest.mark.parametrize(
  ("name", "options", "message"),
  [
    ("lamb", {"learning_rate": 1.0}, "server_optimizer must be one of"),
    ("sgd", {"learning_rate": -1.0}, "server_learning_rate must be at"),
    (
      "sgd",
      {"learning_rate": 1.0, "momentum": 1.0},
      "server_momentum must be in",
    ),
  ],
)
def test_server_optimizer_mistakes_are_named(name, options, message):
  with pytest.raises(ValueError, match=message):
    server_optimizers.build_server_optimizer(name, **options)
