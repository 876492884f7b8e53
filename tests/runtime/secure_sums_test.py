"""Tests of simulated secure sums by hand; `tff_aggregators_test` has TFF's."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime import builders
from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import secure_sums


@tff.tensorflow.computation(np.str_)
def _numbers(client_id):
  number = tf.strings.to_number(client_id, tf.int32)
  return collections.OrderedDict(a=number, b=tf.stack([number, number + 1]))


@tff.tensorflow.computation(_numbers.type_signature.result)
def _less_ten(numbers):
  return tf.nest.map_structure(lambda number: number - 10, numbers)


def _sum_all(value):
  return tff.federated_zip(
    collections.OrderedDict(
      bitwidth=tff.federated_secure_sum_bitwidth(value, 5),
      max_input=tff.federated_secure_sum(
        value, collections.OrderedDict(a=20, b=30)
      ),
      modulus=tff.backends.mapreduce.federated_secure_modular_sum(
        tff.federated_map(_less_ten, value), 7
      ),
      plain=tff.federated_sum(value),
    )
  )


@pytest.fixture(scope="module")
def process():
  return builders.build_sums(_numbers, sum_fn=_sum_all)


def _round(skipping, client_ids):
  """The sums of a round, and the ids of the clients that were left out."""
  started, state = skipping
  state, metrics = started.next(state, client_ids)
  assert started.structured_state(state) == 1
  return metrics, [error.client_id for error in started.skipped_clients]


def _expected(numbers):
  numbers = np.array([(n, n, n + 1) for n in numbers], int).reshape(-1, 3)
  total = numbers.sum(0)
  modular = (numbers - 10).sum(0) % 7
  return {"bitwidth": total, "max_input": total, "modulus": modular} | {
    "plain": total
  }


def _assert_sums(metrics, numbers):
  for name, (a, b, c) in _expected(numbers).items():
    assert metrics[name]["a"] == a, name
    np.testing.assert_array_equal(metrics[name]["b"], [b, c], err_msg=name)
    assert metrics[name]["b"].dtype == np.int32


@pytest.mark.parametrize("numbers", [(3, 1, 4), (20, 20, 19, 17), ()])
def test_sums_are_those_of_the_clients(skipping, numbers):
  metrics, skipped = _round(skipping, [str(number) for number in numbers])
  assert not skipped
  _assert_sums(metrics, numbers)


@pytest.mark.parametrize(
  ("client_id", "message"),
  [
    ("x", "could not correctly convert"),
    ("21", "must be from 0 to 20, found 21"),
    ("31", "must be from 0 to 31, found 32"),
    ("-1", "must be from 0 to 31, found -1"),
  ],
)
def test_client_out_of_bounds_is_left_out(skipping, client_id, message):
  metrics, skipped = _round(skipping, ["3", client_id, "4"])
  assert skipped == [client_id]
  _assert_sums(metrics, (3, 4))
  assert message in str(skipping[0].skipped_clients[0])


def test_many_clients_by_one_call(process):
  with runtime.create_runtime(
    on_client_error="skip", concurrent_clients=1
  ) as started:
    state = started.initialize(process)
    numbers = [n % 20 for n in range(60)]
    client_ids = [str(n) for n in numbers]
    client_ids[25:25] = ["31", "-1"]
    _, metrics = started.next(state, client_ids)
    _assert_sums(metrics, numbers)
    skipped = [error.client_id for error in started.skipped_clients]
    assert skipped == ["31", "-1"]


def test_too_few_survivors_fail_the_round(skipping):
  started, state = skipping
  before = started.structured_state(state)
  with pytest.raises(
    secure_sums.TooFewSurvivorsError,
    match=r"secure_sum_threshold must be at most .* 3 of 5, found 0\.6667",
  ):
    started.next(state, ["1", "x", "2", "y", "3"])
  assert started.structured_state(state) == before
  # Four of six are enough, and nothing is left of the round before.
  metrics, _ = _round(skipping, ["1", "x", "2", "y", "3", "4"])
  _assert_sums(metrics, (1, 2, 3, 4))


def test_threshold_can_be_set_and_is_for_secure_sums_alone(process):
  with runtime.create_runtime(
    on_client_error="skip", secure_sum_threshold=0.7
  ) as started:
    state = started.initialize(process)
    tenths = ["x"] * 3 + ["1"] * 7
    _, metrics = started.next(state, tenths)
    _assert_sums(metrics, [1] * 7)
    with pytest.raises(secure_sums.TooFewSurvivorsError):
      started.next(state, [*tenths, "x"])
    state = started.initialize(builders.build_sums(_numbers))
    _, metrics = started.next(state, ["x", "x", "5"])
    assert metrics["a"] == 5


@pytest.mark.parametrize(
  ("dtype", "modulus"),
  [
    (np.int32, 7),
    (np.int64, 2**63 - 1),
  ],
)
def test_modular_sums_are_exact(dtype, modulus):
  generator = np.random.default_rng(1)
  limits = np.iinfo(dtype)
  values = generator.integers(limits.min, limits.max, [50, 3], dtype)
  values[:2] = [[limits.max] * 3, [limits.min] * 3]
  total = secure_sums.RoundTotal([np.zeros(3, dtype)], [modulus])
  for value in values:
    total.add([value])
  (found,) = total.reveal(50, threshold=1.0)
  # Python's integers have no end.
  expected = [sum(map(int, column)) % modulus for column in values.T]
  assert found.tolist() == expected
  assert found.dtype == dtype


def test_bounds_that_no_sum_can_have_are_refused():
  too_wide = builders.build_sums(
    _numbers, sum_fn=lambda v: tff.federated_secure_sum_bitwidth(v, 63)
  )
  with (
    runtime.create_runtime() as started,
    pytest.raises(errors.FieldError, match="at most 62, found 63"),
  ):
    started.initialize(too_wide)
