"""Tests of noise that follows a recurrence."""

import collections

import numpy as np
import pytest
from scipy import signal
import tensorflow as tf
import tensorflow_federated as tff

from tests.mechanisms import noise_theory
from tests.mechanisms import released
from tff_fedemb.mechanisms import banded
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt
from tff_fedemb.mechanisms import blt_strategy

_ROUNDS = 800
_BLT = blt_strategy.BltStrategy(decays=(0.9, 0.4), weights=(0.25, 0.35))
# With a sign that is not the others', and an inverse that dies out.
_BANDED = banded_strategy.BandedToeplitzStrategy((1.0, 0.5, 0.375, -0.1))


@pytest.mark.parametrize(
  ("next_noise", "strategy", "column"),
  [
    (
      *(blt.BltConfig.next_noise, _BLT),
      noise_theory.blt_matrix(_BLT.decays, _BLT.weights, _ROUNDS)[:, 0],
    ),
    (banded.BandedConfig.next_noise, _BANDED, _BANDED.coefficients),
    (
      *(
        banded.BandedConfig.next_noise,
        banded_strategy.BandedToeplitzStrategy((1.0,)),
      ),
      (1.0,),
    ),
  ],
  ids=["blt", "banded", "one_band"],
)
@pytest.mark.parametrize("size", [1, 6])
def test_recurrence_is_the_inverse_matrix(next_noise, strategy, column, size):
  """Remembered in float32 over a long run, against a filter in float64."""
  fresh = np.random.default_rng(0).normal(size=[_ROUNDS, size])
  num_buffers = strategy.model_copies(rounds=1)
  buffers, rows = tf.zeros([num_buffers, size], tf.float64), []
  for row in fresh:
    noise, buffers = next_noise(strategy, buffers, tf.constant(row))
    assert buffers.shape[0] == num_buffers
    buffers = tf.cast(tf.cast(buffers, tf.float32), tf.float64)
    rows.append(noise.numpy())
  exact = signal.lfilter([1.0], column, fresh, axis=0)
  np.testing.assert_allclose(rows, exact, atol=1e-4)


@pytest.mark.parametrize("name", ["tree", "blt"])
def test_structures_of_the_update_are_kept(name):
  # In an order that is not that of their names, and with a scalar.
  value_type = tff.to_type(
    collections.OrderedDict(
      z=(np.float32, [2]),
      a=collections.OrderedDict(y=np.float32, b=(np.float32, [3, 1])),
    )
  )
  created = released.create_mechanism(
    name, rounds=3, min_separation=2, clients_per_round=2, clip_norm=100.0
  )
  process = created.factory.create(value_type)
  update = collections.OrderedDict(
    z=np.array([1.0, 2.0], "f4"),
    a=collections.OrderedDict(
      y=np.float32(3.0), b=np.array([[4.0], [5.0], [6.0]], "f4")
    ),
  )
  state = process.initialize()
  for _ in range(3):
    output = process.next(state, [update, update])
    state = output.state
    tf.nest.assert_same_structure(output.result, update)
    tf.nest.map_structure(np.testing.assert_allclose, output.result, update)
