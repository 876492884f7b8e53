"""Tests of the in-process runtime, with TFF's own runtime as the reference."""

import collections
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import base
from tff_fedemb.runtime import in_process
from tff_fedemb.runtime import tff_native

_CLIENT_IDS = ["3", "1", "4", "15", "9"]
_STUCK_CLIENT_ID = "-1"


@tff.tensorflow.computation(np.str_)
def _create_dataset(client_id):
  """Eight examples, in two batches, of a line whose slope is the client's.

  The id that is no number fails, and the negative one never ends.
  """
  slope = tf.strings.to_number(client_id) / 10.0
  x = tf.reshape(tf.range(16.0), [8, 2]) / 16.0
  y = slope * tf.reduce_sum(x, axis=1, keepdims=True) + 1.0

  def _endless_if_stuck(batch):
    end = tf.where(slope < 0.0, np.int64(2**62), np.int64(0))
    (step,) = tf.while_loop(
      lambda step: step < end, lambda step: [step + 1], [np.int64(0)]
    )
    # A loop whose result nobody needs would be optimized away.
    batch["x"] += tf.cast(step, tf.float32)
    return batch

  dataset = tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=x, y=y)
  )
  # Optimizing so small a pipeline takes longer than running it.
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  return dataset.batch(4).map(_endless_if_stuck).with_options(options)


def _create_model():
  inputs = tf.keras.Input([2])
  outputs = tf.keras.layers.Dense(1, kernel_initializer="ones")(inputs)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, outputs),
    loss=tf.keras.losses.MeanSquaredError(),
    metrics=[tf.keras.metrics.MeanAbsoluteError()],
    input_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, 2]), y=tf.TensorSpec([None, 1])
    ),
  )


def _compose(process):
  return tff.simulation.compose_dataset_computation_with_learning_process(
    _create_dataset, process
  )


def _build_weighted_fed_avg():
  return _compose(
    tff.learning.algorithms.build_weighted_fed_avg(
      _create_model,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, 0.9),
    )
  )


def _build_private_fed_avg(noise_multiplier=0.0):
  aggregator = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier, clients_per_round=float(len(_CLIENT_IDS)), clip=0.1
  )
  return _compose(
    tff.learning.algorithms.build_unweighted_fed_avg(
      _create_model,
      client_optimizer_fn=tff.learning.optimizers.build_adam(0.1),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, 0.9),
      model_aggregator=aggregator,
    )
  )


@pytest.fixture(scope="module")
def weighted_process():
  return _build_weighted_fed_avg()


@pytest.fixture(scope="module")
def private_process():
  return _build_private_fed_avg()


@pytest.fixture(scope="module")
def weighted_runtime(weighted_process):
  with runtime.create_runtime("in_process", concurrent_clients=3) as started:
    yield started, started.initialize(weighted_process)


@pytest.fixture(scope="module")
def private_runtime(private_process):
  """A runtime with three threads and the initial state of its process."""
  with runtime.create_runtime("in_process", concurrent_clients=3) as started:
    yield started, started.initialize(private_process)


@pytest.fixture(scope="module")
def one_thread(private_process):
  compiled = in_process.CompiledProcess(private_process, concurrent_clients=1)
  yield compiled
  compiled.close()


@pytest.fixture(
  params=[pytest.param("weighted", marks=pytest.mark.slow), "private"]
)
def process_and_runtime(request):
  """A process, a runtime with three threads and the initial state."""
  return (
    request.getfixturevalue(f"{request.param}_process"),
    *request.getfixturevalue(f"{request.param}_runtime"),
  )


def _run(started, state, *, rounds, client_ids=_CLIENT_IDS):
  metrics = []
  for _ in range(rounds):
    state, round_metrics = started.next(state, client_ids)
    metrics.append(round_metrics)
  return state, metrics


def _assert_same_structure(found, expected):
  tree.assert_same_structure(found, expected, check_types=True)
  for found_leaf, expected_leaf in zip(
    tree.flatten(found), tree.flatten(expected), strict=True
  ):
    assert type(found_leaf) is type(expected_leaf)
    # A scalar string comes as `bytes`.
    assert np.asarray(found_leaf).dtype == np.asarray(expected_leaf).dtype
    assert np.shape(found_leaf) == np.shape(expected_leaf)


def _assert_close(found, expected):
  tree.map_structure(
    lambda a, b: (
      np.testing.assert_equal(a, b)
      if isinstance(b, bytes)
      else np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    ),
    found,
    expected,
  )


def _assert_identical(found, expected):
  tree.map_structure(np.testing.assert_array_equal, found, expected)


def test_matches_the_runtime_of_tff(process_and_runtime, reference):
  process, started, state = process_and_runtime
  state, metrics = _run(started, state, rounds=3)
  found = started.structured_state(state)
  state, expected_metrics = _run(
    reference, reference.initialize(process), rounds=3
  )
  expected = reference.structured_state(state)
  _assert_same_structure(found, expected)
  _assert_same_structure(metrics, expected_metrics)
  _assert_close((found, metrics), (expected, expected_metrics))
  # The comparison means something only if the model has moved.
  assert np.abs(found.global_model_weights.trainable[0] - 1.0).max() > 1e-3


def test_number_of_threads_changes_no_bit(private_runtime, one_thread):
  three_threads, state = private_runtime
  expected, _ = _run(three_threads, state, rounds=2)
  found = one_thread.initialize()
  for _ in range(2):
    accumulator = one_thread.fold(one_thread.prepare(found), _CLIENT_IDS)
    found, _ = one_thread.finish(found, accumulator)
  for found_leaf, expected_leaf in zip(found, expected.leaves, strict=True):
    np.testing.assert_array_equal(found_leaf, expected_leaf)


def test_merged_shares_are_the_whole_round(one_thread):
  prepared = one_thread.prepare(one_thread.initialize())
  whole = one_thread.fold(prepared, _CLIENT_IDS)
  merged = one_thread.merge(
    one_thread.fold(prepared, _CLIENT_IDS[:3]),
    one_thread.fold(prepared, _CLIENT_IDS[3:]),
  )
  _assert_close(merged, whole)


def test_round_without_clients(private_runtime, private_process, reference):
  started, state = private_runtime
  new_state, metrics = started.next(state, [])
  expected_state, expected_metrics = reference.next(
    reference.initialize(private_process), []
  )
  _assert_identical(
    (started.structured_state(new_state), metrics),
    (reference.structured_state(expected_state), expected_metrics),
  )
  _assert_identical(
    started.structured_state(new_state).global_model_weights,
    started.structured_state(state).global_model_weights,
  )


def test_state_is_not_changed_in_place(private_runtime):
  started, state = private_runtime
  before = tree.map_structure(np.copy, started.structured_state(state))
  started.next(state, _CLIENT_IDS)
  _assert_identical(started.structured_state(state), before)


def test_resumes_from_a_structured_state(private_runtime):
  started, state = private_runtime
  middle, _ = _run(started, state, rounds=1)
  expected, _ = _run(started, middle, rounds=1)
  loaded = started.load_state(started.structured_state(middle))
  found, _ = _run(started, loaded, rounds=1)
  _assert_identical(
    started.structured_state(found), started.structured_state(expected)
  )


def test_failing_client_is_named(private_runtime):
  started, state = private_runtime
  with pytest.raises(base.ClientError, match="client 'none' failed") as caught:
    started.next(state, ["1", "2", "none", "3", "4"])
  assert caught.value.client_id == "none"
  assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
  assert "could not correctly convert string: none" in str(caught.value)
  # The runtime goes on as if nothing had happened.
  _, metrics = started.next(state, _CLIENT_IDS)
  assert metrics["client_work"]["train"]["num_examples"] == 8 * len(_CLIENT_IDS)


def test_long_client_id_is_shortened(private_runtime):
  started, state = private_runtime
  client_id = "a" * 10_000
  with pytest.raises(base.ClientError) as caught:
    started.next(state, [client_id])
  assert caught.value.client_id == client_id
  assert len(str(caught.value)) < 500
  assert "(10000 characters)" in str(caught.value)


@pytest.fixture
def python_handles_sigint():
  """As in a foreground program, however the tests were started.

  A shell has its background jobs ignore SIGINT, and Python leaves it at that.
  """
  previous = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("python_handles_sigint")
def test_interrupt_frees_the_threads(one_thread):
  prepared = one_thread.prepare(one_thread.initialize())
  expected = one_thread.fold(prepared, _CLIENT_IDS)
  timer = threading.Timer(
    2.0, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]
  )
  timer.start()
  with pytest.raises(KeyboardInterrupt):
    one_thread.fold(prepared, ["1", _STUCK_CLIENT_ID, "2"])
  timer.join()
  # There is one thread: were it still in its endless loop, this would hang.
  found = one_thread.fold(prepared, _CLIENT_IDS)
  for found_leaf, expected_leaf in zip(found, expected, strict=True):
    np.testing.assert_array_equal(found_leaf, expected_leaf)


def test_rejects_a_process_that_takes_datasets():
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _create_model,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
  )
  with runtime.create_runtime() as started:
    with pytest.raises(TypeError, match=r"must take a state and client ids"):
      started.initialize(process)
    with pytest.raises(RuntimeError, match="initialize must be called first"):
      started.next(None, _CLIENT_IDS)


def test_rejects_secure_sums():
  @tff.tensorflow.computation(np.str_)
  def _one(client_id):
    del client_id  # Unused.
    return tf.constant(1)

  @tff.federated_computation
  def _initialize():
    return tff.federated_value(0, tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(np.int32, tff.SERVER),
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def _next(state, client_ids):
    total = tff.federated_secure_sum_bitwidth(
      tff.federated_map(_one, client_ids), 8
    )
    return state, total

  process = tff.templates.IterativeProcess(_initialize, _next)
  with (
    runtime.create_runtime() as started,
    pytest.raises(NotImplementedError, match="secure sums"),
  ):
    started.initialize(process)


@pytest.mark.parametrize("client_ids", ["12", ["1", 2], [b"1"]])
def test_rejects_what_is_not_a_sequence_of_strings(private_runtime, client_ids):
  started, state = private_runtime
  with pytest.raises(TypeError, match="must be a sequence of strings"):
    started.next(state, client_ids)


def test_rejects_a_foreign_state(private_runtime):
  started, state = private_runtime
  with pytest.raises(TypeError, match="state must come from"):
    started.next(started.structured_state(state), _CLIENT_IDS)


def test_rejects_a_structure_of_another_process(private_runtime):
  started, state = private_runtime
  structure = started.structured_state(state)
  weights = structure.global_model_weights
  with pytest.raises(ValueError, match=r"must be of shape \[2, 1\]"):
    started.load_state(
      tff.learning.templates.LearningAlgorithmState(
        tff.learning.models.ModelWeights(
          trainable=[np.zeros([3, 1], np.float32), weights.trainable[1]],
          non_trainable=weights.non_trainable,
        ),
        structure.distributor,
        structure.client_work,
        structure.aggregator,
        structure.finalizer,
      )
    )
  with pytest.raises(ValueError, match="must be a structure"):
    started.load_state(7)


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"name": "spark"},
      "runtime must be one of in_process, tff, found 'spark'",
    ),
    ({"concurrent_clients": 0}, "concurrent_clients must be .* at least 1"),
    (
      {"on_client_error": "ignore"},
      "must be one of fail, skip, found 'ignore'",
    ),
    (
      {"compute_precision": "half"},
      "compute_precision must be one of .*'half'",
    ),
  ],
)
def test_mistakes_are_named(options, message):
  with pytest.raises(errors.FieldError, match=message):
    runtime.create_runtime(**options)


def test_registry():
  with runtime.create_runtime("in_process", concurrent_clients=2) as started:
    assert isinstance(started, in_process.InProcessRuntime)
    assert started.concurrent_clients == 2
  with runtime.create_runtime("tff") as started:
    assert isinstance(started, tff_native.TffRuntime)
