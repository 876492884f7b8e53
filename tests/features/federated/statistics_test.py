"""Tests of what clients add up, and of the process that adds up clients'."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime as runtime_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import losses
from tff_fedemb.features import sgd
from tff_fedemb.features.federated import statistics as federated_statistics
from tff_fedemb.mechanisms import clip_only
from tff_fedemb.spec import array_task

_DIM, _NUM_CLASSES, _CLIP_NORM = 4, 3, 1.5
_SIZE = examples_lib.ProblemSize(1, _DIM, _NUM_CLASSES, _CLIP_NORM)
_SHARE = 0.3
_USER_CLIP_NORM = 5.0
# The divisor of the sums; not the number of those who take part.
_EXPECTED_CLIENTS = 10.0
_CLIENTS = {"empty": 2, "few": 3, "huge": 2, "many": 30}


def _draw(num_examples: int, scale: float = 1.0):
  generator = np.random.default_rng(num_examples)
  features = scale * generator.normal(size=[num_examples, _DIM])
  labels = generator.integers(0, _NUM_CLASSES, num_examples)
  return features.astype(np.float32), labels


def test_by_hand():
  """Two examples, the longer one clipped from 4 to 2, shares 0.36 and 0.64."""
  size = examples_lib.ProblemSize(2, 2, 2, 2.0)
  config = federated_statistics.StatisticsConfig(size, covariance_share=0.36)
  features = tf.constant([[4.0, 0.0], [1.0, 1.0]])
  labels = tf.constant([1, 0], tf.int64)
  moments, class_sums = config.send(features, labels)
  # In units of C = 2: (1, 0) and (0.5, 0.5).
  expected = [0.6 * 1.25, 0.6 * 0.25 * np.sqrt(2.0), 0.6 * 0.25]
  np.testing.assert_allclose(moments, expected, rtol=1e-6)
  np.testing.assert_allclose(class_sums, [[0.4, 0.4], [0.8, 0.0]], rtol=1e-6)
  assert config.shapes == (moments.shape, class_sums.shape)
  covariance, sums = config.restore([moments / 5, class_sums / 5], 5)
  np.testing.assert_allclose(covariance, [[5, 1], [1, 1]], rtol=1e-6)
  np.testing.assert_allclose(sums, [[1, 1], [2, 0]], rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_features_are_clipped_as_in_central_fits(scale):
  features, _ = _draw(9, scale)
  features[3] = 0.0
  config = federated_statistics.StatisticsConfig(_SIZE)
  expected = examples_lib.clip_rows(features, _CLIP_NORM)
  np.testing.assert_allclose(
    config.scale(tf.constant(features)), expected / _CLIP_NORM, rtol=1e-5
  )


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_an_example_of_full_norm_is_the_unit(share):
  config = federated_statistics.StatisticsConfig(_SIZE, covariance_share=share)
  sent = config.send(*map(tf.constant, _draw(1, 1e30)))
  assert float(tf.linalg.global_norm(sent)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("loss", losses.LOSSES)
def test_gradients_are_those_of_central_fits(loss):
  features, labels = _draw(40)
  weights = np.random.default_rng(0).normal(size=[_NUM_CLASSES, _DIM])
  weights = weights.astype(np.float32)
  method = sgd.Sgd(loss=loss, gradient_clip_norm=0.6, logit_bias=-1.5)
  config = federated_statistics.GradientConfig(_SIZE, method)
  sent = [tf.constant(weights)]
  (gradient,) = config.send(tf.constant(features), labels, sent)
  clipped = examples_lib.clip_rows(features, _CLIP_NORM)
  expected = losses.clipped_gradient(
    weights, clipped, labels, loss=loss, clip_norm=0.6, logit_bias=-1.5
  )
  np.testing.assert_allclose(gradient, expected / 0.6, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 7])
def test_packing_keeps_matrix_and_norm(dim):
  matrix = np.random.default_rng(dim).normal(size=[dim, dim])
  matrix += matrix.T
  # Numbers below the diagonal are not read.
  packed = federated_statistics.pack(tf.constant(np.triu(matrix)), dim)
  assert packed.shape == (federated_statistics.packed_size(dim),)
  np.testing.assert_allclose(np.linalg.norm(packed), np.linalg.norm(matrix))
  np.testing.assert_allclose(federated_statistics.unpack(packed, dim), matrix)


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
  """A function of users: their sum, `[d (d + 1) / 2 + K d]`, and metrics.

  The first of them, `empty`, has no example.
  """
  names, slots = np.unique(_USERS, return_inverse=True)
  order, starts = np.argsort(slots), np.cumsum([0, *np.bincount(slots)])
  path = array_task.write_rows(
    tmp_path_factory.mktemp("clients"), _FEATURES, _LABELS, order
  )

  @tff.tensorflow.computation(np.str_)
  def create_dataset(client_id):
    count = tf.where(tf.equal(client_id, "0"), 0, -1)
    examples = array_task.read_client(path, client_id, starts, (_DIM,))
    return examples.take(tf.cast(count, tf.int64))

  mechanism = clip_only.ClipOnlyConfig(clip_norm=_USER_CLIP_NORM)
  process = federated_statistics.build_process(
    federated_statistics.StatisticsConfig(_SIZE, covariance_share=_SHARE),
    aggregator=mechanism.create(_EXPECTED_CLIENTS).factory,
  )
  with runtime_lib.create_runtime("in_process") as started:
    state = started.initialize(
      tff.simulation.compose_dataset_computation_with_learning_process(
        create_dataset, process
      )
    )

    def add_up(users):
      # Where it begins makes no difference.
      nonlocal state
      client_ids = [str(np.searchsorted(names, user)) for user in users]
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
  moments = federated_statistics.pack(tf.constant(features.T @ features), _DIM)
  parts = [np.sqrt(_SHARE) * moments, np.sqrt(1 - _SHARE) * class_sums.ravel()]
  stack = np.concatenate(parts)
  return stack * min(1.0, _USER_CLIP_NORM / max(np.linalg.norm(stack), 1e-9))


def test_one_client_changes_the_sum_by_its_clipped_stack(sums):
  everybody = list(_CLIENTS)
  total, metrics = sums(everybody)
  counts = metrics["client_work"]
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
