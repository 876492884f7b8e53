"""Tests of the in-process runtime; `parity_test` compares it with TFF's own."""

import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.runtime import builders
from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import compiled_process
from tff_fedemb.runtime import in_process

# Their sum depends on the order.
_CLIENT_IDS = [str(0.1 * 1.7**i) for i in range(12)]


@pytest.fixture(scope="module")
def process():
  return builders.build_private_means()


@pytest.fixture(scope="module")
def started_and_state(process):
  """A runtime with three threads and the initial state of its process."""
  with runtime.create_runtime("in_process", concurrent_clients=3) as started:
    assert isinstance(started, in_process.InProcessRuntime)
    assert started.concurrent_clients == 3
    yield started, started.initialize(process)


@pytest.fixture(scope="module")
def one_thread(process):
  compiled = compiled_process.CompiledProcess(process, concurrent_clients=1)
  yield compiled
  compiled.close()


def _assert_identical(found, expected):
  tree.map_structure(np.testing.assert_array_equal, found, expected)


def test_number_of_threads_changes_no_bit(started_and_state, one_thread):
  three_threads, state = started_and_state
  found = one_thread.initialize()
  for _ in range(2):
    state, _ = three_threads.next(state, _CLIENT_IDS)
    found, _ = one_thread.next(found, _CLIENT_IDS)
  _assert_identical(found, list(state.leaves))


@pytest.mark.parametrize("clients_per_call", [1, 5])
def test_number_of_clients_in_a_call_changes_no_bit(
  process, one_thread, clients_per_call
):
  state = one_thread.initialize()
  expected = one_thread.next(state, _CLIENT_IDS)
  compiled = compiled_process.CompiledProcess(
    process, concurrent_clients=1, clients_per_call=clients_per_call
  )
  try:
    _assert_identical(compiled.next(state, _CLIENT_IDS), expected)
  finally:
    compiled.close()


def test_goes_on_from_a_structured_state(started_and_state):
  started, state = started_and_state
  before = tree.map_structure(np.copy, started.structured_state(state))
  middle, _ = started.next(state, _CLIENT_IDS)
  # A state is not changed in place.
  _assert_identical(started.structured_state(state), before)
  expected, _ = started.next(middle, _CLIENT_IDS)
  loaded = started.load_state(started.structured_state(middle))
  found, _ = started.next(loaded, _CLIENT_IDS)
  _assert_identical(
    started.structured_state(found), started.structured_state(expected)
  )


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
  state = one_thread.initialize()
  expected = one_thread.next(state, _CLIENT_IDS)
  timer = threading.Timer(
    2.0, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]
  )
  timer.start()
  with pytest.raises(KeyboardInterrupt):
    # By a call that has others to run before and after it.
    one_thread.next(state, ["1", builders.STUCK_CLIENT_ID, *"2345678"])
  timer.join()
  # There is one thread: were it still in its endless loop, this would hang.
  _assert_identical(one_thread.next(state, _CLIENT_IDS), expected)


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
  for total, message in (
    (np.zeros([3], np.float32), r"must be of shape \[\], found \[3\]"),
    (np.float64(0.0), "must be of dtype float32, found float64"),
  ):
    with pytest.raises(ValueError, match=message):
      started.load_state((total, aggregator_state))
  with pytest.raises(
    ValueError, match=r"must have elements \[None, None\], found"
  ):
    started.load_state((*structure, 0))
  with pytest.raises(ValueError, match="must be a structure"):
    started.load_state(7)


def test_rejects_the_state_of_another_process():
  with runtime.create_runtime() as started:
    state = started.initialize(builders.build_sums(_length))
    # Another process may have a state of the same type.
    started.initialize(builders.build_sums(_length))
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


_TEXT = b"proto\x08\x00"


def test_strings_keep_zero_bytes_and_their_type():
  @tff.tensorflow.computation
  def create_state():
    return _TEXT, [_TEXT]

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(create_state, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result, tff.FederatedType(np.str_, tff.CLIENTS)
  )
  def next_round(state, client_ids):
    lengths = tff.federated_map(_length, client_ids)
    return state, tff.federated_sum(lengths)

  process = tff.templates.IterativeProcess(initialize, next_round)
  with runtime.create_runtime() as started:
    state = started.initialize(process)
    for _ in range(2):
      text, (same,) = started.structured_state(state)
      assert type(text) is type(same) is bytes
      assert text == same == _TEXT
      state, length = started.next(state, ["12"])
      assert length == 2
      state = started.load_state(started.structured_state(state))


@tff.tensorflow.computation(np.str_)
def _length(client_id):
  return tf.strings.length(client_id)


@tff.tensorflow.computation(np.int32, np.int32)
def _add(number, total):
  return number + total


def _sum_again(numbers):
  """A sum, and then one of what clients make of it."""
  total = tff.federated_broadcast(tff.federated_sum(numbers))
  return tff.federated_sum(tff.federated_map(_add, (numbers, total)))


def test_names_what_only_tff_runs():
  process = builders.build_sums(_length, sum_fn=_sum_again)
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
  ("options", "message"),
  [
    (
      {"name": "tff", "on_client_error": "skip"},
      "on_client_error must be 'fail' in TFF's",
    ),
    (
      {"name": "tff", "compute_precision": "mixed_bfloat16"},
      "must be another in TFF's own",
    ),
  ],
)
def test_mistakes_are_named(options, message):
  with pytest.raises(errors.FieldError, match=message):
    runtime.create_runtime(**options)
