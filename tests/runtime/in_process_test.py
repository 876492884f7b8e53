"""Tests of the in-process runtime; `parity_test` compares it with TFF's own."""

import contextlib
import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.runtime import builders
from tests.spec import specs
from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import client_fold
from tff_fedemb.runtime import client_loops
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session
from tff_fedemb.serving import saved_models
from tff_fedemb.training import plan
from tff_fedemb.training import train

# Their sum depends on the order.
_CLIENT_IDS = [str(0.1 * 1.7**i) for i in range(12)]


@pytest.fixture(scope="module")
def started_and_state(process):
  """A runtime with one thread and the initial state of its process."""
  with runtime.create_runtime(concurrent_clients=1) as started:
    yield started, started.initialize(process)


@pytest.mark.parametrize(
  ("threads", "clients_per_call", "large_sum"),
  # With parts of a sum on all threads, a part may have no number.
  [(3, None, 2**20), (1, 1, 2**20), (1, 5, 2**20), (3, 1, 1)],
)
def test_neither_threads_nor_shared_calls_change_a_bit(
  process, started_and_state, threads, clients_per_call, large_sum, monkeypatch
):
  monkeypatch.setattr(client_fold, "_LARGE_SUM", large_sum)
  started, expected = started_and_state
  with runtime.create_runtime(concurrent_clients=threads) as other:
    other._clients_per_call = clients_per_call
    found = other.initialize(process)
    for _ in range(2):
      expected, metrics = started.next(expected, _CLIENT_IDS)
      found, found_metrics = other.next(found, _CLIENT_IDS)
      np.testing.assert_equal(found, expected)
      np.testing.assert_equal(found_metrics, metrics)


def test_goes_on_from_a_structured_state(started_and_state):
  started, state = started_and_state
  before = tree.map_structure(np.copy, started.structured_state(state))
  middle, _ = started.next(state, _CLIENT_IDS)
  # A state is not changed in place.
  np.testing.assert_equal(started.structured_state(state), before)
  expected, _ = started.next(middle, _CLIENT_IDS)
  loaded = started.load_state(started.structured_state(middle))
  found, _ = started.next(loaded, _CLIENT_IDS)
  np.testing.assert_equal(
    started.structured_state(found), started.structured_state(expected)
  )


@pytest.mark.parametrize("name", ["in_process", "tff"])
def test_nobody_changes_a_state_in_place(name):
  vector = np.array([1.0, 2.0], np.float32)

  # Its clients send nothing.
  process = builders.build_process(
    lambda: tf.constant(vector),
    lambda state, _: (state, tff.federated_value(1, tff.SERVER)),
  )
  with runtime.create_runtime(name) as started:
    state, metrics = started.next(started.initialize(process), ["a", "b", "c"])
    assert metrics == 1
    loaded = started.load_state(vector)
    vector[:] = 0.0
    for each in (state, loaded):
      with pytest.raises(ValueError, match="read-only"):
        started.structured_state(each)[:] = 0.0
      np.testing.assert_array_equal(started.structured_state(each), [1.0, 2.0])


@pytest.fixture
def python_handles_sigint():
  """As in a foreground program, however the tests were started.

  A shell has its background jobs ignore SIGINT, and Python leaves it at that.
  """
  previous = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, previous)


@pytest.mark.slow
@pytest.mark.usefixtures("python_handles_sigint")
def test_interrupt_frees_the_threads(started_and_state):
  started, state = started_and_state
  expected, _ = started.next(state, _CLIENT_IDS)
  timer = threading.Timer(
    2.0, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]
  )
  timer.start()
  with pytest.raises(KeyboardInterrupt):
    # By a call that has others to run before and after it.
    started.next(state, ["1", builders.STUCK_CLIENT_ID, *"2345678"])
  timer.join()
  # There is one thread: were it still in its endless loop, this would hang.
  found, _ = started.next(state, _CLIENT_IDS)
  np.testing.assert_equal(found, expected)


@tff.tensorflow.computation(tff.SequenceType(np.int32))
def _sum_dataset(dataset):
  return dataset.reduce(0, lambda total, number: total + number)


def test_rejects_what_does_not_take_client_ids():
  with runtime.create_runtime() as started:
    with pytest.raises(
      TypeError,
      match=r"client ids .*found \{int32\*\}@CLIENTS\. Compose the process",
    ):
      started.initialize(builders.build_sums(_sum_dataset))
    with pytest.raises(RuntimeError, match="initialize must be called first"):
      started.next(None, _CLIENT_IDS)


@pytest.mark.parametrize("client_ids", ["12", ["1", 2], (x for x in "12")])
def test_rejects_what_is_not_a_sequence_of_strings(
  started_and_state, client_ids
):
  started, state = started_and_state
  with pytest.raises(TypeError, match="must be a sequence of strings"):
    started.next(state, client_ids)


def test_rejects_the_state_of_another(started_and_state):
  started, state = started_and_state
  structure = started.structured_state(state)
  with pytest.raises(TypeError, match="state must come from"):
    started.next(structure, _CLIENT_IDS)
  _, aggregator_state = structure
  for wrong, message in (
    (
      (np.zeros([3], np.float32), aggregator_state),
      r"float32, found float32\[",
    ),
    ((np.float64(0.0), aggregator_state), r"float32, found float64\[\]"),
    ((*structure, 0), "Input structure has length 3"),
    (7, "must also be a sequence"),
  ):
    with pytest.raises(ValueError, match=message):
      started.load_state(wrong)


def test_rejects_the_state_of_another_process():
  with runtime.create_runtime() as started:
    state = started.initialize(builders.build_sums(builders.length))
    # Another process may have a state of the same type.
    started.initialize(builders.build_sums(builders.length))
    started.next(state, ["1"])
    started.initialize(builders.build_private_means())
    with pytest.raises(
      TypeError, match="state must be one of the process that"
    ):
      started.next(state, ["1"])


def _run_in_fork(function):
  """Returns the error of a function in a forked child, within ten seconds."""
  reader, writer = os.pipe()
  if not os.fork():
    signal.alarm(10)
    try:
      function()
    except Exception as error:
      os.write(writer, f"{type(error).__name__}: {error}".encode())
    os._exit(0)
  os.close(writer)
  with open(reader) as pipe:
    message = pipe.read()
  return message, os.wait()[1]


def test_says_that_it_is_in_a_fork(started_and_state, process):
  started, state = started_and_state
  for function in (
    lambda: started.next(state, ["1"]),
    lambda: started.initialize(process),
  ):
    message, status = _run_in_fork(function)
    assert message.startswith(
      "RuntimeError: a runtime must be used in the proc"
    )
    assert status == 0
  assert _run_in_fork(started.close) == ("", 0)
  # It is still the parent's.
  started.next(state, ["1"])


def test_nothing_begins_in_a_fork_after_tensorflow_ran():
  expected = "FieldError: process must be started by multiprocessing's spawn"
  spec = specs.create()
  tf.constant(1).numpy()
  for function in (
    lambda: runtime.create_runtime(),
    lambda: plan.plan(spec, measure=False),
    lambda: train.train(spec, run_dir="none"),
    lambda: saved_models.load("none"),
  ):
    message, status = _run_in_fork(function)
    assert message.startswith(expected)
    assert status == 0
  # TensorFlow has its threads.
  checks.check_not_forked()


_TEXT = b"proto\x08\x00"


def test_strings_keep_zero_bytes_and_their_type():
  def next_round(state, client_ids):
    lengths = tff.federated_map(builders.length, client_ids)
    return state, tff.federated_sum(lengths)

  process = builders.build_process(lambda: (_TEXT, [_TEXT]), next_round)
  with runtime.create_runtime() as started:
    state = started.initialize(process)
    for _ in range(2):
      text, (same,) = started.structured_state(state)
      assert type(text) is type(same) is bytes
      assert text == same == _TEXT
      state, length = started.next(state, ["12"])
      assert length == 2
      state = started.load_state(started.structured_state(state))


@tff.tensorflow.computation(np.int32, np.int32)
def _add(number, total):
  return number + total


def _sum_again(numbers):
  """A sum, and then one of what clients make of it."""
  total = tff.federated_broadcast(tff.federated_sum(numbers))
  return tff.federated_sum(tff.federated_map(_add, (numbers, total)))


def test_names_what_only_tff_runs():
  process = builders.build_sums(builders.length, sum_fn=_sum_again)
  with (
    runtime.create_runtime() as started,
    pytest.raises(
      errors.FieldError,
      match=r"runtime must be tff for a process that TFF cannot compile to one"
      r" broadcast, .*, found one of which it says: Detected broadcast depend",
    ) as caught,
  ):
    started.initialize(process)
  assert "\n" not in str(caught.value)
  with runtime.create_runtime("tff") as started:
    _, metrics = started.next(started.initialize(process), ["1", "3"])
  assert metrics == 6


@pytest.mark.parametrize(
  "options",
  [{"on_client_error": "skip"}, {"compute_precision": "mixed_bfloat16"}],
)
def test_what_a_runtime_cannot_do_is_refused(options):
  with pytest.raises(
    errors.FieldError, match=r"be given with runtime .*, found runtime tff"
  ):
    runtime.create_runtime("tff", **options)


@pytest.mark.parametrize(
  ("shape", "expected"),
  [([10], 16), ([400_000], 5), ([25_000_000], 1), ([None], 1)],
)
def test_calls_hold_a_few_updates(shape, expected):
  @tff.tensorflow.computation(tff.TensorType(np.float32, shape))
  def double(values):
    return 2.0 * values

  graph = computation_graph.import_computation("work", double)
  assert client_loops.clients_per_call(graph, graph) == expected


def test_a_graph_has_nothing_that_its_results_do_not_need():
  @tff.tensorflow.computation(np.float32, np.float32)
  def compute(x: tf.Tensor, unused: tf.Tensor):
    tf.sin(unused)
    return tf.cos(x)

  graph = computation_graph.import_computation("part", compute)
  operations = {op.type for op in graph.graph.get_operations()}
  assert "Cos" in operations
  assert "Sin" not in operations
  pool = graph_session.SessionPool([graph])
  with contextlib.closing(pool):
    assert pool([np.float32(0.0), np.float32(1.0)]) == [1.0]
