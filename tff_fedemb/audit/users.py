"""Users whom an attacker looks for in an embedding model.

Li et al. 2022, "User-Level Membership Inference Attack against Metric Embedding
Learning": images of a user that were not trained on are embedded closer to
where they belong if the user has taken part.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_fedemb import progress as progress_lib
from tff_fedemb.audit import canary_updates
from tff_fedemb.data import encoded_images
from tff_fedemb.data import pipelines


class UserImages(NamedTuple):
  """The images of some users that an attacker has.

  Attributes:
    images: uint8 `[n, height, width, channels]`.
    labels: int64 `[n]`.
    users: int64 `[n]`, whose they are.
  """

  images: np.ndarray
  labels: np.ndarray
  users: np.ndarray


def _checksum(images: tf.Tensor) -> tf.Tensor:
  """A number `[b]` of each image, even for half of them."""
  if images.dtype == tf.string:
    return tf.strings.to_hash_bucket_fast(images, 2**31 - 1)
  pixels = tf.reshape(tf.cast(images, tf.int64), [tf.shape(images)[0], -1])
  places = tf.range(1, tf.shape(pixels)[1] + 1, dtype=tf.int64)
  # A prime, so that every pixel and its place count.
  return tf.reduce_sum(pixels * places, axis=1) % (2**31 - 1)


def _half(batch, parity):
  kept = tf.equal(_checksum(batch["x"]) % 2, parity)
  return tf.nest.map_structure(lambda part: tf.boolean_mask(part, kept), batch)


def without_held_out(
  create_client_dataset: canary_updates.DatasetFn,
) -> canary_updates.DatasetFn:
  """Holds half of every user's images out.

  Which half an image is in depends on its pixels alone.

  Args:
    create_client_dataset: Maps a user's identifier to batches of `x` and `y`,
      in TensorFlow operations only.
  """

  def create_dataset(client_id: tf.Tensor) -> tf.data.Dataset:
    examples = create_client_dataset(client_id)
    return examples.map(lambda batch: _half(batch, 0))

  return create_dataset


def read_held_out(
  create_client_dataset: canary_updates.DatasetFn,
  user_ids: list[str],
  *,
  decode_images: encoded_images.ImageDecoder | None = None,
) -> UserImages:
  """Reads what an attacker has: the half that is held out, with its labels.

  Args:
    create_client_dataset: As in `without_held_out`.
    user_ids: Identifiers of the users.
    decode_images: Decodes images, if clients hold encoded ones.
  """
  images = []
  labels = []
  users = []
  progress = progress_lib.create_bar(
    "Reading what an attacker has", unit="users", items=user_ids
  )
  for number, user_id in enumerate(progress):
    every = pipelines.gather(create_client_dataset(tf.constant(user_id)))
    batch = _half(every, 1)
    own = batch["x"] if decode_images is None else decode_images(batch["x"])
    images.append(own.numpy())
    labels.append(batch["y"].numpy())
    users.append(np.full(len(own), number))
  return UserImages(
    images=np.concatenate(images),
    labels=np.concatenate(labels),
    users=np.concatenate(users),
  )


def score(
  embed: Callable[[np.ndarray], np.ndarray],
  users: UserImages,
  number: int,
) -> np.ndarray:
  """How well a model agrees with each user's labels `[number]`.

  The mean cosine of a user's images of one label, minus that of images of
  different labels; 0 in the place of either where there are no such pairs.

  Args:
    embed: Maps images to embeddings.
    users: Images that the attacker has.
    number: Number of users.
  """
  embeddings = embed(users.images)
  norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
  embeddings = embeddings / np.maximum(norms, 1e-12)
  scores = np.zeros(number)
  for user in range(number):
    rows = users.users == user
    cosines = embeddings[rows] @ embeddings[rows].T
    labels = users.labels[rows]
    alike = labels[:, np.newaxis] == labels
    same = np.triu(alike, 1)
    different = np.triu(~alike, 1)
    if same.any():
      scores[user] += float(np.mean(cosines[same]))
    if different.any():
      scores[user] -= float(np.mean(cosines[different]))
  return scores
