"""Correlated noise is the same on every runtime, round for round.

It is a function of a seed, so unlike independent noise it can be compared
exactly. The seed is given here; without, each run has its own.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry

_ROUNDS = 6
_CLIENTS = ("0.5", "2", "3")


def _build_process(name, **options):
  @tff.tensorflow.computation(np.str_)
  def create_update(client_id):
    size = tf.strings.to_number(client_id)
    return (size * tf.ones([3]), -size * tf.ones([2, 2]))

  aggregation = registry.create_mechanism(
      name,
      mechanism.AggregatorConfig(
          20.0,
          clip_norm=1.5,
          noise_multiplier=0.8,
          rounds=_ROUNDS,
          min_separation=3,
          noise_seed=11,
          **options,
      ),
  ).factory.create(create_update.type_signature.result)

  @tff.federated_computation(
      aggregation.initialize.type_signature.result,
      tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def next_round(state, client_ids):
    output = aggregation.next(
        state, tff.federated_map(create_update, client_ids)
    )
    return output.state, output.result

  return tff.templates.IterativeProcess(aggregation.initialize, next_round)


def _run(started, process):
  state = started.initialize(process)
  released = []
  for _ in range(_ROUNDS):
    state, result = started.next(state, _CLIENTS)
    released.append(np.concatenate([np.ravel(t) for t in result]))
  return np.array(released)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tree", {}),
        ("tree", {"restart_every": 4}),
        ("adaptive_tree", {"restart_every": 4, "restart_warmup": 2}),
        ("blt", {"num_buffers": 3}),
        ("banded", {}),
    ],
)
def test_rounds_match_tff(name, options, reference):
  process = _build_process(name, **options)
  with runtime.create_runtime("in_process") as started:
    found = _run(started, process)
  expected = _run(reference, process)
  assert np.ptp(found, axis=0).min() > 0.01
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
