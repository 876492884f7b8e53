"""Tests of DP-FedAvg; `contrastive_test` has training on pooled data."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.algorithms import builders
from tff_fedemb import errors
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads

_SHAPE = (2, 2, 1)
_DIM = 3
_NUM_CLASSES = 5


_IMAGES = np.random.default_rng(0).integers(0, 2, (8, *_SHAPE), np.uint8)
_LABELS = np.array([0, 1, 1, 3, 3, 3, 4, 0], np.int64)


def _run(client_ids, head=None):
  process = builders.build_process(
    _SHAPE,
    algorithm=fedavg.FedAvg,
    head=head,
    create_backbone_fn=functools.partial(
      builders.create_backbone, _SHAPE, _DIM, scale=1.0, use_bias=False
    ),
    num_classes=_NUM_CLASSES,
    config=local_training.LocalTraining(
      learning_rate=0.1, head_lr_scale=2.0, batch_size=8
    ),
    seed=4,
    aggregator=builders.create_aggregator("none", clients_per_round=4),
    server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
  )
  # All clients hold the same eight examples.
  process = builders.compose(
    lambda client_id: builders.create_dataset(_IMAGES, _LABELS).batch(8),
    process,
  )
  return builders.run_round(process, client_ids)


def _one_gradient_step(weights):
  """One full-batch step on kernel, rows and bias, in NumPy."""
  kernel, rows, bias = (np.array(w, np.float64) for w in weights)
  inputs = _IMAGES.reshape(8, -1).astype(np.float64)
  embeddings = inputs @ kernel
  logits = embeddings @ rows.T + bias
  probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
  probabilities /= probabilities.sum(axis=1, keepdims=True)
  error = (probabilities - np.eye(_NUM_CLASSES)[_LABELS]) / 8
  rate, head_rate = 0.1, 0.2
  return (
    kernel - rate * inputs.T @ (error @ rows),
    rows - head_rate * error.T @ embeddings,
    bias - head_rate * error.sum(axis=0),
  )


def test_fedavg_sends_backbone_and_global_head():
  before, after, report = _run(["a", "b"])
  assert [np.shape(w) for w in before] == [
    (4, _DIM),
    (_NUM_CLASSES, _DIM),
    (_NUM_CLASSES,),
  ]
  # Two equal clients of an expected four: half a step.
  for start, end, full in zip(
    before, after, _one_gradient_step(before), strict=True
  ):
    np.testing.assert_allclose(end, (start + full) / 2, atol=1e-5)
  assert report["client_work"]["classes_per_client"] == 4


def test_millions_of_classes_are_counted_without_drawing_rows(monkeypatch):
  create = fedavg.FedAvg.create_global_head

  def create_in_graph(*arguments, **options):
    assert not tf.executing_eagerly()
    return create(*arguments, **options)

  monkeypatch.setattr(fedavg.FedAvg, "create_global_head", create_in_graph)
  for head, num_biases in ((heads.CosineHead(), 0), (heads.LinearHead(), 1)):
    found = fedavg.FedAvg(head=head).count_head_parameters(10_000_000, 128)
    assert found == 10_000_000 * (128 + num_biases)


@pytest.mark.slow
def test_fixed_head_is_neither_broadcast_nor_trained():
  before, after, report = _run([*"abcd"], heads.ClassCodesHead(scale=2.0))
  assert [np.shape(w) for w in before] == [(4, _DIM)]
  rows = heads.draw_class_codes(tf.range(_NUM_CLASSES, dtype=tf.int64), _DIM)
  kernel = tf.Variable(before[0])
  with tf.GradientTape() as tape:
    embeddings = tf.reshape(_IMAGES, [8, -1]).numpy().astype("f4") @ kernel
    logits = 2.0 * tf.math.l2_normalize(embeddings, 1) @ tf.transpose(rows)
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(_LABELS, logits)
    )
  expected = before[0] - 0.1 * tape.gradient(loss, kernel)
  np.testing.assert_allclose(after[0], expected, atol=1e-5)
  np.testing.assert_allclose(report["client_work"]["loss"], loss, rtol=1e-5)


@pytest.mark.parametrize(
  "options", [{"head_imprint_steps": 1}, {"freeze_head": True}]
)
def test_a_global_head_is_neither_imprinted_over_nor_frozen(options):
  config = local_training.LocalTraining(**options)
  with pytest.raises(errors.FieldError, match="|".join(options)):
    fedavg.FedAvg(local=config)
