"""Tests of what clients do.

The steps of clients are derived again in `fedemb_test`.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import builders
from tff_fedemb import errors
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_steps
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import augmentation
from tff_fedemb.models import heads

_DIM = 3


def _train(head, images, labels, *, factor=1.0, **options):
  """Trains a dense backbone and a head.

  Returns how far kernel and bias move, and the head before and after.
  """
  backbone = builders.create_backbone((2, 2, 1), _DIM, scale=1.0)
  before = backbone.get_weights()
  start = head.initialize(max(labels) + 1, _DIM, seed=(3, 4))
  config = local_training.ClientTraining(**options)

  # As in a data set, whose number of examples is not known while tracing.
  @tf.function(
    input_signature=[
      tf.TensorSpec([None, 2, 2, 1]),
      tf.TensorSpec([None], tf.int32),
    ]
  )
  def train(images, labels):
    return local_steps.train_locally(
      backbone,
      head,
      start,
      local_steps.LocalExamples(images, labels, tf.constant(0)),
      config=config,
      learning_rate_factor=tf.constant(factor),
      seed=tf.constant([5, 6]),
    )

  trained, sums = train(images, labels)
  assert sums["num_examples"] == len(labels) * config.epochs
  moves = [
    np.abs(after - start).max()
    for after, start in zip(backbone.get_weights(), before, strict=True)
  ]
  return moves, start, trained


def _move(**options):
  """How far kernel and bias move under a linear head, in batches of four."""
  images = tf.random.stateless_uniform([9, 2, 2, 1], (1, 2))
  labels = np.arange(9) % 2
  moves, _, _ = _train(
    heads.LinearHead(), images, labels, batch_size=4, **options
  )
  return moves


def test_augmented_images_are_those_that_train(monkeypatch):
  monkeypatch.setitem(
    augmentation.AUGMENTATIONS,
    "black",
    lambda images, seed: tf.zeros_like(images),
  )
  kernel, bias = _move(augmentation="black", epochs=2)
  assert kernel == 0.0
  assert bias > 1e-4


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_head_that_is_trained_alone_sees_each_image_once(monkeypatch, steps):
  """Kept embeddings train it as images that are embedded in every step do."""
  monkeypatch.setitem(
    augmentation.AUGMENTATIONS, "same", lambda images, seed: images
  )
  images = tf.random.stateless_uniform([9, 2, 2, 1], (1, 2))
  kept, anew = (
    _train(
      heads.LinearHead(),
      images,
      np.arange(9) % 2,
      augmentation=name,
      batch_size=4,
      head_warmup_steps=steps,
      learning_rate=0.1,
    )
    for name in ("none", "same")
  )
  np.testing.assert_allclose(kept[0], anew[0], rtol=1e-5)
  for found, expected in zip(kept[2], anew[2], strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_turned_images_train_with_classes_of_their_own():
  config = local_training.ClientTraining(
    turned_classes=True, max_examples_per_client=3
  )
  assert config.classes_per_label == 4
  dataset = builders.create_dataset(
    np.zeros([5, 2, 2, 1], np.uint8), np.array([6, 6, 8, 9, 9])
  ).batch(2)
  examples = local_steps.gather_examples(
    dataset, config=config, seed=0, round_num=tf.constant(0)
  )
  assert examples.images.shape == (12, 2, 2, 1)
  kept = np.unique(examples.labels // 4)
  assert set(kept) <= {6, 8, 9}
  assert sorted(np.unique(examples.labels)) == [
    4 * label + turn for label in kept for turn in range(4)
  ]
  with pytest.raises(errors.FieldError, match="turned_classes"):
    dataclasses.replace(config, decode_images=lambda images: images)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_cap_changes_nothing_of_a_client_that_has_no_more(number):
  images = np.arange(4 * number, dtype=np.uint8).reshape([-1, 2, 2, 1])
  dataset = builders.create_dataset(images, np.arange(number)).batch(2)
  examples = local_steps.gather_examples(
    dataset,
    config=local_training.ClientTraining(max_examples_per_client=3),
    seed=0,
    round_num=tf.constant(0),
  )
  np.testing.assert_array_equal(examples.images, images)
  assert examples.labels.numpy().tolist() == list(range(number))


@pytest.mark.parametrize("name", ["batch_size", "max_examples_per_client"])
def test_examples_are_counted_in_32_bits(name):
  local_training.LocalTraining(**{name: 2**30})
  with pytest.raises(errors.FieldError, match=f"{name} must be"):
    local_training.LocalTraining(**{name: 2**30 + 1})


def test_only_heads_of_cosines_are_imprinted():
  config = local_training.LocalTraining(head_imprint_steps=1)
  config.check_head(heads.ArcFaceHead())
  for head in (heads.LinearHead(), heads.ClassCodesHead()):
    with pytest.raises(errors.FieldError, match="head_imprint_steps must be 0"):
      fedemb.FedEmb(head=head, local=config)
  with pytest.raises(errors.FieldError, match="head must be a Head, found 3"):
    fedemb.FedEmb.from_json({"head": 3})
  # The name that the package exports, not that of the class.
  with pytest.raises(errors.FieldError, match="backbone must be a Backbone, f"):
    fedemb.FedEmb(backbone="convnet")


def test_a_class_without_an_image_in_the_batches_keeps_its_random_row():
  images = tf.random.stateless_uniform([3, 2, 2, 1], (1, 2))
  _, (random,), (rows,) = _train(
    heads.CosineHead(),
    images,
    np.arange(3),
    batch_size=2,
    head_imprint_steps=1,
    learning_rate=0.0,
  )
  backbone = builders.create_backbone((2, 2, 1), _DIM, scale=1.0)
  means = tf.math.l2_normalize(backbone(images), axis=1)
  is_mean, is_random = (
    np.isclose(rows, expected, atol=1e-5).all(axis=1)
    for expected in (means, random)
  )
  assert is_mean.sum() == 2
  np.testing.assert_array_equal(is_random, ~is_mean)


@pytest.mark.parametrize(
  ("name", "expected"),
  [
    ("constant", [1.0, 1.0, 1.0, 1.0]),
    ("linear", [1.0, 0.75, 0.0, 0.0]),
    ("cosine", [1.0, 0.853553, 0.0, 0.0]),
  ],
)
def test_factor_falls_from_one_to_zero(name, expected):
  config = local_training.ClientTraining(schedule=name, rounds=4)
  factors = [
    config.learning_rate_factor(tf.constant(r)).numpy() for r in (0, 1, 4, 9)
  ]
  np.testing.assert_allclose(factors, expected, atol=1e-6)


def test_a_rate_that_falls_has_to_know_the_rounds():
  local = local_training.LocalTraining(schedule="cosine", batch_size=3)
  with pytest.raises(errors.FieldError, match="rounds must be given"):
    local.resolve()
  training = local.resolve(rounds=7, skip_unreadable=True)
  assert (training.batch_size, training.rounds) == (3, 7)
  assert training.skip_unreadable
  assert not training.two_views
  assert training.resolve(two_views=True).rounds == 7


def test_rates_are_multiplied_by_the_factor():
  # Without a warm-up and in one step the backbone moves with its rate.
  whole, less = _move(), _move(factor=1e-3)
  assert less[0] < 0.01 * whole[0]
  assert _move(factor=0.0, head_warmup_steps=2) == [0.0, 0.0]
