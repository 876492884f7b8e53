"""Tests of contrastive training."""

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import builders
from tff_fedemb import errors
from tff_fedemb.algorithms import contrastive
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import augmentation

_SHAPE = (2, 2, 1)
_IMAGES = np.random.default_rng(0).integers(0, 256, (3, *_SHAPE), np.uint8)
_TEMPERATURE = 0.5


def _turn_second_views(images, seed):
  """Leaves the first half as it is and turns the other upside down."""
  del seed
  count = tf.shape(images)[0] // 2
  return tf.concat([images[:count], images[count:, ::-1]], axis=0)


@pytest.fixture(name="config")
def fixture_config(monkeypatch):
  monkeypatch.setitem(
    augmentation.AUGMENTATIONS, "turn_second_views", _turn_second_views
  )
  return local_training.LocalTraining(
    batch_size=3, learning_rate=0.1, augmentation="turn_second_views"
  )


def _loss(kernel):
  """Mean over the views of one batch, image by image, in NumPy."""
  views = np.concatenate([_IMAGES, _IMAGES[:, ::-1]]).reshape(6, 4) / 255.0
  embeddings = views @ kernel
  directions = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
  losses = []
  for view in range(6):
    similar = np.exp(directions @ directions[view] / _TEMPERATURE)
    others = similar.sum() - similar[view]
    losses.append(-np.log(similar[(view + 3) % 6] / others))
  return np.mean(losses)


def test_each_view_has_to_find_the_other_of_its_image(config):
  algorithm = contrastive.Contrastive(local=config, temperature=_TEMPERATURE)
  process = builders.compose(
    # Labels that are out of any range: nobody looks at them.
    lambda client_id: builders.create_dataset(
      _IMAGES, np.full(3, 10**6, np.int64)
    ).batch(3),
    algorithm.build(
      lambda: builders.create_backbone(_SHAPE, use_bias=False),
      num_classes=1,
      example_type=learning_process.build_example_type(_SHAPE),
    ),
  )
  (before,), (after,), report = builders.run_round(process, ["everyone"])
  assert report["client_work"]["num_examples"] == 6
  np.testing.assert_allclose(
    report["client_work"]["loss"], _loss(np.array(before, "f8")), rtol=1e-5
  )
  # The gradient by differences.
  gradient = np.empty_like(before, "f8")
  for place in np.ndindex(*before.shape):
    step = np.zeros_like(gradient)
    step[place] = 1e-5
    gradient[place] = (_loss(before + step) - _loss(before - step)) / 2e-5
  np.testing.assert_allclose(before - after, 0.1 * gradient, atol=1e-5)


def test_views_must_differ():
  with pytest.raises(errors.FieldError, match="augmentation must make"):
    contrastive.Contrastive()
