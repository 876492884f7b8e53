"""Tests of DP-FedAvg and centralized training."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime as runtimes
from tff_fedemb.aggregators import none
from tff_fedemb.algorithms import centralized
from tff_fedemb.algorithms import composition
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads

_SHAPE = (2, 2, 1)
_DIM = 3
_NUM_CLASSES = 5
_SEED = 4
_CONFIG = local_training.LocalTrainingConfig(
  client_learning_rate=0.1, head_lr_scale=2.0, batch_size=8
)


def _create_backbone():
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer(input_shape=_SHAPE),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(
        _DIM,
        use_bias=False,
        kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
      ),
    ]
  )


def _images():
  return np.random.default_rng(0).integers(0, 2, (8, *_SHAPE)).astype(np.uint8)


_LABELS = np.array([0, 1, 1, 3, 3, 3, 4, 0], np.int64)


def _compose(process):
  @tff.tensorflow.computation(tff.types.TensorType(np.str_))
  def dataset(client_id):
    del client_id  # All clients hold the same eight examples.
    return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=_images(), y=_LABELS)
    ).batch(8)

  return tff.simulation.compose_dataset_computation_with_learning_process(
    dataset, process
  )


def _run(process, client_ids):
  with runtimes.create_runtime("in_process") as runtime:
    state = runtime.initialize(process)
    before = runtime.structured_state(state).global_model_weights.trainable
    state, report = runtime.next(state, client_ids)
    after = runtime.structured_state(state).global_model_weights.trainable
  return before, after, report


def _one_gradient_step(weights):
  """One full-batch step on kernel, rows and bias, in NumPy."""
  kernel, rows, bias = (np.array(w, np.float64) for w in weights)
  inputs = _images().reshape(8, -1).astype(np.float64)
  embeddings = inputs @ kernel
  logits = embeddings @ rows.T + bias
  probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
  probabilities /= probabilities.sum(axis=1, keepdims=True)
  error = (probabilities - np.eye(_NUM_CLASSES)[_LABELS]) / 8
  rate, head_rate = 0.1, 0.2
  return (
    kernel - rate * inputs.T @ (error @ rows),
    rows - head_rate * error.T @ embeddings,
    bias - head_rate * error.sum(axis=0),
  )


@pytest.fixture(name="fedavg_run", scope="module")
def _fedavg_run():
  process = fedavg.build_fedavg(
    _create_backbone,
    heads.LinearHead(),
    num_classes=_NUM_CLASSES,
    example_type=composition.build_example_type(_SHAPE),
    aggregator=none.build_none_factory(clients_per_round=4),
    server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
    config=_CONFIG,
    seed=_SEED,
  )
  return _run(_compose(process), ["a", "b"])


def test_fedavg_sends_backbone_and_global_head(fedavg_run):
  before, after, report = fedavg_run
  assert [np.shape(w) for w in before] == [
    (4, _DIM),
    (_NUM_CLASSES, _DIM),
    (_NUM_CLASSES,),
  ]
  # Two equal clients of an expected four: half a step.
  for start, end, full in zip(
    before, after, _one_gradient_step(before), strict=True
  ):
    np.testing.assert_allclose(end, (start + full) / 2, atol=1e-5)
  assert report["client_work"]["classes_per_client"] == 4


def test_centralized_takes_the_step_as_it_is():
  process = centralized.build_centralized(
    _create_backbone,
    heads.LinearHead(),
    num_classes=_NUM_CLASSES,
    example_type=composition.build_example_type(_SHAPE),
    config=_CONFIG,
    seed=_SEED,
  )
  before, after, _ = _run(_compose(process), ["everyone"])
  for end, full in zip(after, _one_gradient_step(before), strict=True):
    np.testing.assert_allclose(end, full, atol=1e-5)


def test_number_of_classes_is_checked():
  with pytest.raises(ValueError, match="num_classes must be an integer of"):
    fedavg.build_fedavg(
      _create_backbone,
      heads.LinearHead(),
      num_classes=0,
      example_type=composition.build_example_type(_SHAPE),
      aggregator=none.build_none_factory(clients_per_round=1),
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
      config=_CONFIG,
    )
