"""Tests of clients that hold their images encoded."""

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import builders
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import encoded_images

_SHAPE = (6, 5, 3)
_NUM_EXAMPLES = 9


def _create_dataset(damaged, *, encoded):
  """Encoded, some rows are no images; the others are those that are left."""
  labels = np.arange(_NUM_EXAMPLES) % 3
  images = builders.draw_images((1, 7), [_NUM_EXAMPLES, *_SHAPE])
  if encoded:
    images = np.array([tf.io.encode_png(x).numpy() for x in images], object)
    images[damaged] = b"no image"
  else:
    images, labels = (
      np.delete(x, np.array(damaged, int), 0) for x in (images, labels)
    )
  return builders.create_dataset(images, labels).batch(4)


def _train(damaged, encoded, *, skips=True):
  """Trains a client on images, or on the same images encoded."""
  image_type = ((), tf.string) if encoded else (_SHAPE,)
  train = builders.build_client_update(
    _SHAPE,
    example_type=learning_process.build_example_type(*image_type),
    training=local_training.ClientTraining(
      batch_size=4,
      epochs=2,
      decode_images=encoded_images.build_decoder(_SHAPE) if encoded else None,
      skip_unreadable=skips,
    ),
    seed=3,
  )
  return train(
    builders.create_backbone(_SHAPE).get_weights(),
    _create_dataset(damaged, encoded=encoded),
    0,
  )


@pytest.mark.slow
def test_encoded_images_train_as_images_do():
  damaged = [2, 5]
  expected, found = (_train(damaged, encoded) for encoded in (False, True))
  for one, other in zip(found.delta, expected.delta, strict=True):
    assert np.abs(other).max() > 1e-5
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
  # Two epochs count each example twice.
  assert found.num_examples == 2 * (_NUM_EXAMPLES - len(damaged))
  assert found.num_skipped_examples == len(damaged)


def test_unreadable_images_fail_their_client_unless_told_otherwise():
  with pytest.raises(tf.errors.InvalidArgumentError):
    _train([4], True, skips=False)
