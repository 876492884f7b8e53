"""Tests of the heads against hand-computed logits and NumPy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import heads

_SEED = (1, 2)


@pytest.mark.parametrize("name", sorted(heads.HEADS))
def test_weights_depend_on_the_seed_and_classes_only(name):
  head = heads.HEADS[name]()
  first = head.initialize(3, 4, seed=_SEED)
  again = head.initialize(tf.constant(3), 4, seed=_SEED)
  other = head.initialize(3, 4, seed=(1, 3))
  for a, b in zip(first, again, strict=True):
    np.testing.assert_array_equal(a, b)
  assert not np.allclose(first[0], other[0])
  assert first[0].shape == (3, 4)


@pytest.mark.parametrize("name", sorted(heads.HEADS))
def test_number_of_classes_may_be_a_tensor(name):
  head = heads.HEADS[name]()

  @tf.function
  def score(labels, embeddings):
    num_classes = tf.size(tf.unique(labels).y)
    weights = head.initialize(num_classes, 8, seed=_SEED)
    return head.logits(weights, embeddings)

  logits = score(tf.constant([7, 7, 1_000_000]), tf.ones([3, 8]))
  assert logits.shape == (3, 2)


def test_linear_is_a_dense_layer():
  logits = heads.LinearHead().logits(
    (tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([10.0, 20.0])),
    tf.constant([[1.0, 1.0], [0.0, 2.0]]),
  )
  np.testing.assert_allclose(logits, [[13.0, 27.0], [14.0, 28.0]])


@pytest.mark.parametrize("learned", [False, True])
def test_cosine_ignores_lengths(learned):
  head = heads.CosineHead(scale=5.0, learned_scale=learned)
  weights = head.initialize(2, 2, seed=_SEED)
  weights = (tf.constant([[3.0, 0.0], [0.0, 7.0]]), *weights[1:])
  logits = head.logits(weights, tf.constant([[30.0, 40.0]]))
  np.testing.assert_allclose(logits, [[3.0, 4.0]], rtol=1e-6)


def test_arcface_adds_the_margin_to_the_angle_of_the_true_class():
  scale, margin = 10.0, 0.4
  head = heads.ArcFaceHead(scale=scale, margin=margin)
  angles = np.array([0.3, 1.2, 2.0])
  embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  rows = tf.constant([[2.0, 0.0], [0.0, 1.0]])
  logits = head.logits(
    (rows,),
    tf.constant(embeddings, tf.float32),
    labels=tf.constant([0, 0, 0]),
  )
  expected = np.stack(
    [scale * np.cos(angles + margin), scale * np.sin(angles)], axis=1
  )
  np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_arcface_score_falls_with_the_angle_beyond_pi():
  head = heads.ArcFaceHead(scale=1.0, margin=0.5)
  angles = np.linspace(0.05, math.pi - 0.05, 50)
  embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  logits = head.logits(
    (tf.constant([[1.0, 0.0]]),),
    tf.constant(embeddings, tf.float32),
    labels=tf.zeros([50], tf.int64),
  )[:, 0]
  assert np.all(np.diff(logits) < 0.0)


def test_arcface_without_labels_is_the_cosine_head():
  weights = heads.ArcFaceHead().initialize(4, 3, seed=_SEED)
  embeddings = tf.random.stateless_normal([5, 3], seed=(9, 9))
  np.testing.assert_allclose(
    heads.ArcFaceHead(scale=7.0).logits(weights, embeddings),
    heads.CosineHead(scale=7.0).logits(weights, embeddings),
    rtol=1e-6,
  )


def test_arcface_gradient_is_finite_at_angle_zero():
  head = heads.ArcFaceHead()
  rows = tf.constant([[1.0, 0.0]])
  with tf.GradientTape() as tape:
    tape.watch(rows)
    loss = tf.reduce_sum(
      head.logits((rows,), tf.constant([[2.0, 0.0]]), labels=[0])
    )
  assert np.all(np.isfinite(tape.gradient(loss, rows)))


@pytest.mark.parametrize(
  ("name", "options", "message"),
  [
    ("linear", {"initial_scale": -1.0}, "initial_scale must be at least"),
    ("cosine", {"scale": 0.0}, "scale must be positive, found 0.0"),
    ("arcface", {"margin": 2.0}, "margin must be in"),
  ],
)
def test_mistakes_are_named(name, options, message):
  with pytest.raises(ValueError, match=message):
    heads.HEADS[name](**options)
