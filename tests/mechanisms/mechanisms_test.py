"""What every aggregator has to show: clipping, noise, reports, seeds, state."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tree as nest

from tests.mechanisms import cases
from tests.mechanisms import clipping_theory
from tests.mechanisms import noise_theory
from tests.mechanisms import released
from tff_fedemb.mechanisms import registry
from tff_fedemb.mechanisms import secret_noise

_ROUNDS = 16


def _multiplier_of_sum(name):
  # The count's noise has s = 0.05 x 100 = 5, and 6^-2 = 7.5^-2 + (2 x 5)^-2.
  return 7.5 if cases.adapts(name) else 3.0


def _noisy(name, options):
  """Options of an aggregator with noise for `_ROUNDS` rounds."""
  return {
    "rounds": _ROUNDS,
    "min_separation": 4,
    "noise_multiplier": 6.0 if cases.adapts(name) else 3.0,
    **released.CONFIG,
    **options,
  }


@pytest.fixture(name="noisy", scope="module")
def _create_noisy(create_aggregation):
  """Creates an aggregator with noise, the same one for all tests."""
  return lambda name, options: create_aggregation(
    name, shapes=released.LARGE, **_noisy(name, options)
  )


def _check_counts(rounds, updates, clip_norms):
  np.testing.assert_allclose(rounds.column("clip_norm"), clip_norms, rtol=1e-5)
  for report, round_updates, clip_norm in zip(
    rounds.reports, updates, clip_norms, strict=True
  ):
    norms = sorted(np.linalg.norm(update) for update in round_updates)
    assert report["num_clients"] == len(norms)
    clipped = sum(norm > clip_norm for norm in norms) / max(len(norms), 1)
    assert report["clipped_share"] == pytest.approx(clipped, abs=1e-6)
    median = norms[(len(norms) - 1) // 2] if norms else 0.0
    assert report["median_update_norm"] == pytest.approx(median, rel=0.003)


@pytest.mark.parametrize(("name", "options"), cases.params("clipping"))
def test_without_noise_rounds_are_those_of_clipping_alone(
  create_aggregation, name, options
):
  aggregation = create_aggregation(
    name, rounds=_ROUNDS, min_separation=4, **released.CONFIG, **options
  )
  updates = clipping_theory.draw_updates()
  known = registry.AGGREGATORS[name]
  clip_norms = [released.CLIP_NORM if known.clips else math.inf] * len(updates)
  if cases.adapts(name):
    clip_norms = clipping_theory.adapted_clip_norms(updates, **options)
    assert len(set(clip_norms)) > 2
  rounds = aggregation.run(updates)
  np.testing.assert_allclose(
    rounds.means,
    clipping_theory.clipped_means(updates, clip_norms),
    rtol=1e-4,
    atol=1e-7,
  )
  _check_counts(rounds, updates, clip_norms)
  np.testing.assert_array_equal(rounds.column("noise_stddev_of_mean"), 0.0)
  assert np.all(np.isposinf(rounds.column("signal_to_noise")))


@pytest.mark.parametrize(("name", "options"), cases.params("noisy"))
def test_noise(noisy, name, options):
  """Noise has the variances and covariances of R Z over rounds, and is fresh.

  False alarms: once in 10^6 runs at most, see `noise_theory.alarms`; what makes
  an alarm is in `noise_theory_test`.
  """
  aggregation = noisy(name, options)
  matrix = noise_theory.noise_matrix(aggregation.mechanism.strategy, _ROUNDS)
  noise = aggregation.measure_noise(_ROUNDS, _multiplier_of_sum(name))
  assert not noise_theory.alarms(noise, matrix)
  # Which is worth something only if the strategy is not the trivial one.
  strategy = aggregation.mechanism.strategy
  if strategy is not None and 1 not in options.values():
    assert noise_theory.alarms(noise, np.eye(_ROUNDS))
    assert noise_theory.alarms(noise, matrix[::-1])


@pytest.mark.parametrize(("name", "options"), cases.params("once"))
def test_reports(noisy, name, options):
  aggregation = noisy(name, options)
  updates = clipping_theory.draw_updates(released.LARGE_SIZE)
  rounds = aggregation.run(updates)
  clip_norms = rounds.column("clip_norm")
  assert (np.ptp(clip_norms) > 0.0) == cases.adapts(name)
  _check_counts(rounds, updates, clip_norms)
  matrix = noise_theory.noise_matrix(aggregation.mechanism.strategy, _ROUNDS)
  stddevs = np.linalg.norm(matrix, axis=1)
  stated = (
    _multiplier_of_sum(name)
    * clip_norms
    * stddevs[: len(updates)]
    / released.CLIENTS_PER_ROUND
  )
  np.testing.assert_allclose(
    rounds.column("noise_stddev_of_mean"), stated, rtol=1e-5
  )
  squares = np.sum(np.square(rounds.means), axis=1)
  ratios = squares / (aggregation.model_size * np.square(stated))
  # The root has no bounded slope at 0.
  np.testing.assert_allclose(
    np.square(rounds.column("signal_to_noise")),
    np.maximum(ratios - 1.0, 0.0),
    rtol=1e-4,
    atol=1e-4,
  )


@pytest.mark.parametrize(("name", "options"), cases.params("once"))
def test_every_run_has_noise_of_its_own(noisy, name, options):
  """Also under the program's seed.

  False alarms: none to speak of. Two runs whose noise was drawn independently
  are equal in all their numbers once in 10^30 times at most.
  """
  aggregation = noisy(name, options)
  runs = []
  # Neither what is compiled nor a session may decide.
  for starts_anew in (True, False, True):
    tf.random.set_seed(1)
    if starts_anew:
      aggregation.forget_sessions()
    runs.append(aggregation.run_on_zeros(3, aggregation.initialize()).means)
  for i, run in enumerate(runs):
    for another in runs[:i]:
      assert np.all(np.any(run != another, axis=1))


@pytest.mark.parametrize(
  ("name", "options"), cases.params("once", correlated=True)
)
def test_state_determines_the_noise(noisy, name, options):
  aggregation = noisy(name, options)
  updates = clipping_theory.draw_updates(released.LARGE_SIZE)
  whole = aggregation.run(updates)
  for start in (1, 4, 6):
    saved = aggregation.save(whole.states[start - 1])
    # As a checkpoint: nothing but numbers, and no memory of its own.
    copied = nest.map_structure(
      lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf,
      saved,
    )
    resumed = aggregation.run(updates[start:], aggregation.load(copied))
    np.testing.assert_array_equal(resumed.means, whole.means[start:])
  # Its seed decides; the next round's noise may have been drawn before.
  state = whole.states[0]

  def shift(leaf):
    array = np.asarray(leaf)
    return array + 1_000 if array.dtype == np.int64 else leaf

  shifted = aggregation.load(nest.map_structure(shift, aggregation.save(state)))
  first, second = (
    aggregation.run_on_zeros(3, start).means[-1] for start in (state, shifted)
  )
  # Both are on a grid, where a number in a million is equal by chance.
  assert np.mean(first != second) > 0.99


@pytest.mark.parametrize(
  ("name", "options"), cases.params("once", correlated=True)
)
def test_copies_of_a_state_go_on_with_noise_of_their_own(noisy, name, options):
  """What was remembered of earlier rounds stays: the law is that of one run.

  False alarms: as of `test_noise`.
  """
  aggregation = noisy(name, options)
  start, left = 5, _ROUNDS - 5
  first = aggregation.run_on_zeros(start)
  saved = aggregation.save(first.states[-1])
  runs = []
  for key in ([2**62, -5], [2**62, -5], secret_noise.draw_key()):
    state = aggregation.load(secret_noise.go_on_otherwise(saved, key))
    runs.append(aggregation.run_on_zeros(left, state))
  np.testing.assert_array_equal(runs[0].means, runs[1].means)
  unmixed = aggregation.run_on_zeros(left, first.states[-1])
  for i, run in enumerate((*runs[1:], unmixed)):
    for another in (*runs[1:], unmixed)[:i]:
      assert np.mean(run.means != another.means) > 0.99
  if not cases.adapts(name):
    scale = _multiplier_of_sum(name) * released.CLIP_NORM
    means = np.concatenate([first.means, runs[-1].means])
    noise = means * released.CLIENTS_PER_ROUND / scale
    matrix = noise_theory.noise_matrix(aggregation.mechanism.strategy, _ROUNDS)
    noise = noise.reshape(_ROUNDS, len(released.LARGE), -1)
    assert not noise_theory.alarms(noise, matrix)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    param
    for param in cases.params("once", correlated=True)
    # Adaptive clipping has two generators.
    if not cases.adapts(param.values[0])
  ],
)
def test_no_seed_is_used_twice_and_the_state_stays_small(noisy, name, options):
  # The seeds of a round begin where those of the round before ended: two
  # tensors for every row of Z, of which a round has one.
  aggregation = noisy(name, options)
  states = [aggregation.first_state, *aggregation.run_on_zeros(_ROUNDS).states]
  seeds = [aggregation.seeds(state) for state in states]
  assert all(len(found) == 1 and found[0].shape == (2,) for found in seeds)
  np.testing.assert_array_equal(np.diff(seeds, axis=0), 2)
  # A tree of 16 rounds makes 5 nodes and keeps at most 4 between rounds.
  most = aggregation.mechanism.strategy.model_copies(_ROUNDS)
  assert most - 1 <= max(map(aggregation.model_copies, states)) <= most
