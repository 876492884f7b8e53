"""A round of DP-FedEmb (Xu et al. 2023, algorithm 1), in TensorFlow and TFF."""
# docs/concepts.md walks through it beside the files of the product.

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

PIXELS, DIM, BATCH, HEAD_SCALE = 64, 4, 4, 16.0
CLIENTS, USERS_PER_CLIENT, CLIP_NORM = 3, 2, 0.1
RATE, HEAD_RATE, SERVER_RATE, MOMENTUM = 0.1, 1.0, 0.5, 0.9
WEIGHTS = tff.types.to_type([(np.float32, [PIXELS, DIM]), (np.float32, [DIM])])
EXAMPLES = [(np.uint8, [None, PIXELS]), (np.int64, [None]), (np.int64, [2, 2])]
AT_SERVER = tff.types.FederatedType(WEIGHTS, tff.SERVER)
AT_CLIENTS = tff.types.FederatedType(EXAMPLES, tff.CLIENTS)


def draw_groups(num_users, rng):
  """Draws users in secret; each group of them is one virtual client."""
  return rng.choice(num_users, (CLIENTS, USERS_PER_CLIENT), replace=False)


def merge_users(images, labels, users, group, seeds):
  """Returns images, labels and seeds of the client that a group makes."""
  rows = np.concatenate([np.flatnonzero(users == user) for user in group])
  return [images[rows], labels[rows], seeds]


def subtract(tensors, others, factor=1.0):
  """Returns the first tensors less a factor times the others."""
  return [a - factor * b for a, b in zip(tensors, others, strict=True)]


@tf.function
def train(weights, images, labels, seeds):
  """Trains the backbone for an epoch, with a head that no one else sees."""
  classes, labels = tf.unique(labels)  # The head has a row for each of them.
  shape = [tf.size(classes), DIM]
  head = tf.random.stateless_normal(shape, seeds[0], stddev=DIM**-0.5)
  rows = tf.range(tf.size(labels))
  rows = tf.random.experimental.stateless_shuffle(rows, seeds[1])
  for start in tf.range(0, tf.size(labels), BATCH):
    batch = rows[start : start + BATCH]
    pixels = tf.cast(tf.gather(images, batch), tf.float32) / 255.0
    with tf.GradientTape() as tape:
      tape.watch((weights, head))
      embeddings = pixels @ weights[0] + weights[1]
      units = tf.nn.l2_normalize(embeddings, 1), tf.nn.l2_normalize(head, 1)
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.gather(labels, batch), HEAD_SCALE * units[0] @ tf.transpose(units[1])
      )
      loss = tf.reduce_mean(losses)
    of_weights, of_head = tape.gradient(loss, (weights, head))
    weights = subtract(weights, of_weights, RATE)
    head -= HEAD_RATE * of_head
  return weights


@tff.tensorflow.computation(WEIGHTS, EXAMPLES)
def update_client(weights, examples):
  """Returns the change of the backbone, clipped over all tensors together."""
  change = subtract(weights, train(list(weights), *examples))
  return tf.clip_by_global_norm(change, CLIP_NORM)[0]


@tff.tensorflow.computation([WEIGHTS] * 4)
def update_server(weights, velocity, total, noise):
  """Takes a step of SGD with momentum along the noised mean."""
  # A constant divides: the number of clients would tell about users.
  mean = [noised / CLIENTS for noised in subtract(total, noise, -1.0)]
  velocity = subtract(mean, velocity, -MOMENTUM)
  return subtract(weights, velocity, SERVER_RATE), velocity


@tff.federated_computation(AT_SERVER, AT_SERVER, AT_SERVER, AT_CLIENTS)
def run_round(weights, velocity, noise, clients):
  """Noise is N(0, (z CLIP_NORM)^2), z the noise multiplier, for each weight."""
  received = tff.federated_broadcast(weights)
  changes = tff.federated_map(update_client, (received, clients))
  total = tff.federated_sum(changes)
  return tff.federated_map(update_server, (weights, velocity, total, noise))
