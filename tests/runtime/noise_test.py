"""Noise of the in-process runtime: its distribution, that of TFF's, freshness.

With noise two runtimes can agree in distribution only, unless it comes from a
seed in the state. The tests have a stated rate of false alarms, and tests of
their own that show what they would catch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.runtime import base

# A release with noise. Two tensors of `_LENGTH` numbers, so that noise which
# they share would be seen. The three clients' updates have these norms, in
# units of the clip norm: two are clipped. The divisor is not their number, and
# no two factors of mean or noise are equal, so that none passes for another.
_NORMS = ("0.25", "1.5", "3")
_LENGTH = 1000
_CLIP_NORM = 2.0
_NOISE_MULTIPLIER = 0.05
_CLIENTS_PER_ROUND = 5.0
_NUM_NOISY_ROUNDS = 100
_TRUE_MEAN = (
  sum(min(float(norm), 1.0) for norm in _NORMS)
  * _CLIP_NORM
  / np.sqrt(2 * _LENGTH)
  / _CLIENTS_PER_ROUND
)
_TRUE_STDDEV = _NOISE_MULTIPLIER * _CLIP_NORM / _CLIENTS_PER_ROUND
_FALSE_ALARM_RATE = 1e-6


def _build_release(
  aggregation: tff.templates.AggregationProcess,
  create_update: tff.Computation,
) -> tff.templates.IterativeProcess:
  """Rounds whose metrics are what an aggregation releases."""

  @tff.federated_computation(
    aggregation.initialize.type_signature.result,
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def _next(state, client_ids):
    updates = tff.federated_map(create_update, client_ids)
    output = aggregation.next(state, updates)
    return output.state, output.result

  return tff.templates.IterativeProcess(aggregation.initialize, _next)


def _pair_type(length: int) -> tff.Type:
  return tff.to_type([(np.float32, [length]), (np.float32, [length])])


def _build_noise_process(
  name: str = "gaussian",
  schedule: mechanism.Schedule = mechanism.ONE_ROUND,
  **options: Any,
) -> tff.templates.IterativeProcess:
  """Releases of one of our mechanisms."""

  @tff.tensorflow.computation(np.str_)
  def _update(client_id):
    norm = tf.strings.to_number(client_id) * _CLIP_NORM
    tensor = tf.fill([_LENGTH], norm / np.sqrt(2 * _LENGTH, dtype=np.float32))
    return [tensor, tensor]

  created = registry.AGGREGATORS[name](
    clients_per_round=_CLIENTS_PER_ROUND,
    clip_norm=_CLIP_NORM,
    noise_multiplier=_NOISE_MULTIPLIER,
    **options,
  ).create(schedule)
  return _build_release(created.factory.create(_pair_type(_LENGTH)), _update)


def _release(
  started: base.Runtime,
  process: tff.templates.IterativeProcess,
  num_rounds: int,
) -> np.ndarray:
  state = started.initialize(process)
  releases = []
  for _ in range(num_rounds):
    state, release = started.next(state, _NORMS)
    releases.append(release)
  return np.asarray(releases, np.float64)


@pytest.fixture(name="releases", scope="module")
def _releases(reference) -> dict[str, np.ndarray]:
  """Releases of both runtimes, `[rounds, tensor, number]`.

  Those in-process are of two runtimes, one after the other, since the second
  must not begin its noise where the first did.
  """
  process = _build_noise_process()
  halves = []
  for _ in range(2):
    with runtime.create_runtime("in_process") as started:
      halves.append(_release(started, process, _NUM_NOISY_ROUNDS // 2))
  return {
    "in_process": np.concatenate(halves),
    "tff": _release(reference, process, _NUM_NOISY_ROUNDS),
  }


def _two_sided(distribution: Any, value: float) -> float:
  return 2.0 * min(distribution.cdf(value), distribution.sf(value))


def _test_against_theory(releases: np.ndarray) -> dict[str, float]:
  """P-values of independent numbers of N(true mean, (z C / m)^2)."""
  p_values = {}
  for index in range(2):
    numbers = releases[:, index].ravel()
    scaled = (numbers - _TRUE_MEAN) / _TRUE_STDDEV
    count = len(scaled)
    p_values |= {
      f"mean of tensor {index}": _two_sided(
        stats.norm(), scaled.mean() * np.sqrt(count)
      ),
      f"variance of tensor {index}": _two_sided(
        stats.chi2(count), np.square(scaled).sum()
      ),
      f"shape of tensor {index}": stats.kstest(scaled, "norm").pvalue,
    }
  return p_values


def _test_against_each_other(
  first: np.ndarray, second: np.ndarray
) -> dict[str, float]:
  """P-values of two samples of one normal distribution, whichever it is."""
  p_values = {}
  for index in range(2):
    numbers, others = first[:, index].ravel(), second[:, index].ravel()
    p_values |= {
      f"mean of tensor {index}": stats.ttest_ind(
        numbers, others, equal_var=False
      ).pvalue,
      f"variance of tensor {index}": _two_sided(
        stats.f(len(numbers) - 1, len(others) - 1),
        np.var(numbers, ddof=1) / np.var(others, ddof=1),
      ),
      f"shape of tensor {index}": stats.ks_2samp(numbers, others).pvalue,
    }
  return p_values


def _test_independence(*releases: np.ndarray) -> dict[str, float]:
  """P-values of noise that is fresh for each number, tensor, round and run."""
  # Any two tensors of all the rounds: noise that comes back, whenever.
  tensors = np.concatenate(releases).reshape(-1, _LENGTH)
  correlations = np.corrcoef(tensors)[np.triu_indices(len(tensors), k=1)]
  largest = np.abs(correlations).max()
  statistic = largest * np.sqrt((_LENGTH - 2) / (1.0 - largest**2))
  p_values = {
    "any two tensors": len(correlations)
    * _two_sided(stats.t(_LENGTH - 2), statistic)
  }
  # All pairs of a kind together: a correlation too weak to be seen in one.
  for run, release in enumerate(releases):
    for kind, first, second in (
      ("two tensors", release[:, 0], release[:, 1]),
      ("successive rounds", release[:-1], release[1:]),
      ("neighbours", release[..., :-1], release[..., 1:]),
    ):
      p_values[f"{kind} in run {run}"] = stats.pearsonr(
        first.ravel(), second.ravel()
      )[1]
  return p_values


def _alarms(p_values: Mapping[str, float]) -> dict[str, float]:
  """The p-values that are too small for all together to be by chance.

  With Bonferroni's correction: if everything is as it should be, there is any
  alarm at all at most with probability `_FALSE_ALARM_RATE`.
  """
  threshold = _FALSE_ALARM_RATE / len(p_values)
  # Not the other way around: NaN is an alarm.
  return {
    name: p_value
    for name, p_value in p_values.items()
    if not p_value >= threshold
  }


@pytest.mark.parametrize("name", ["in_process", "tff"])
def test_release_has_the_stated_distribution(name, releases):
  """Every number released is of N(true mean, (z C / m)^2).

  False alarms: once in 10^6 runs at most, Bonferroni over six sub-tests (z-test
  of the mean, chi-square of the variance and Kolmogorov-Smirnov of the shape,
  for each of two tensors of 100,000 numbers).

  Power: the variance of 100,000 numbers has a standard error of 0.45 %, and
  2.4 % off make an alarm. Noise whose standard deviation is 5 % too large or
  too small (10 % in the variance) is missed less often than once in 10^50 runs,
  3 % once in 10^15, 2 % once in 10^3. The mean has a standard error of 0.3 % of
  itself: 5 % off, of which the wrong divisor would be a multiple, is missed
  less often than once in 10^25, 3 % less often than once in 10^5.
  """
  assert not _alarms(_test_against_theory(releases[name]))


def test_release_is_distributed_as_that_of_tff(releases):
  """Both runtimes draw from one distribution.

  False alarms: once in 10^6 runs at most, Bonferroni over six sub-tests
  (Welch's t-test of the means, F-test of the variances and Kolmogorov-Smirnov
  with two samples, for each of two tensors of 100,000 numbers of either).

  Power: the ratio of the variances has a standard error of 0.63 %, and 3.3 %
  off make an alarm. Noise whose standard deviation differs by 5 % is missed
  less often than once in 10^20 runs, by 3 % once in 10^4.
  """
  assert not _alarms(
    _test_against_each_other(releases["in_process"], releases["tff"])
  )


def test_noise_is_fresh(releases):
  """No number of the noise tells of another one.

  False alarms: once in 10^6 runs at most, Bonferroni over seven sub-tests. One
  is the largest correlation among the pairs that 400 tensors make, with
  Bonferroni's correction for the pairs; the others pool a runtime's pairs of a
  kind. Normal numbers that are independent have correlations whose
  distribution is known exactly.

  Power: noise that comes back in any other round, tensor, run or runtime has a
  correlation of 1 where 0.22 makes an alarm; a correlation of 5 % between the
  tensors of a round, between successive rounds or between neighbours is missed
  less often than once in 10^20 runs, one of 3 % less often than once in 10^4.
  """
  assert not _alarms(
    _test_independence(releases["in_process"], releases["tff"])
  )


def _synthetic(seed: int, scale: float = 1.0) -> np.ndarray:
  """Releases as they should be, except for the level of the noise."""
  return np.random.default_rng(seed).normal(
    _TRUE_MEAN, scale * _TRUE_STDDEV, [_NUM_NOISY_ROUNDS, 2, _LENGTH]
  )


def test_sound_noise_raises_no_alarm():
  first, second = _synthetic(1), _synthetic(2)
  assert not _alarms(_test_against_theory(first))
  assert not _alarms(_test_against_each_other(first, second))
  assert not _alarms(_test_independence(first, second))


@pytest.mark.parametrize("scale", [0.95, 0.97, 1.03, 1.05])
def test_wrong_noise_level_raises_an_alarm(scale):
  wrong = _synthetic(1, scale)
  assert "variance of tensor 1" in _alarms(_test_against_theory(wrong))
  if abs(scale - 1.0) > 0.04:
    assert "variance of tensor 1" in _alarms(
      _test_against_each_other(wrong, _synthetic(2))
    )


def test_wrong_mean_or_shape_raises_an_alarm():
  sound, other = _synthetic(1), _synthetic(2)
  # 5 % more than the true mean.
  shifted = sound + 0.05 * _TRUE_MEAN
  assert "mean of tensor 0" in _alarms(_test_against_theory(shifted))
  assert "mean of tensor 0" in _alarms(
    _test_against_each_other(sound + 0.1 * _TRUE_MEAN, other)
  )
  # The same mean and variance, but another distribution.
  laplace = np.random.default_rng(1).laplace(
    _TRUE_MEAN, _TRUE_STDDEV / np.sqrt(2.0), sound.shape
  )
  assert "shape of tensor 0" in _alarms(_test_against_theory(laplace))
  assert "shape of tensor 0" in _alarms(
    _test_against_each_other(laplace, other)
  )


def test_stale_noise_raises_an_alarm():
  sound, other = _synthetic(1), _synthetic(2)
  repeated = sound.copy()
  repeated[70, 1] = sound[3, 0]
  assert set(_alarms(_test_independence(repeated, other))) == {
    "any two tensors"
  }
  shared = sound.copy()
  shared[:, 1] = 0.05 * (sound[:, 0] - _TRUE_MEAN) + sound[:, 1]
  assert "two tensors in run 0" in _alarms(_test_independence(shared, other))
  lingering = sound.copy()
  lingering[1:] += 0.05 * (sound[:-1] - _TRUE_MEAN)
  assert "successive rounds in run 1" in _alarms(
    _test_independence(other, lingering)
  )
  smooth = sound.copy()
  smooth[..., 1:] += 0.05 * (sound[..., :-1] - _TRUE_MEAN)
  assert "neighbours in run 0" in _alarms(_test_independence(smooth, other))


def test_noise_is_drawn_once():
  @tff.tensorflow.computation(np.str_)
  def _zeros(client_id):
    del client_id  # Unused.
    return [tf.zeros([100]), tf.zeros([100])]

  standard = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=1.0, clients_per_round=1.0, clip=1.0
  )
  process = _build_release(standard.create(_pair_type(100)), _zeros)
  draws = []
  for _ in range(2):
    with runtime.create_runtime("in_process", concurrent_clients=1) as started:
      state = started.initialize(process)
      for _ in range(2):
        state, noise = started.next(state, ["1", "2"])
        draws.extend(noise)
  # 2 sessions x 2 rounds x 2 tensors x 100 standard normal numbers. No two of
  # the tensors are the same; float32 repeats a number once in some 10^7 pairs.
  # False alarms: once in 10^9 runs, at 6.6 standard errors of either figure.
  assert len(np.unique(draws, axis=0)) == 8
  assert abs(np.mean(draws)) < 6.6 / np.sqrt(800.0)
  assert abs(np.std(draws) - 1.0) < 6.6 / np.sqrt(1600.0)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("tree", {"restart_every": 3}),
    pytest.param("adaptive_tree", {"restart_every": 3}, marks=pytest.mark.slow),
    ("blt", {}),
    pytest.param("banded", {}, marks=pytest.mark.slow),
  ],
)
def test_seeded_noise_is_the_same_in_both_runtimes(name, options, reference):
  num_rounds = 5
  process = _build_noise_process(
    name,
    mechanism.Schedule(num_rounds, min_separation=2),
    noise_seed=3,
    **options,
  )
  expected = _release(reference, process, num_rounds)
  with runtime.create_runtime("in_process") as started:
    found = _release(started, process, num_rounds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    # A run of one that goes on in the other.
    state = reference.initialize(process)
    for _ in range(2):
      state, _ = reference.next(state, _NORMS)
    state = started.load_state(reference.structured_state(state))
    for t in range(2, num_rounds):
      state, release = started.next(state, _NORMS)
      np.testing.assert_allclose(release, expected[t], rtol=1e-5, atol=1e-7)
  # There is noise, another one in each round and tensor.
  noise = (expected - _TRUE_MEAN).reshape(2 * num_rounds, _LENGTH)
  assert np.all(noise.std(axis=1) > 0.5 * _TRUE_STDDEV)
  assert len(np.unique(noise, axis=0)) == 2 * num_rounds
