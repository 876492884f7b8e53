"""Tests of the learning processes on clients' features."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators import noise_theory
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.aggregators import clip_only
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import noise
from tff_fedemb.features.federated import classifier as of_users
from tff_fedemb.features.federated import clients as federated_clients
from tff_fedemb.features.federated import processes as federated_processes
from tff_fedemb.features.federated import statistics as federated_statistics
from tff_fedemb.runtime import base as runtime_base

_DIM, _NUM_CLASSES, _CLIP_NORM, _SHARE = 4, 3, 1.5, 0.3
_USER_CLIP_NORM = 5.0
# The divisor of the sums; not the number of those who take part.
_EXPECTED_CLIENTS = 10.0
_CLIENTS = {"empty": 2, "few": 3, "huge": 2, "many": 30}


def _draw_clients() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Features, labels and users; only the sum of `many` is to be clipped."""
  generator = np.random.default_rng(5)
  users = np.repeat(list(_CLIENTS), list(_CLIENTS.values()))
  features = generator.normal(size=[len(users), _DIM])
  features[users == "huge"] *= 1e30
  # Close to the largest number, so that the norm is beyond.
  features[np.argmax(users == "huge")] = 3e38
  labels = np.arange(len(users)) % _NUM_CLASSES
  return features.astype(np.float32), labels, users


_FEATURES, _LABELS, _USERS = _draw_clients()


@pytest.fixture(name="sums", scope="module")
def _sums(tmp_path_factory) -> Iterator[Callable[[list[str]], Any]]:
  """From clients to their sum, `[d (d + 1) / 2 + K d]`, and metrics.

  The client `empty` has no example.
  """
  clients = federated_clients.ClientExamples(
    tmp_path_factory.mktemp("clients"), _FEATURES, _LABELS, _USERS
  )

  @tff.tensorflow.computation(np.str_)
  def create_dataset(client_id):
    count = tf.where(tf.equal(client_id, "empty"), 0, -1)
    return clients.create_dataset(client_id).take(tf.cast(count, tf.int64))

  process = federated_processes.build_statistics_process(
    federated_statistics.StatisticsConfig(
      _DIM,
      _NUM_CLASSES,
      _CLIP_NORM,
      example_weighting="sum",
      covariance_share=_SHARE,
    ),
    aggregator=clip_only.ClipOnlyConfig(
      clients_per_round=_EXPECTED_CLIENTS, clip_norm=_USER_CLIP_NORM
    )
    .create()
    .factory,
  )
  with runtime_lib.create_runtime("in_process") as started:
    state = started.initialize(
      tff.simulation.compose_dataset_computation_with_learning_process(
        create_dataset, process
      )
    )

    def add_up(client_ids):
      # Where it begins makes no difference.
      nonlocal state
      state, metrics = started.next(state, client_ids)
      weights = started.structured_state(state).global_model_weights.trainable
      flat = np.concatenate([np.ravel(tensor) for tensor in weights])
      return flat * _EXPECTED_CLIENTS, metrics

    yield add_up


def _clipped_sum(user: str) -> np.ndarray:
  """A client's stack, in NumPy."""
  own = user == _USERS
  if user == "empty":
    own[:] = False
  features = examples_lib.clip_rows(_FEATURES[own], _CLIP_NORM) / _CLIP_NORM
  features = features.astype(np.float64)
  class_sums = np.eye(_NUM_CLASSES)[_LABELS[own]].T @ features
  stack = np.concatenate(
    [
      np.sqrt(_SHARE)
      * federated_statistics.pack(tf.constant(features.T @ features)),
      np.sqrt(1 - _SHARE) * class_sums.ravel(),
    ]
  )
  return stack * min(1.0, _USER_CLIP_NORM / max(np.linalg.norm(stack), 1e-9))


def test_one_client_changes_the_sum_by_its_clipped_stack(sums):
  everybody = list(_CLIENTS)
  total, metrics = sums(everybody)
  counts = metrics["client_work"]
  assert counts["num_clients"] == 4
  assert counts["num_rejected_clients"] == 0
  assert counts["num_examples"] == 35
  np.testing.assert_allclose(
    total, sum(_clipped_sum(user) for user in everybody), atol=1e-5
  )
  norms = {}
  for user in everybody:
    rest, _ = sums([other for other in everybody if other != user])
    norms[user] = np.linalg.norm(total - rest)
    np.testing.assert_allclose(total - rest, _clipped_sum(user), atol=2e-5)
  assert max(norms.values()) <= _USER_CLIP_NORM * (1 + 1e-5)
  assert norms["many"] == pytest.approx(_USER_CLIP_NORM, rel=1e-5)
  assert norms["empty"] == 0
  assert 1 < norms["few"] < _USER_CLIP_NORM
  # However large its features, it has two examples.
  assert 1 < norms["huge"] <= 2 * (1 + 1e-5)


def test_nobody_and_unknown_clients(sums):
  total, _ = sums([])
  np.testing.assert_array_equal(total, np.zeros_like(total))
  with pytest.raises(runtime_base.ClientError, match="client_id must be one"):
    sums(["few", "fewer"])


def test_noise_of_the_release(tmp_path):
  """As the budget plans it, fresh for each number, tensor and round.

  False alarms: once in 10^6 runs, see `noise_theory.alarms`; of the numbers on
  the diagonal and beside it five standard errors of 2.3 % and 0.5 %.
  """
  dim, num_classes, num_rounds = 60, 31, 16
  length = federated_statistics.packed_size(dim)
  clients = federated_clients.ClientExamples(
    tmp_path,
    np.zeros([3, dim]),
    np.zeros([3], np.int64),
    np.array(["a", "b", "c"]),
  )
  name = of_users.STATISTICS
  budget = budget_lib.calibrate(
    [budget_lib.PlannedRelease(name, count=num_rounds)],
    epsilon=4.0,
    delta=1e-5,
  )
  config = federated_statistics.StatisticsConfig(
    dim, num_classes, clip_norm=2.0, covariance_share=_SHARE
  )
  matrices, released = [], []
  with runtime_lib.create_runtime("in_process") as started:
    rounds = of_users.Rounds(
      started,
      clients,
      noise.Releases(budget, None),
      budget,
      user_clip_norm=0.5,
    )
    state = rounds.initialize(
      federated_processes.build_statistics_process(
        config, aggregator=rounds.create_aggregator(name)
      )
    )
    for _ in range(num_rounds):
      state = rounds.next(name, state)
      tensors = rounds.weights(state)
      released.append([np.ravel(tensor)[:length] for tensor in tensors])
      matrices.append(config.restore(tensors, 3)[0])
    with pytest.raises(RuntimeError, match="must be made at most 16"):
      rounds.next(name, state)
  stddev = budget.noise_multipliers[name] * 0.5
  assert stddev > 1
  assert not noise_theory.alarms(
    np.array(released, np.float64) * 3 / stddev, np.eye(num_rounds)
  )
  # Of C^2 = 4, and the share of the release's budget.
  stddev *= 4 / np.sqrt(_SHARE)
  diagonals = np.array([np.diagonal(matrix) for matrix in matrices])
  assert diagonals.std() == pytest.approx(stddev, rel=0.115)
  above = np.array([m[np.triu_indices(dim, 1)] for m in matrices])
  assert above.std() == pytest.approx(stddev / np.sqrt(2), rel=0.025)


@pytest.mark.parametrize(
  ("name", "momentum"), [("momentum", 0.0), ("momentum", 0.7), ("adam", 0.8)]
)
def test_optimizers_make_the_steps_of_central_fits(name, momentum):
  options = {"learning_rate": 0.3, "momentum": momentum}
  found = federated_processes.build_optimizer(name, **options)
  expected = gradient_steps.Optimizer(name, **options)
  shape = [_NUM_CLASSES, _DIM]
  state = found.initialize((tf.TensorSpec(shape),))
  weights, expected_weights = (tf.zeros(shape),), np.zeros(shape)
  # Also gradients that Adam's epsilon is not small beside.
  scales = np.logspace(-9, 0, _DIM)
  for step in range(5):
    gradient = scales * np.random.default_rng(step).normal(size=shape)
    expected_weights = expected.step(expected_weights, gradient)
    gradients = (tf.constant(gradient, tf.float32),)
    state, weights = found.next(state, weights, gradients)
    np.testing.assert_allclose(weights[0], expected_weights, rtol=1e-5)
