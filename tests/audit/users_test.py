"""Users whom an attacker looks for, by images that are held out."""

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import builders
from tff_fedemb.audit import users
from tff_fedemb.data import pipelines


def _create_dataset(client_id):
  seed = tf.stack([tf.strings.to_hash_bucket_fast(client_id, 2**31), 1])
  labels = tf.cast(tf.range(60) % 5, tf.int64)
  return builders.create_dataset(
    builders.draw_images(seed, [60, 4, 4, 1]), labels
  ).batch(16)


def _rows(images):
  return {image.tobytes() for image in images}


def test_half_of_a_users_images_is_held_out():
  trained = pipelines.gather(
    users.without_held_out(_create_dataset)(tf.constant("ann"))
  )["x"].numpy()
  held_out = users.read_held_out(_create_dataset, ["bob", "ann"])
  of_ann = held_out.images[held_out.users == 1]
  assert not _rows(trained) & _rows(of_ann)
  assert len(trained) + len(of_ann) == 60
  assert 15 <= len(trained) <= 45


def test_encoded_images_are_halved_and_decoded():
  def create(unused_client_id):
    return tf.data.Dataset.from_tensor_slices(
      {
        "x": [f"image {i}" for i in range(40)],
        "y": tf.range(40, dtype=tf.int64),
      }
    ).batch(8)

  found = users.read_held_out(
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
