"""Holds the round that is written out equal to the product's."""

import numpy as np
import pytest
import tensorflow as tf

from examples import one_round
from tests.algorithms import builders
import tff_fedemb as fe
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_steps
from tff_fedemb.mechanisms import normal_numbers
from tff_fedemb.mechanisms import secret_noise

_USERS, _SEED = 8, 5


@pytest.fixture(name="task", scope="module")
def _task():
  """Eight users with five images each, of four classes."""
  rng = np.random.default_rng(2)
  number = 5 * _USERS
  images = rng.integers(0, 256, (number, 8, 8, 1), np.uint8)
  labels = rng.integers(0, 4, number)
  users = rng.permutation(np.repeat(np.arange(_USERS), 5))
  return fe.ArrayTask(images, labels, users, test=(images, labels))


def _create_backbone():
  return builders.create_backbone((8, 8, 1), one_round.DIM)


def _run_product(task, client_ids, noise_multiplier):
  """Weights before and after each round, from the product's own parts."""
  local = fe.LocalTraining(
    learning_rate=one_round.RATE,
    head_lr_scale=one_round.HEAD_RATE / one_round.RATE,
    batch_size=one_round.BATCH,
  )
  process = fe.FedEmb(
    head=fe.CosineHead(scale=one_round.HEAD_SCALE), local=local
  ).build(
    _create_backbone,
    example_type=learning_process.build_example_type((8, 8, 1)),
    aggregator=builders.create_aggregator(
      "gaussian",
      clients_per_round=one_round.CLIENTS,
      clip_norm=one_round.CLIP_NORM,
      noise_multiplier=noise_multiplier,
    ),
    server_optimizer=fe.SgdMomentum(
      learning_rate=one_round.SERVER_RATE, momentum=one_round.MOMENTUM
    ).build(),
    seed=_SEED,
  )
  process = builders.compose(task.create_client_dataset, process)
  with runtimes.create_runtime() as runtime:
    state = runtime.initialize(process)
    weights = [runtime.structured_state(state).global_model_weights.trainable]
    for ids in client_ids:
      state, _ = runtime.next(state, ids)
      found = runtime.structured_state(state).global_model_weights.trainable
      weights.append(found)
  return [list(map(np.array, found)) for found in weights]


@pytest.mark.parametrize(
  "noise_multiplier", [pytest.param(0.0, marks=pytest.mark.slow), 0.5]
)
def test_two_rounds_equal_the_product(task, noise_multiplier, monkeypatch):
  one_sigma = noise_multiplier * one_round.CLIP_NORM
  rng = np.random.default_rng(4)
  # Multiples of 2^-12, which lie on the grid that the product rounds noise to.
  noise = [
    np.round(2**12 * rng.normal(0, one_sigma, weight.shape)) / 2**12
    for weight in _create_backbone().weights
  ]
  by_size = {part.size: part.flatten() for part in noise}

  def draw_normal(seeds, chunk, size, stddev=1.0):
    # The product draws in steps of its grid, and adds for what it rounds.
    steps = stddev / (one_sigma * (1.0 + secret_noise.ROUNDING))
    return tf.constant(by_size[size]) * steps

  monkeypatch.setattr(normal_numbers, "draw_normal", draw_normal)
  created = task.create()
  rounds = [one_round.draw_groups(_USERS, rng) for _ in range(2)]
  expected = _run_product(
    created,
    [created.train_users.client_ids(groups) for groups in rounds],
    noise_multiplier,
  )
  weights = expected[0]
  velocity = [np.zeros_like(part) for part in weights]
  given = [part.astype(np.float32) for part in noise]
  for number, groups in enumerate(rounds):
    clients = []
    for group in groups:
      images, labels, _ = one_round.merge_users(
        task.images.reshape(-1, one_round.PIXELS),
        task.labels,
        task.users,
        group,
        None,
      )
      seed = local_steps.client_seed(_SEED, tf.constant(number), labels)
      # The order of the first epoch has a seed that is made from the head's.
      order = tf.random.experimental.stateless_fold_in(seed, 0)
      clients.append([images, labels, np.stack([seed, order])])
    before = weights
    weights, velocity = one_round.run_round(weights, velocity, given, clients)
    for old, found, other in zip(
      before, weights, expected[number + 1], strict=True
    ):
      assert np.abs(found - old).max() > 1e-3
      np.testing.assert_allclose(found, other, rtol=0, atol=1e-6)


def test_the_round_is_short_and_has_nothing_of_the_project():
  with open(one_round.__file__, encoding="utf-8") as file:
    lines = file.read().splitlines()
  assert len(lines) <= 80
  assert not [line for line in lines if "import" in line and "fedemb" in line]
