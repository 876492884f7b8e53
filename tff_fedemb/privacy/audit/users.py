"""Users whom an attacker looks for in an embedding model.

Li et al. 2022, "User-Level Membership Inference Attack against Metric Embedding
Learning": images of a user that were not trained on are embedded closer to
where they belong if the user has taken part. And canary users in the sense of
Steinke, Nasr and Jagielski 2023, whose labels are made up: nothing but having
seen them explains a model that agrees with these labels.
"""

import collections
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_fedemb import progress as progress_lib
from tff_fedemb.data import encoded_images
from tff_fedemb.data import pipelines
from tff_fedemb.privacy.audit import canary_updates

_PREFIX = "canary user "


class UserImages(NamedTuple):
  """What an attacker has of some users.

  Attributes:
    images: uint8 `[n, height, width, channels]`.
    labels: int64 `[n]`.
    users: int64 `[n]`, whose they are.
  """

  images: np.ndarray
  labels: np.ndarray
  users: np.ndarray


def canary_id(user_id: str) -> str:
  """The identifier of a user's client if the user's labels are made up."""
  return f"{_PREFIX}{user_id}"


def _checksum(images: tf.Tensor) -> tf.Tensor:
  """A number `[b]` of each image, even for half of them."""
  if images.dtype == tf.string:
    return tf.strings.to_hash_bucket_fast(images, 2**31 - 1)
  pixels = tf.reshape(tf.cast(images, tf.int64), [tf.shape(images)[0], -1])
  places = tf.range(1, tf.shape(pixels)[1] + 1, dtype=tf.int64)
  # A prime, so that every pixel and its place count.
  return tf.reduce_sum(pixels * places, axis=1) % (2**31 - 1)


def _with_made_up_labels(batch, num_labels):
  labels = _checksum(batch["x"]) // 2 % num_labels
  return collections.OrderedDict(x=batch["x"], y=labels)


def _half(batch, parity):
  kept = tf.equal(_checksum(batch["x"]) % 2, parity)
  return tf.nest.map_structure(lambda part: tf.boolean_mask(part, kept), batch)


def wrap_dataset(
  create_client_dataset: canary_updates.DatasetFn, num_labels: int
) -> canary_updates.DatasetFn:
  """Holds half of every user's images out; canary users get labels made up.

  Which half an image is in, and its label, depend on its pixels alone.

  Args:
    create_client_dataset: Maps a user's identifier to batches of `x` and `y`,
      in TensorFlow operations only.
    num_labels: That are made up, at most the classes of training.
  """

  def create_dataset(client_id):
    is_canary = tf.strings.regex_full_match(client_id, f"{_PREFIX}.*")
    user = tf.strings.regex_replace(client_id, f"^{_PREFIX}", "")
    return create_client_dataset(user).map(
      lambda batch: tf.cond(
        is_canary,
        lambda: _with_made_up_labels(batch, num_labels),
        lambda: _half(batch, 0),
      )
    )

  return create_dataset


def read_images(
  create_client_dataset: canary_updates.DatasetFn,
  user_ids: list[str],
  *,
  num_labels: int | None = None,
  decode_images: encoded_images.ImageDecoder | None = None,
) -> UserImages:
  """Reads what an attacker has: held-out images, or those of canary users.

  Args:
    create_client_dataset: As in `wrap_dataset`, not wrapped.
    user_ids: Identifiers of the users.
    num_labels: That are made up; None for the half that is held out, with its
      true labels.
    decode_images: Decodes images, if clients hold encoded ones.
  """
  found = []
  progress = progress_lib.create_bar(
    "Reading what an attacker has", unit="users", items=user_ids
  )
  for number, user_id in enumerate(progress):
    batch = pipelines.gather(create_client_dataset(tf.constant(user_id)))
    if num_labels is None:
      batch = _half(batch, 1)
    else:
      batch = _with_made_up_labels(batch, num_labels)
    images = batch["x"] if decode_images is None else decode_images(batch["x"])
    labels = batch["y"].numpy()
    found.append((images.numpy(), labels, np.full(len(labels), number)))
  return UserImages(
    *(np.concatenate(part) for part in zip(*found, strict=True))
  )


def score(
  embed: Callable[[np.ndarray], np.ndarray], users: UserImages, number: int
) -> np.ndarray:
  """How well a model agrees with each user's labels `[number]`.

  The mean cosine of a user's images of one label, minus that of images of
  different labels; 0 in the place of either where there are no such pairs.

  Args:
    embed: Maps images to embeddings.
    users: What the attacker has.
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
    for pairs, sign in ((np.triu(alike, 1), 1.0), (np.triu(~alike, 1), -1.0)):
      if pairs.any():
        scores[user] += sign * float(np.mean(cosines[pairs]))
  return scores
