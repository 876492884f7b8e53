"""Tests of rounds with clients that fail, on sums done by hand."""

import pytest
import tensorflow as tf

from tff_fedemb import runtime
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import graph_session


def _round(skipping, client_ids):
  """The mean, the number of clients, and the ids of those that were skipped."""
  started, state = skipping
  state, ((mean,), count) = started.next(state, client_ids)
  # The sum of the means begins at zero.
  assert state[0] == mean
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


def test_error_that_quotes_bytes_is_readable(skipping):
  assert _round(skipping, ["1", "damaged"]) == (1.0 / 4, 1, ["damaged"])
  started, _ = skipping
  (error,) = started.skipped_clients
  assert str(error).startswith("client 'damaged' failed: DataLossError:")
  assert "correctly convert string: damaged \\xff" in str(error)
  # It holds on to nothing.
  assert error.__cause__ is error.__context__ is error.__traceback__ is None


@pytest.mark.parametrize(
  "error",
  [
    ValueError("a bug"),
    tf.errors.CancelledError(None, None, "session closed"),
    tf.errors.ResourceExhaustedError(None, None, "no memory"),
  ],
  ids=lambda error: type(error).__name__,
)
def test_what_is_no_fault_of_the_client_ends_the_round(
  skipping, monkeypatch, error
):
  run = graph_session.RunnableGraph.run

  def _run(self, session, values):
    if "bug" in values:
      raise error
    return run(self, session, values)

  monkeypatch.setattr(graph_session.RunnableGraph, "run", _run)
  with pytest.raises(
    client_error.ClientError, match="client 'bug' failed"
  ) as caught:
    _round(skipping, ["1", "x", "bug", "2", "3", "4", "5"])
  assert caught.value.__cause__ is error
  # Nothing is left of that round.
  assert _round(skipping, ["3", "y"]) == (3.0 / 4, 1, ["y"])


def test_fails_unless_told_to_skip(process):
  with runtime.create_runtime() as started:
    state = started.initialize(process)
    with pytest.raises(
      client_error.ClientError, match="client 'x' failed"
    ) as caught:
      started.next(state, ["1", "x", "2"])
    assert caught.value.client_id == "x"
    assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
    assert "could not correctly convert string: x" in str(caught.value)
    assert not started.skipped_clients
