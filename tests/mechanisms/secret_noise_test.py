"""Tests of noise: its secret, its tails, its last digits."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.mechanisms import banded
from tff_fedemb.mechanisms import banded_strategy as strategy
from tff_fedemb.mechanisms import correlated_query
from tff_fedemb.mechanisms import secret_noise

_SPECS = (tf.TensorSpec([2, 3]), tf.TensorSpec([]), tf.TensorSpec([4]))


def _seeds(generator):
  return generator.initialize().seeds.numpy()


def _draw(query, total):
  result, _, _ = query.get_noised_result(total, query.initial_global_state())
  return result


@pytest.fixture(name="drawn")
def _drawn(monkeypatch):
  """(key, counter) of each draw of random bits."""
  drawn = []
  draw = tf.raw_ops.StatelessRandomUniformFullIntV2

  def record(key, counter, **options):
    drawn.append((*np.ravel(key), *np.ravel(counter)))
    return draw(key=key, counter=counter, **options)

  monkeypatch.setattr(
    tf.raw_ops, "StatelessRandomUniformFullIntV2", record, raising=True
  )
  return drawn


def _zeros(specs):
  return tuple(tf.zeros(spec.shape, tf.int64) for spec in specs)


def _correlated(specs, **options):
  """A query with two bands."""
  bands = strategy.BandedToeplitzStrategy((1.0, 0.5))
  next_noise = functools.partial(banded.BandedConfig.next_noise, bands)
  return correlated_query.CorrelatedSumQuery(
    next_noise, specs, num_buffers=1, **options
  )


def test_every_draw_has_numbers_of_its_own(drawn, monkeypatch):
  # Three chunks of the first tensor and a rest; in ten rounds.
  monkeypatch.setattr(secret_noise, "_CHUNK", 2)
  specs = (tf.TensorSpec([7]), tf.TensorSpec([]))
  correlated = correlated_query.TreeSumQuery(specs, clip_norm=1.0, stddev=1.0)
  state = correlated.initial_global_state()
  for _ in range(10):
    _, state, _ = correlated.get_noised_result(_zeros(specs), state)
  query = secret_noise.SecretGaussianSumQuery(1.0, 1.0)
  for _ in range(10):
    _draw(query, (tf.zeros([7]), tf.zeros([])))
  assert len(drawn) == 10 * 2 * 5
  assert len(set(drawn)) == len(drawn)


def test_noise_is_secret_though_tensorflows_numbers_are_known(monkeypatch):
  # TensorFlow's operations draw from 32 bits of the process's start, and here
  # even the same numbers in every call and process.
  monkeypatch.setattr(
    secret_noise, "draw_words", lambda shape: tf.ones(shape, tf.int64)
  )
  zeros = (tf.zeros([1000]),)
  makers = [
    lambda: _draw(secret_noise.SecretGaussianSumQuery(1.0, 1.0), zeros)[0],
    lambda: secret_noise.SecretNoiseGenerator(1.0).initialize()[0],
  ]
  for make in makers:
    first, second = np.array(make()), np.array(make())
    assert np.mean(first == second) < 0.01


def test_runs_and_generators_differ_in_all_their_bits():
  # Not the time of day, and no word bounded to a part of the range. Each bit of
  # 400 is set in a share of 1/2, with a standard error of 2.5 %; bounds at
  # seven: false alarm below once in 10^9 runs for all 128 together.
  # Two of 1,600 words are equal by chance once in 10^13 runs.
  generators = [secret_noise.SecretNoiseGenerator(1.0) for _ in range(400)]
  seeds = np.array([_seeds(generator) for generator in generators])
  again = [_seeds(generator) for generator in generators]
  assert len(np.unique([seeds, again])) == 1600
  bits = seeds.view(np.uint64)[..., np.newaxis] >> np.arange(64, dtype="u8")
  shares = np.mean(bits & np.uint64(1), axis=0)
  assert np.all(np.abs(shares - 0.5) < 7 * 0.025)


def test_sum_and_noise_are_on_a_common_grid():
  """Sums that differ have results in the same places.

  Five numbers and clip norm 3: the grid is 2^-10, the largest power of two
  below 3 x 2^-10 / sqrt(5). Without it, 0.1 + noise and 0.3 + noise have last
  bits that tell them apart.
  """
  specs = (tf.TensorSpec([2]), tf.TensorSpec([3]))
  queries = [
    secret_noise.SecretGaussianSumQuery(3.0, 1.5),
    _correlated(specs, clip_norm=3.0, stddev=1.5),
    correlated_query.TreeSumQuery(specs, clip_norm=3.0, stddev=1.5),
  ]
  states = [query.initial_global_state() for query in queries]
  for value in (0.1, 0.3, 1e3 + 0.3) * 5:
    total = (tf.fill([2], value), tf.fill([3], -value))
    for i, query in enumerate(queries):
      result, states[i], _ = query.get_noised_result(total, states[i])
      steps = np.concatenate(result) * 2.0**10
      np.testing.assert_array_equal(steps, np.round(steps))
      centred = np.concatenate(result) - np.concatenate(total)
      assert np.all(np.abs(centred) < 1.5 * 20)
  # Noise alone is remembered, before it is rounded to the grid.
  assert states[2].leaves == 15
  assert [rows.shape for rows in states[2].nodes] == [(4, 2), (4, 3)]
  buffers, remembered = (
    np.concatenate([np.ravel(part) for part in parts])
    for parts in (states[1].buffers, states[2].nodes)
  )
  assert max(np.abs(buffers).max(), np.abs(remembered).max()) < 50
  assert np.any(remembered * 2.0**10 != np.round(remembered * 2.0**10))


@pytest.mark.parametrize("kind", ["correlated", "tree", "independent"])
def test_large_noise_does_not_show_the_last_digits_of_a_sum(kind):
  """Single precision has no odd multiple of the grid from 2^24 of them on.

  A million numbers and clip norm 1: the grid is 2^-20. In single precision,
  noise from 16 on would be even multiples of it. The sum of -1 and an odd
  multiple would show just below 16, where a release has odd multiples.
  """
  specs, options = (tf.TensorSpec([2**20]),), {"clip_norm": 1.0, "stddev": 16.0}
  query = {
    "correlated": lambda: _correlated(specs, **options),
    "tree": lambda: correlated_query.TreeSumQuery(specs, **options),
    "independent": lambda: secret_noise.SecretGaussianSumQuery(1.0, 16.0),
  }[kind]()
  (noised,) = _draw(query, (tf.fill([2**20], -1.0 - 2.0**-20),))
  steps = noised.numpy().astype(np.float64) * 2.0**20
  told = steps[(steps >= 2.0**24 - 2.0**20) & (steps < 2.0**24)]
  # 15,000 numbers: the standard error is 0.4 %; bounds at six.
  assert len(told) > 10_000
  assert abs(np.mean(told % 2) - 0.5) < 0.025


def test_rounding_is_within_what_the_noise_is_raised_by():
  # The largest that two roundings can move d numbers apart is g sqrt(d).
  for size, clip_norm in ((1, 1.0), (7, 0.3), (10_000, 2.0)):
    grid = secret_noise._grid_of(clip_norm, (tf.zeros([size]),)).numpy()
    assert np.log2(grid) == np.round(np.log2(grid))
    assert grid * size**0.5 <= secret_noise.ROUNDING * clip_norm
    assert 2 * grid * size**0.5 > secret_noise.ROUNDING * clip_norm


def test_scale_of_many_chunks():
  # 200,000 numbers: the standard error is 0.16 %; bounds at five.
  size = 200_000
  specs = (tf.TensorSpec([size]),)
  correlated = _correlated(specs, clip_norm=7.0, stddev=2.5)
  _, state, _ = correlated.get_noised_result(
    _zeros(specs), correlated.initial_global_state()
  )
  # The buffer has the noise of the first round before it is rounded.
  noise = state.buffers[0][0]
  query = secret_noise.SecretGaussianSumQuery(7.0, 2.5)
  (noised,) = _draw(query, (tf.fill([size], 0.5),))
  for numbers in (noise.numpy(), noised.numpy() - 0.5):
    assert abs(numbers.std() / 2.5 - 1.0) < 0.008
    assert abs(numbers.mean()) < 5 * 2.5 / size**0.5
  assert len(np.unique(noise)) > 0.98 * size


def test_seeds_wrap_around():
  # The words may start anywhere.
  correlated = _correlated(_SPECS, clip_norm=1.0, stddev=1.0)
  state = correlated.initial_global_state()
  seeds = tf.constant([tf.int64.max] * 2, tf.int64)
  state = state._replace(
    generator_state=state.generator_state._replace(seeds=seeds)
  )
  noise, state, _ = correlated.get_noised_result(_zeros(_SPECS), state)
  np.testing.assert_array_equal(
    state.generator_state.seeds, [tf.int64.min + len(_SPECS) - 1] * 2
  )
  assert all(np.all(np.isfinite(tensor)) for tensor in noise)


def test_a_graph_has_the_arithmetic_of_noise_once_for_all_tensors():
  @tf.function
  def add_noise(*tensors: tf.Tensor):
    seeds = tf.constant([1, 2], tf.int64)
    return secret_noise.add_noise(tensors, seeds, 1.0, 1.0)

  specs = [tf.TensorSpec([size], tf.int64) for size in range(1, 9)]
  graph = add_noise.get_concrete_function(*specs).graph
  operations = [operation.type for operation in graph.get_operations()]
  assert "Log" not in operations
  assert operations.count("PartitionedCall") == len(specs)
  library = graph.as_graph_def().library.function
  logarithms = [
    node for f in library for node in f.node_def if node.op == "Log"
  ]
  assert len(logarithms) == 1
