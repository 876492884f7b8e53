"""Tests of rounds with clients that fail, on sums done by hand."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime
from tff_fedemb.runtime import base
from tff_fedemb.runtime import computation_graph

_EXPECTED_CLIENTS = 4
_CLIP_NORM = 10.0


def _build_process():
  """Clients are the numbers they are called; the server takes a private mean.

  It keeps the sum of the means beside the aggregator's state; a round's metrics
  are its mean and the plain number of clients.
  """
  aggregation = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=0.0,
    clients_per_round=float(_EXPECTED_CLIENTS),
    clip=_CLIP_NORM,
  ).create(tff.to_type([(np.float32, [1])]))

  @tff.tensorflow.computation(np.str_)
  def _number(client_id):
    # As damaged data may be, this is no UTF-8.
    text = tf.strings.regex_replace(client_id, "damaged", b"damaged \xff")
    return [tf.reshape(tf.strings.to_number(text), [1])]

  @tff.tensorflow.computation(np.str_)
  def _one(client_id):
    del client_id  # Unused.
    return 1

  @tff.tensorflow.computation(np.float32, tff.to_type([(np.float32, [1])]))
  def _add(total, mean):
    return total + mean[0][0]

  @tff.federated_computation
  def _initialize():
    total = tff.federated_value(np.float32(0.0), tff.SERVER)
    return tff.federated_zip((total, aggregation.initialize()))

  @tff.federated_computation(
    _initialize.type_signature.result,
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def _next(state, client_ids):
    total, aggregator_state = state
    output = aggregation.next(
      aggregator_state, tff.federated_map(_number, client_ids)
    )
    total = tff.federated_map(_add, (total, output.result))
    count = tff.federated_sum(tff.federated_map(_one, client_ids))
    return (
      tff.federated_zip((total, output.state)),
      tff.federated_zip((output.result, count)),
    )

  return tff.templates.IterativeProcess(_initialize, _next)


@pytest.fixture(scope="module")
def process():
  return _build_process()


@pytest.fixture(scope="module")
def skipping(process):
  """A runtime that skips clients, and the initial state."""
  with runtime.create_runtime(
    "in_process", concurrent_clients=3, on_client_error="skip"
  ) as started:
    yield started, started.initialize(process)


def _round(skipping, client_ids):
  """The mean, the number of clients, and the ids of those that were skipped."""
  started, state = skipping
  state, ((mean,), count) = started.next(state, client_ids)
  # The sum of the means begins at zero.
  assert state.leaves[0] == mean
  return mean.item(), count, [e.client_id for e in started.skipped_clients]


@pytest.mark.parametrize(
  ("client_ids", "mean", "count", "skipped"),
  [
    (["3", "20"], (3.0 + 10.0) / 4, 2, []),
    (["3", "x", "20"], (3.0 + 10.0) / 4, 2, ["x"]),
    (["x", "3", "y", "z", "2", "1", "x"], 6.0 / 4, 3, [*"xyzx"]),
    (["x", "y"], 0.0, 0, ["x", "y"]),
    ([], 0.0, 0, []),
  ],
)
def test_skipped_client_is_a_zero_update(
  skipping, client_ids, mean, count, skipped
):
  assert _round(skipping, client_ids) == (mean, count, skipped)


def test_what_is_left_is_added_in_the_same_order(skipping):
  numbers = [str(0.1 * 1.7**i) for i in range(12)]
  expected, _, _ = _round(skipping, numbers)
  for place in range(len(numbers) + 1):
    found, count, skipped = _round(
      skipping, [*numbers[:place], "x", *numbers[place:]]
    )
    assert (found, count, skipped) == (expected, len(numbers), ["x"])
  # The comparison means something only if the order makes a difference.
  backwards, _, _ = _round(skipping, numbers[::-1])
  assert backwards != expected


def test_errors_hold_on_to_nothing(skipping):
  started, state = skipping
  started.next(state, ["1", "x"])
  (error,) = started.skipped_clients
  assert isinstance(error, base.ClientError)
  assert str(error).startswith("client 'x' failed: InvalidArgumentError: ")
  assert error.__cause__ is error.__context__ is error.__traceback__ is None
  started.next(state, ["1"])
  assert started.skipped_clients == ()


def test_error_that_quotes_bytes_is_readable(skipping):
  assert _round(skipping, ["1", "damaged"]) == (1.0 / 4, 1, ["damaged"])
  started, _ = skipping
  assert "correctly convert string: damaged \\xff" in str(
    started.skipped_clients[0]
  )


def test_message_begins_with_what_happened():
  error = base.ClientError(
    "x", ValueError("{{function_node f_1}} {{function_node f_2}} bad [[n]]")
  )
  assert str(error) == "client 'x' failed: ValueError: bad [[n]]"


@pytest.mark.parametrize(
  "error",
  [
    ValueError("a bug"),
    tf.errors.CancelledError(None, None, "session closed"),
    tf.errors.AbortedError(None, None, "session closed"),
    tf.errors.InternalError(None, None, "no handle"),
    tf.errors.ResourceExhaustedError(None, None, "no memory"),
    tf.errors.UnknownError(None, None, "no algorithm"),
  ],
  ids=lambda error: type(error).__name__,
)
def test_what_is_no_fault_of_the_client_ends_the_round(
  skipping, monkeypatch, error
):
  call = computation_graph.GraphSession.__call__

  def _call(self, *arguments):
    if arguments and arguments[0] == ["bug"]:
      raise error
    return call(self, *arguments)

  monkeypatch.setattr(computation_graph.GraphSession, "__call__", _call)
  with pytest.raises(base.ClientError, match="client 'bug' failed") as caught:
    _round(skipping, ["1", "x", "bug", "2", "3", "4", "5"])
  assert caught.value.__cause__ is error
  # Nothing is left of that round.
  assert _round(skipping, ["3", "y"]) == (3.0 / 4, 1, ["y"])


def test_fails_unless_told_to_skip(process):
  with runtime.create_runtime() as started:
    state = started.initialize(process)
    with pytest.raises(base.ClientError, match="client 'x' failed"):
      started.next(state, ["1", "x", "2"])
    assert started.skipped_clients == ()
