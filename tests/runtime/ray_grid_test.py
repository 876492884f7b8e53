"""Workers, what befalls them, and noise change no bit: all of them together."""

import os
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.algorithms import builders
from tests.runtime import ray_trouble
from tff_fedemb import runtime
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.aggregators import secret_noise
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import population
from tff_fedemb.participation import registry as participations

ray = pytest.importorskip("ray")

_ROUNDS, _MIN_SEPARATION = 5, 2
_AGGREGATORS = ("gaussian", "tree", "blt", "banded")
_WORKERS = (1, 2, 3, 5)
_FAULTS = {
  "none": None,
  "death": psutil.Process.kill,
  "straggler": ray_trouble.stop_for_a_moment,
}
# Has every noise meet every fault with every number of workers, which takes
# three times as long; else each meets each of the others.
_WHOLE_GRID = "TFF_FEDEMB_WHOLE_GRID"
_NUM_USERS, _USERS_PER_CLIENT = 60, 2
_CLIENTS_PER_ROUND = 8
_CLIP_NORM = 0.5
_SHAPE, _IMAGES_OF_USER = (4, 4, 1), 6
# Tensors.
_NUM_WEIGHTS = 2

local_ray = ray_trouble.local_ray


def _create_dataset(client_id):
  """The images of all users of a virtual client."""
  users = tf.strings.split(client_id, population.SEPARATOR)
  images = tf.map_fn(
    lambda user: builders.draw_images([user, 0], [_IMAGES_OF_USER, *_SHAPE]),
    tf.strings.to_number(users, tf.int64),
    fn_output_signature=tf.TensorSpec([_IMAGES_OF_USER, *_SHAPE], tf.uint8),
  )
  images = tf.reshape(images, [-1, *_SHAPE])
  labels = tf.range(tf.size(images[:, 0, 0, 0], tf.int64)) % 3
  return builders.create_dataset(images, labels).batch(16)


def _build_process(aggregator: str) -> tff.templates.IterativeProcess:
  # Independent noise has no seed that could be given; see below.
  options = {} if aggregator == "gaussian" else {"noise_seed": 3}
  created = registry.AGGREGATORS[aggregator](
    clients_per_round=_CLIENTS_PER_ROUND,
    clip_norm=_CLIP_NORM,
    noise_multiplier=1.0,
    **options,
  ).create(mechanism.Schedule(_ROUNDS, min_separation=_MIN_SEPARATION))
  return builders.compose(
    _create_dataset,
    builders.build_process(
      _SHAPE,
      config=local_training.LocalTraining(batch_size=16),
      aggregator=created.factory,
    ),
  )


def _draw_rounds(aggregator: str) -> list[list[str]]:
  """Virtual clients of each round, of which there are more and fewer."""
  participation, options = "poisson", {}
  if aggregator == "banded":
    # Amplified.
    participation, options = "cyclic_poisson", {"period": _MIN_SEPARATION}
  drawn = participations.PARTICIPATIONS[participation](
    _NUM_USERS,
    _CLIENTS_PER_ROUND * _USERS_PER_CLIENT,
    users_per_client=_USERS_PER_CLIENT,
    **options,
  )
  users = population.Population(_NUM_USERS)
  rounds = [
    users.client_ids(drawn.sample(round_num, key=4))
    for round_num in range(_ROUNDS)
  ]
  assert len({*map(len, rounds)}) > 1
  assert any(population.SEPARATOR in client for client in rounds[0])
  return rounds


def _select_faults(aggregator: str) -> dict[int, list[Any]]:
  """Faults by the number of workers."""
  first = _AGGREGATORS.index(aggregator)
  step = 1 if os.environ.get(_WHOLE_GRID) else len(_FAULTS)
  return {
    workers: [*_FAULTS.values()][(first + index) % step :: step]
    for index, workers in enumerate(_WORKERS)
  }


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", _AGGREGATORS)
def test_no_bit_depends_on_workers(aggregator, monkeypatch):
  monkeypatch.setattr(
    secret_noise, "draw_words", lambda shape: tf.ones(shape, tf.int64)
  )
  process = _build_process(aggregator)
  rounds = _draw_rounds(aggregator)
  expected = ray_trouble.states_of_chunks(process, rounds)
  put, objects = ray.put, []
  monkeypatch.setattr(ray, "put", lambda v: objects.append(v) or put(v))
  for workers, faults in _select_faults(aggregator).items():
    with runtime.create_runtime("ray", ray_workers=workers) as started:
      first = started.initialize(process)
      objects.clear()
      for fault in faults:
        with monkeypatch.context() as patch:
          trouble = fault and ray_trouble.Trouble(patch, fault)
          found = _run(started, first, rounds)
        assert trouble is None or len(trouble.victims) == _ROUNDS
        for leaves, expected_leaves in zip(found, expected, strict=True):
          tree.map_structure(
            np.testing.assert_array_equal, list(leaves), list(expected_leaves)
          )
      # The model once a round, whatever becomes of it.
      assert len(objects) == len(faults) * _ROUNDS
  with runtime.create_runtime(concurrent_clients=1) as started:
    whole = _run(started, started.initialize(process), rounds)
  for leaves, expected_leaves in zip(whole, expected, strict=True):
    for weights, expected_weights in zip(
      leaves[:_NUM_WEIGHTS], expected_leaves, strict=False
    ):
      np.testing.assert_allclose(weights, expected_weights, atol=1e-5)


def _run(started, state, rounds):
  states = [state.leaves]
  for client_ids in rounds:
    state, _ = started.next(state, client_ids)
    states.append(state.leaves)
  return states
