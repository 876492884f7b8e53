"""Workers, what befalls them, and noise change no bit: all of them together."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.algorithms import builders
from tests.mechanisms import released
from tests.runtime import ray_trouble
from tff_fedemb import runtime
from tff_fedemb.algorithms import local_training
from tff_fedemb.mechanisms import secret_noise

ray = pytest.importorskip("ray")

_ROUNDS = [
  [str(client) for client in range(first, last)]
  for first, last in ((0, 9), (3, 14), (1, 8))
]
_AGGREGATORS = ("gaussian", "tree", "blt", "banded")
_WORKERS = (1, 2, 3, 5)
_SHAPE = (4, 4, 1)
# Tensors.
_NUM_WEIGHTS = 2

local_ray = ray_trouble.local_ray


def _create_dataset(client_id):
  examples = builders.create_examples(client_id, _SHAPE, 12, 3)
  return builders.create_dataset(*examples).batch(16)


def _build_process(aggregator: str) -> tff.templates.IterativeProcess:
  # Independent noise has no seed that could be given; see below.
  options = {} if aggregator == "gaussian" else {"noise_seed": 3}
  created = released.create_mechanism(
    aggregator,
    clients_per_round=8,
    clip_norm=0.5,
    noise_multiplier=1.0,
    rounds=len(_ROUNDS),
    min_separation=2,
    **options,
  )
  return builders.compose(
    _create_dataset,
    builders.build_process(
      _SHAPE,
      config=local_training.LocalTraining(batch_size=16),
      aggregator=created.factory,
    ),
  )


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", _AGGREGATORS)
def test_no_bit_depends_on_workers(aggregator, monkeypatch):
  monkeypatch.setattr(
    secret_noise, "draw_words", lambda shape: tf.ones(shape, tf.int64)
  )
  process = _build_process(aggregator)
  expected = ray_trouble.states_of_chunks(process, _ROUNDS)
  put, objects = ray.put, []
  monkeypatch.setattr(ray, "put", lambda v: objects.append(v) or put(v))
  for index, workers in enumerate(_WORKERS):
    # Half of the mechanisms for each number of workers, and the other way.
    has_deaths = (index + _AGGREGATORS.index(aggregator)) % 2 == 0
    objects.clear()
    with (
      runtime.create_runtime("ray", ray_workers=workers) as started,
      monkeypatch.context() as patch,
    ):
      killer = ray_trouble.Killer(patch) if has_deaths else None
      found = ray_trouble.run(started, process, _ROUNDS)
    assert killer is None or len(killer.victims) == len(_ROUNDS)
    np.testing.assert_equal(found, expected)
    # The graphs, and the model once a round, whatever becomes of it.
    assert len(objects) == 1 + len(_ROUNDS)
  with runtime.create_runtime(concurrent_clients=1) as started:
    whole = ray_trouble.run(started, process, _ROUNDS)
  for found, leaves in zip(whole, expected, strict=True):
    for weights, expected_weights in zip(
      found[:_NUM_WEIGHTS], leaves, strict=False
    ):
      np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
