"""The bare loop does what the measured process does."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import cases
from benchmarks import training_rounds
from tff_fedemb import runtime as runtimes
from tff_fedemb.models import heads

_CLIENT_ID = "5"
_NUM_CLASSES = 36
_BATCH_SIZE = 2 * _NUM_CLASSES


class _HeadOfBareLoop(heads.LinearHead):
  """A linear head that starts where that of the bare loop does."""

  def initialize(self, num_classes, embedding_dim, *, seed, class_ids=None):
    del seed, class_ids
    number = tf.strings.to_hash_bucket_fast(_CLIENT_ID, tf.int32.max)
    shape = [num_classes, embedding_dim]
    rows = tf.random.stateless_normal(shape, [number, 0], stddev=0.01)
    return rows, tf.zeros([num_classes])


def _create_examples(client_id, case, task=None):
  """Every class twice, so that both count the classes alike."""
  del client_id, task  # Unused.
  images = tf.random.stateless_uniform(
    [_BATCH_SIZE, *case.image_shape], [1, 2], 0, 256, tf.int32
  )
  labels = tf.range(_BATCH_SIZE, dtype=tf.int64) % _NUM_CLASSES
  assert case.batch_size == _BATCH_SIZE
  return tf.cast(images, tf.uint8), labels


@pytest.mark.slow
@pytest.mark.parametrize(
  "clip_norm", [10.0, pytest.param(1e-3, marks=pytest.mark.slow)]
)
def test_same_round(monkeypatch, clip_norm):
  monkeypatch.setattr(training_rounds, "create_examples", _create_examples)
  monkeypatch.setattr(training_rounds, "NOISE_MULTIPLIER", 0.0)
  monkeypatch.setattr(training_rounds, "CLIP_NORM", clip_norm)
  monkeypatch.setattr(heads, "LinearHead", _HeadOfBareLoop)
  # Under some initial weights a unit is so near to zero that it is above zero
  # in one of the two only.
  tf.keras.utils.set_random_seed(1)
  # One step: the two shuffle differently.
  case = cases.Case(num_clients=1, steps=1, batch_size=_BATCH_SIZE)
  client_ids = [_CLIENT_ID]
  process = training_rounds.build_process(case)
  bare = training_rounds.BareLoop(case, num_threads=1)
  before = [weight.numpy() for weight in bare.weights]
  with runtimes.create_runtime() as started:
    state = started.structured_state(started.initialize(process))
    weights = tff.learning.models.ModelWeights(tuple(before), ())
    state = started.load_state(state._replace(global_model_weights=weights))
    for _ in range(2):
      state, _ = started.next(state, client_ids)
      bare.run_round(client_ids)
    expected = started.structured_state(state).global_model_weights.trainable
  moved = 0.0
  for start, found, end in zip(before, bare.weights, expected, strict=True):
    scale = np.abs(end - start).max()
    np.testing.assert_allclose(
      found.numpy() - start, end - start, rtol=1e-3, atol=1e-3 * scale
    )
    moved = max(moved, scale)
  assert moved > 0.0
