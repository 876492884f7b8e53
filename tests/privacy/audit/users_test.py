"""Users whom an attacker looks for: what is held out, and what is made up."""

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import builders
from tff_fedemb.data import pipelines
from tff_fedemb.privacy.audit import users

_NUM_LABELS = 3


def _create_dataset(client_id):
  seed = tf.stack([tf.strings.to_hash_bucket_fast(client_id, 2**31), 1])
  labels = tf.cast(tf.range(60) % 5, tf.int64)
  return builders.create_dataset(
    builders.draw_images(seed, [60, 4, 4, 1]), labels
  ).batch(16)


def _train_on(client_id):
  batch = pipelines.gather(
    users.wrap_dataset(_create_dataset, _NUM_LABELS)(tf.constant(client_id))
  )
  return batch["x"].numpy(), batch["y"].numpy()


def _rows(images):
  return {image.tobytes() for image in images}


def test_half_of_a_users_images_is_held_out():
  trained, _ = _train_on("ann")
  held_out = users.read_images(_create_dataset, ["bob", "ann"])
  of_ann = held_out.images[held_out.users == 1]
  assert not _rows(trained) & _rows(of_ann)
  assert len(trained) + len(of_ann) == 60
  assert 15 <= len(trained) <= 45


def test_canary_users_train_on_what_is_looked_for():
  trained, labels = _train_on(users.canary_id("ann"))
  found = users.read_images(_create_dataset, ["ann"], num_labels=_NUM_LABELS)
  np.testing.assert_array_equal(trained, found.images)
  np.testing.assert_array_equal(labels, found.labels)
  # Made up: all of them occur, and not in the order of the true ones.
  assert set(labels) == set(range(_NUM_LABELS))
  assert np.any(labels != np.arange(60) % 5)


def test_encoded_images_are_halved_and_decoded():
  def create(unused_client_id):
    return tf.data.Dataset.from_tensor_slices(
      {
        "x": [f"image {i}" for i in range(40)],
        "y": tf.range(40, dtype=tf.int64),
      }
    ).batch(8)

  found = users.read_images(
    create,
    ["ann"],
    decode_images=lambda x: tf.zeros([tf.size(x), 2, 2, 1], tf.uint8),
  )
  assert found.images.shape[1:] == (2, 2, 1)
  assert 8 <= len(found.labels) <= 32


def test_scores_by_hand():
  # The first user's two images of label 0 point the same way, that of label 1
  # another one; the second one has a single pair, of different labels.
  embeddings = np.array(
    [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
  )
  some = users.UserImages(
    np.zeros([5, 1, 1, 1], np.uint8),
    np.array([0, 0, 1, 0, 1]),
    np.array([0, 0, 0, 1, 1]),
  )
  scores = users.score(lambda images: embeddings, some, 3)
  assert scores == pytest.approx([1.0, -np.sqrt(0.5), 0.0])


def test_a_model_that_was_fitted_to_made_up_labels_shows_whose_they_are():
  names = [f"user {number}" for number in range(20)]
  found = users.read_images(_create_dataset, names, num_labels=_NUM_LABELS)
  included = np.arange(20) % 2 == 0
  rows = included[found.users]
  tf.keras.utils.set_random_seed(1)
  backbone = tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer(input_shape=(4, 4, 1)),
      tf.keras.layers.Rescaling(1 / 128, offset=-1),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(256, "relu"),
      tf.keras.layers.Dense(8),
    ]
  )
  model = tf.keras.Sequential([backbone, tf.keras.layers.Dense(_NUM_LABELS)])
  model.compile(
    tf.keras.optimizers.Adam(0.01),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  images = found.images.astype(np.float32)
  model.fit(
    images[rows], found.labels[rows], epochs=60, batch_size=100, verbose=0
  )
  scores = users.score(
    lambda x: backbone(x.astype(np.float32)).numpy(), found, 20
  )
  assert scores[included].min() > scores[~included].max()
