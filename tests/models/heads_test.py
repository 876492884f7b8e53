"""Tests of the heads against hand-computed logits and NumPy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import heads

_SEED = (1, 2)


@pytest.mark.parametrize("name", sorted(heads.HEADS))
def test_number_of_classes_may_be_a_tensor(name):
  head = heads.HEADS[name]()

  @tf.function
  def score(labels, embeddings):
    num_classes = tf.size(tf.unique(labels).y)
    weights = head.initialize(num_classes, 8, seed=_SEED)
    return head.logits(weights, embeddings, labels=tf.unique(labels).idx)

  logits = score(tf.constant([7, 7, 1_000_000]), tf.ones([3, 8]))
  assert logits.shape == (3, 2)


@pytest.mark.parametrize(
  "head",
  [
    heads.CosineHead(scale=5.0),
    heads.CosineHead(scale=5.0, learned_scale=True),
    heads.ArcFaceHead(scale=5.0),
    heads.ClassCodesHead(scale=5.0),
  ],
)
def test_cosine_ignores_lengths(head):
  """Without labels, a margin head is a cosine head as well."""
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
    (rows,), tf.constant(embeddings, tf.float32), labels=tf.constant([0, 0, 0])
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


def test_arcface_gradient_is_finite_at_angle_zero():
  head = heads.ArcFaceHead()
  rows = tf.constant([[1.0, 0.0]])
  with tf.GradientTape() as tape:
    tape.watch(rows)
    loss = tf.reduce_sum(
      head.logits((rows,), tf.constant([[2.0, 0.0]]), labels=[0])
    )
  assert np.all(np.isfinite(tape.gradient(loss, rows)))


def _reference_code(class_id, dim):
  """A class's code in Python's integers and floats."""

  def scramble(number):
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)

  start, code = scramble(class_id % 2**64), []
  for step in range(1, dim + 1):
    bits = scramble((start + step * 0x9E3779B97F4A7C15) % 2**64)
    radius = math.sqrt(-2 * math.log(((bits >> 32) + 1) / 2**32))
    code.append(radius * math.cos(2 * math.pi * (bits % 2**32) / 2**32))
  return np.array(code) / np.linalg.norm(code)


def test_class_codes_are_those_of_plain_arithmetic():
  ids = [0, 1, 61, -17, 2**40, -(2**63)]
  codes = heads.draw_class_codes(tf.constant(ids, tf.int64), 6)
  expected = [_reference_code(class_id, 6) for class_id in ids]
  np.testing.assert_allclose(codes, expected, atol=1e-5)
  np.testing.assert_allclose(np.linalg.norm(codes, axis=1), 1, rtol=1e-6)


def test_class_codes_depend_on_the_class_alone():
  head = heads.ClassCodesHead()
  one = head.initialize(
    3, 8, seed=_SEED, class_ids=tf.constant([5, 900, 7], tf.int64)
  )
  other = head.initialize(
    tf.constant(2), 8, seed=(8, 8), class_ids=tf.constant([7, 5], tf.int64)
  )
  np.testing.assert_array_equal(one[0][0], other[0][1])
  np.testing.assert_array_equal(one[0][2], other[0][0])
  # Without numbers of the classes, those are their rows.
  rows = head.initialize(8, 8, seed=_SEED)[0]
  np.testing.assert_array_equal(rows[5], one[0][0])


def test_contrast_scores_the_other_images_of_a_class():
  head = heads.ContrastHead(scale=3.0)
  embeddings = np.random.default_rng(1).normal(size=[6, 4])
  labels = np.array([0, 1, 0, 2, 1, 0])
  weights = head.initialize(3, 4, seed=_SEED)
  logits = head.logits(
    weights, tf.constant(embeddings, tf.float32), labels=tf.constant(labels)
  )
  unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
  # Class 2 has one image alone.
  np.testing.assert_array_equal(logits[3], [0, 0, 0])
  for i in (0, 1, 2, 4, 5):
    similar = np.exp(3.0 * unit @ unit[i])
    similar[i] = 0
    expected = np.log(similar[labels == labels[i]].sum() / similar.sum())
    found = tf.nn.log_softmax(logits[i])[labels[i]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_contrast_learns_nothing_without_two_images_of_a_class():
  head = heads.ContrastHead()
  embeddings = tf.Variable([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]])
  labels = tf.range(3)
  with tf.GradientTape() as tape:
    weights = head.initialize(3, 2, seed=_SEED)
    logits = head.logits(weights, embeddings, labels=labels)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  np.testing.assert_array_equal(
    tape.gradient(loss, embeddings), np.zeros((3, 2))
  )


def test_contrast_needs_labels():
  head = heads.ContrastHead()
  with pytest.raises(ValueError, match="images whose labels it knows"):
    head.logits(head.initialize(2, 4, seed=_SEED), tf.ones([3, 4]))


def test_linear_is_a_dense_layer():
  logits = heads.LinearHead().logits(
    (tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([10.0, 20.0])),
    tf.constant([[1.0, 1.0], [0.0, 2.0]]),
  )
  np.testing.assert_allclose(logits, [[13.0, 27.0], [14.0, 28.0]])
