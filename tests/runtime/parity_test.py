"""Parity of the in-process runtime with TFF's own, over many processes.

Without noise the two have to agree number by number, in the state and in the
metrics of every round; `tff_aggregators_test` has noise that comes from a seed.
"""

import collections
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.algorithms import builders
from tests.runtime import histories
from tests.runtime import networks
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import pipelines

# The models have it for their weights that are not trained.
pytestmark = pytest.mark.filterwarnings("ignore:Batch Normalization")

# Cohorts of different sizes, so that no round can pass for another.
_ROUNDS = (("3", "1", "4"), ("15", "9"), ("2", "6", "5", "3"))
_NUM_FEATURES = networks.NUM_FEATURES
_IMAGE_SHAPE = (4, 4, 1)
_NUM_CLASSES = 4


def _num_examples(number):
  """Clients weigh differently, and their last batches are not full."""
  return 5 + number % 4


def _draw(client_id, shape, stream, low, high, dtype=tf.float32):
  """A client's own random numbers, one row per example."""
  number = tf.strings.to_number(client_id, tf.int64)
  # The count by itself would make shapes that nobody knows while tracing.
  rows = tf.random.stateless_uniform(
    [_num_examples(3), *shape], tf.stack([number, stream]), low, high, dtype
  )
  return rows[: _num_examples(number)]


@tff.tensorflow.computation(np.str_)
def _create_examples(client_id):
  """A plane whose slope is the client's, with a bend."""
  x = _draw(client_id, [_NUM_FEATURES], 1, -1.0, 1.0)
  slope = tf.strings.to_number(client_id) / 10.0
  y = slope * tf.reduce_sum(x, axis=1, keepdims=True) + tf.abs(x[:, :1])
  return (
    tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y))
    .batch(4)
    .with_options(pipelines.build_options())
  )


@tff.tensorflow.computation(np.str_)
def _create_points(client_id):
  return tf.data.Dataset.from_tensor_slices(
    _draw(client_id, [_NUM_FEATURES], 2, -2.0, 2.0)
  ).with_options(pipelines.build_options())


@tff.tensorflow.computation(np.str_)
def _create_images(client_id):
  images = _draw(client_id, _IMAGE_SHAPE, 3, 0, 256, tf.int32)
  labels = _draw(client_id, [], 4, 0, _NUM_CLASSES, tf.int64)
  return (
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=tf.cast(images, tf.uint8), y=labels)
    )
    .batch(3)
    .with_options(pipelines.build_options())
  )


def _decay(round_num):
  return 0.1 / (1.0 + tf.cast(round_num, tf.float32))


def _build_own(algorithm, client_optimizer, clip_norm):
  return builders.build_process(
    _IMAGE_SHAPE,
    algorithm=algorithm,
    num_classes=_NUM_CLASSES,
    aggregator=builders.create_aggregator(
      "gaussian", clients_per_round=3, clip_norm=clip_norm
    ),
    config=local_training.LocalTraining(
      learning_rate=0.1,
      head_lr_scale=3.0,
      head_warmup_steps=2,
      epochs=2,
      batch_size=4,
      optimizer=client_optimizer,
    ),
    seed=5,
  )


_sgdm = tff.learning.optimizers.build_sgdm
_adam = tff.learning.optimizers.build_adam

_learning = tff.learning.algorithms
# Functions that make a process, by default on `_create_examples`.
_BUILD = {
  "fedemb": lambda: _build_own(fedemb.FedEmb, "adam", 1.1),
  "fedavg": lambda: _build_own(fedavg.FedAvg, "sgdm", 1.9),
  "weighted": lambda: _learning.build_weighted_fed_avg(
    networks.create_model, _sgdm(0.1), _sgdm(1.0, 0.9)
  ),
  "unweighted": lambda: _learning.build_unweighted_fed_avg(
    networks.create_model, _sgdm(0.1), _sgdm(1.0)
  ),
  "prox": lambda: _learning.build_unweighted_fed_prox(
    networks.create_model, 0.5, _sgdm(0.1), _adam(0.1)
  ),
  "weighted_prox": lambda: _learning.build_weighted_fed_prox(
    networks.create_model, 0.5, _sgdm(0.1)
  ),
  "schedule": lambda: _learning.build_weighted_fed_avg_with_optimizer_schedule(
    networks.create_model, _decay, lambda rate: _sgdm(rate), _sgdm(2.0, 0.9)
  ),
  "sgd": lambda: _learning.build_fed_sgd(
    networks.create_model, _sgdm(0.3, 0.9)
  ),
  "reconstruction": lambda: _learning.build_fed_recon(
    networks.create_reconstructed_model,
    loss_fn=tf.keras.losses.MeanSquaredError,
  ),
  "reconstruction_evaluation": lambda: _learning.build_fed_recon_eval(
    networks.create_reconstructed_model,
    loss_fn=tf.keras.losses.MeanSquaredError,
  ),
  "unweighted_mime": lambda: _learning.build_unweighted_mime_lite(
    networks.create_model, _sgdm(0.1, 0.9)
  ),
  "weighted_mime": lambda: _learning.build_weighted_mime_lite(
    networks.create_model, _sgdm(0.1, 0.9)
  ),
  "mime": lambda: _learning.build_mime_lite_with_optimizer_schedule(
    networks.create_model, _decay, _sgdm(0.1, 0.9), _sgdm(1.0, 0.9)
  ),
  "kmeans": lambda: _learning.build_fed_kmeans(
    4, (_NUM_FEATURES,), random_seed=(1, 2)
  ),
  "evaluation": lambda: _learning.build_fed_eval(networks.create_model),
}
_DATASETS = {
  "fedemb": _create_images,
  "fedavg": _create_images,
  "kmeans": _create_points,
}


# TFF takes seconds to build a process.
@functools.cache
def _compose(name):
  return tff.simulation.compose_dataset_computation_with_learning_process(
    _DATASETS.get(name, _create_examples), _BUILD[name]()
  )


def _smallest_move(before, after):
  """Returns the largest move within the tensor that moved least."""
  first, last = (
    # The model of k-means is one tensor.
    tree.flatten(
      getattr(
        state.global_model_weights, "trainable", state.global_model_weights
      )
    )
    for state in (before, after)
  )
  return min(np.abs(b - a).max() for a, b in zip(first, last, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_BUILD))
def test_training_matches_tff(name, reference):
  is_own = name in ("fedemb", "fedavg")
  # At the end a round without clients, in which only momentum moves a model.
  rounds = [*_ROUNDS, ()] if is_own else _ROUNDS
  history = histories.compare(_compose(name), reference, rounds)
  history = history[: 1 + len(_ROUNDS)]
  states, (_, *metrics) = zip(*history, strict=True)
  # The comparison means something only if the model has moved, in every round;
  # evaluation leaves it alone.
  for before, after in itertools.pairwise(states):
    move = _smallest_move(before, after)
    assert move == 0 if "evaluation" in name else move > 5e-3
  if is_own:
    # And only if clipping does something, though not all there is to do.
    shares = [m["aggregator"]["clipped_share"] for m in metrics]
    assert all(0.0 < share < 1.0 for share in shares), shares
    counts = [m["client_work"]["num_clients"] for m in metrics]
    assert counts == [len(client_ids) for client_ids in _ROUNDS]
