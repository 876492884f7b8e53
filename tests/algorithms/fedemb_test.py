"""Tests of DP-FedEmb against a plain TensorFlow re-derivation."""

import dataclasses
import functools
import gc
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import builders
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_steps
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import blocks
from tff_fedemb.models import heads

_SHAPE = (4, 4, 1)
_DIM = 3
_SEED = 5


def _examples_of(client_id):
  """Ten examples from the seed in the id, labels in a wide range."""
  images, labels = builders.create_examples(client_id, _SHAPE, 10, 4)
  # Client 0 has no examples at all.
  return builders.create_dataset(images, labels * 1_000_003 - 17).take(
    tf.where(tf.equal(client_id, "0"), tf.constant(0, tf.int64), 10)
  )


def _build_process(config, aggregator="none", **mechanism_options):
  return builders.compose(
    # Batches that have nothing to do with those of training.
    lambda client_id: _examples_of(client_id).batch(3),
    builders.build_process(
      _SHAPE,
      aggregator=builders.create_aggregator(
        aggregator, clients_per_round=2, **mechanism_options
      ),
      config=config,
      seed=_SEED,
    ),
  )


def _run(runtime, state, rounds, scale=1.0):
  start = runtime.structured_state(state)
  start = start._replace(
    global_model_weights=tf.nest.map_structure(
      lambda weight: np.float32(scale) * weight, start.global_model_weights
    )
  )
  state = runtime.load_state(start)
  states, reports = [start], []
  for client_ids in rounds:
    state, report = runtime.next(state, client_ids)
    states.append(runtime.structured_state(state))
    reports.append(report)
  return states, reports


@pytest.fixture(name="run", scope="module")
def _create_run():
  """Runs rounds of the process of `_CONFIG`, each time from its beginning."""
  with runtimes.create_runtime("in_process", concurrent_clients=2) as runtime:
    state = runtime.initialize(_build_process(_CONFIG))
    yield functools.partial(_run, runtime, state)


def _reference_delta(weights, client_id, round_num, config, head):
  """Computes a client's delta with nothing but Keras and a tape."""
  examples = list(_examples_of(tf.constant(client_id)).as_numpy_iterator())
  images = np.stack([e["x"] for e in examples]).astype(np.float32)
  labels = np.array([e["y"] for e in examples])
  seed = local_steps.client_seed(
    _SEED, tf.constant(round_num), tf.constant(labels)
  )
  classes, local_labels = tf.unique(labels)
  num_classes = len(set(labels))
  kernel, bias = (tf.Variable(w) for w in weights)
  head_weights = [
    tf.Variable(w)
    for w in head.initialize(
      num_classes, _DIM, seed=seed, class_ids=tf.constant(classes)
    )
  ]

  def create_optimizer(rate):
    keras = tf.keras.optimizers.legacy
    if config.optimizer == "adam":
      return keras.Adam(rate)
    if config.optimizer == "sgdm":
      return keras.SGD(rate, config.momentum)
    return keras.SGD(rate)

  backbone_optimizer = create_optimizer(config.learning_rate)
  head_optimizer = create_optimizer(config.learning_rate * config.head_lr_scale)

  def order(epoch):
    return tf.random.experimental.stateless_shuffle(
      tf.range(10), tf.random.experimental.stateless_fold_in(seed, epoch)
    ).numpy()

  def step(rows, *, train_backbone, train_head):
    flat = tf.reshape(images[rows] / 255.0, [len(rows), -1])
    with tf.GradientTape() as tape:
      logits = head.logits(
        tuple(head_weights),
        flat @ kernel + bias,
        labels=tf.gather(local_labels, rows),
      )
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
          tf.gather(local_labels, rows), logits
        )
      )
    backbone_gradients, head_gradients = tape.gradient(
      loss, ([kernel, bias], head_weights)
    )
    if train_backbone:
      backbone_optimizer.apply_gradients(
        zip(backbone_gradients, [kernel, bias], strict=True)
      )
    if train_head and head.is_trained:
      head_optimizer.apply_gradients(
        zip(head_gradients, head_weights, strict=True)
      )

  size = config.batch_size
  steps_per_epoch = math.ceil(10 / size)
  if config.head_imprint_steps:
    # One epoch: the mean direction of each class's images.
    directions = tf.reshape(images / 255.0, [10, -1]) @ kernel + bias
    directions = tf.math.l2_normalize(directions, axis=1).numpy()
    of_class = [
      directions[local_labels == k].sum(0) for k in range(num_classes)
    ]
    head_weights[0].assign(tf.math.l2_normalize(of_class, axis=1))
  for i in range(config.head_warmup_steps):
    start = (i % steps_per_epoch) * size
    rows = order(-1 - i // steps_per_epoch)[start : start + size]
    step(rows, train_backbone=False, train_head=True)
  for epoch in range(config.epochs):
    for i in range(steps_per_epoch):
      rows = order(epoch)[i * size : (i + 1) * size]
      step(rows, train_backbone=True, train_head=not config.freeze_head)
  return [w - v.numpy() for w, v in zip(weights, (kernel, bias), strict=True)]


_CONFIG = local_training.LocalTraining(
  learning_rate=0.1,
  head_lr_scale=3.0,
  head_warmup_steps=4,
  epochs=2,
  batch_size=4,
  optimizer="sgdm",
)


def test_rounds_equal_a_plain_tensorflow_derivation(run):
  rounds = [["1", "2"], ["3"]]
  states, reports = run(rounds)
  weights = [np.array(w) for w in states[0].global_model_weights.trainable]
  velocity = [np.zeros_like(w) for w in weights]
  for round_num, client_ids in enumerate(rounds):
    deltas = [
      _reference_delta(weights, c, round_num, _CONFIG, heads.LinearHead())
      for c in client_ids
    ]
    # The expected number of clients is 2, also where one took part.
    means = [sum(parts) / 2.0 for parts in zip(*deltas, strict=True)]
    velocity = [0.9 * v + m for v, m in zip(velocity, means, strict=True)]
    weights = [w - 0.5 * v for w, v in zip(weights, velocity, strict=True)]
    for found, expected in zip(
      states[round_num + 1].global_model_weights.trainable, weights, strict=True
    ):
      np.testing.assert_allclose(found, expected, atol=1e-5)
  assert reports[0]["client_work"]["num_examples"] == 2 * 10 * 2
  assert reports[0]["client_work"]["num_clients"] == 2
  assert reports[0]["client_work"]["num_rejected_clients"] == 0
  # Nothing is told how many labels there are: they go up to 3,000,000, and a
  # head has as many rows as its client holds classes.
  labels = {int(e["y"]) for e in _examples_of(tf.constant("3"))}
  assert max(labels) > 1_000_000
  assert reports[1]["client_work"]["classes_per_client"] == len(labels)
  assert [w.shape for w in weights] == [(16, _DIM), (_DIM,)]


@pytest.mark.parametrize(
  ("head", "options"),
  [
    pytest.param(
      heads.LinearHead(), {"optimizer": "sgd"}, marks=pytest.mark.slow
    ),
    (heads.LinearHead(), {"optimizer": "adam"}),
    # Reconstruction: the head alone, and then the backbone alone.
    (heads.LinearHead(), {"freeze_head": True}),
    # Its codes, which all clients draw from the labels, stay as they are.
    (heads.ClassCodesHead(), {}),
    pytest.param(heads.ContrastHead(), {}, marks=pytest.mark.slow),
    # Three batches of at most four are all ten images.
    (
      heads.CosineHead(),
      {"optimizer": "sgd", "head_imprint_steps": 3, "head_warmup_steps": 0},
    ),
  ],
)
def test_a_client_equals_a_plain_tensorflow_derivation(head, options):
  config = dataclasses.replace(_CONFIG, **options)
  train = builders.build_client_update(
    _SHAPE, config=config, seed=_SEED, head=head
  )
  weights = builders.create_backbone(_SHAPE, _DIM).get_weights()
  for round_num, client_id in enumerate(["1", "3"]):
    dataset = _examples_of(tf.constant(client_id)).batch(3)
    found = train(weights, dataset, round_num)
    expected = _reference_delta(weights, client_id, round_num, config, head)
    assert max(np.abs(other).max() for other in expected) > 1e-4
    for delta, other in zip(found.delta, expected, strict=True):
      np.testing.assert_allclose(delta, other, atol=1e-5)


def _check_nothing_has_changed(states):
  before, *after = (list(s.global_model_weights.trainable) for s in states)
  for weights in after:
    np.testing.assert_equal(weights, before)


def test_empty_client_and_empty_round_change_nothing(run):
  states, reports = run([["0"], []])
  _check_nothing_has_changed(states)
  assert reports[0]["client_work"]["num_clients"] == 1
  assert reports[1]["client_work"]["num_clients"] == 0
  assert reports[1]["client_work"]["loss"] == 0.0


def test_non_finite_update_is_rejected_and_counted(run):
  # The model is so far out that a step from it overflows.
  states, reports = run([["1", "2", "0"]], scale=1e30)
  report = reports[0]["client_work"]
  assert report["num_rejected_clients"] == 2
  assert report["num_clients"] == 3
  assert report["loss"] == 0.0
  _check_nothing_has_changed(states)


@pytest.mark.parametrize(
  ("value", "accepted"),
  [(1e25, False), (np.inf, False), (np.nan, False), (1e15, True)],
)
def test_update_without_a_finite_norm_is_rejected(value, accepted):
  """1e25 is a finite float32, but the square that clipping needs is not."""
  count = tf.constant(1, tf.int64)
  delta, sums = learning_process.reject_non_finite(
    learning_process.ClientUpdate(
      (tf.constant([value, 1.0]), tf.constant([2.0])), count, count
    )
  )
  assert sums["num_rejected_clients"] == int(not accepted)
  if accepted:
    np.testing.assert_allclose(delta[0], [value, 1.0])
  else:
    np.testing.assert_array_equal(np.concatenate(delta), np.zeros(3))


def test_no_seed_reaches_the_noise():
  """Equal seeds everywhere, and two runs still differ by fresh noise."""
  runs = []
  for _ in range(2):
    tf.keras.utils.set_random_seed(1)
    # Traced anew, under the same global seed.
    process = _build_process(
      _CONFIG, aggregator="gaussian", clip_norm=1e-6, noise_multiplier=1e6
    )
    with runtimes.create_runtime("in_process", concurrent_clients=2) as runtime:
      states, _ = _run(runtime, runtime.initialize(process), [["1"], ["1"]])
    runs.append([s.global_model_weights.trainable[0] for s in states])
  first, second = runs
  np.testing.assert_array_equal(first[0], second[0])
  assert np.abs(first[1] - second[1]).min() > 0.0
  # Nor is the first round's noise that of the second.
  assert np.abs((first[1] - first[0]) - (first[2] - first[1])).min() > 0.0


@pytest.mark.slow
def test_a_process_that_is_gone_leaves_no_graph():
  """Not even with a layer of ours, an operation between layers, and noise."""

  def create_backbone():
    inputs = tf.keras.Input(_SHAPE)
    x = tf.reverse(inputs, axis=[-1])
    # No other test has a layer of this name.
    x = blocks.GroupNormalization(1, name="layer_that_is_gone")(x)
    x = tf.keras.layers.Dense(2)(tf.keras.layers.Flatten()(x))
    return tf.keras.Model(inputs, x)

  process = builders.build_process(
    _SHAPE,
    create_backbone_fn=create_backbone,
    aggregator=builders.create_aggregator(
      "gaussian", clients_per_round=2, clip_norm=1.0, noise_multiplier=1.0
    ),
  )
  del process
  gc.collect()
  graphs = [
    graph
    for graph in gc.get_objects()
    if isinstance(graph, tf.Graph)
    and any("layer_that_is_gone" in op.name for op in graph.get_operations())
  ]
  assert not graphs
