"""Tests of every aggregator: clipping, divisor, noise, report, privacy."""

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow_federated as tff

from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry

_TYPE = tff.types.to_type(((np.float32, [2]), (np.float32, [3])))
_CLIENTS_PER_ROUND = 4.0
_CLIP_NORM = 2.0


def _create(name, **options):
  return registry.create_mechanism(
      name,
      mechanism.AggregatorConfig(
          _CLIENTS_PER_ROUND, clip_norm=_CLIP_NORM, **options
      ),
  )


def _update(norm, position=0):
  vector = np.zeros(5, np.float32)
  vector[position] = norm
  return (vector[:2], vector[2:])


def _flat(mean):
  return np.concatenate([np.asarray(tensor) for tensor in mean])


# Building a process takes TFF a second: once per aggregator.
@pytest.fixture(name="processes", scope="module")
def _processes():
  noiseless = {
      name: _create(name).factory.create(_TYPE)
      for name in registry.AGGREGATORS
  }
  noiseless["gaussian_noise"] = _create(
      "gaussian", noise_multiplier=3.0
  ).factory.create(_TYPE)
  return noiseless


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Norms 1, 2 and 6 in three coordinates; only the last is clipped, and
        # the divisor is 4 although 3 clients took part.
        ("none", [0.25, 0.5, 1.5]),
        ("clip_only", [0.25, 0.5, 0.5]),
        ("gaussian", [0.25, 0.5, 0.5]),
    ],
)
def test_sum_is_clipped_and_divided_by_the_expected_count(
    processes, name, expected
):
  process = processes[name]
  output = process.next(
      process.initialize(), [_update(1.0, 0), _update(2.0, 1), _update(6.0, 4)]
  )
  np.testing.assert_allclose(
      _flat(output.result), [*expected[:2], 0.0, 0.0, expected[2]], rtol=1e-6
  )


def test_clipping_is_joint_over_tensors(processes):
  process = processes["clip_only"]
  update = (np.array([3.0, 0.0], "f4"), np.array([0.0, 4.0, 0.0], "f4"))
  output = process.next(process.initialize(), [update])
  np.testing.assert_allclose(
      _flat(output.result) * _CLIENTS_PER_ROUND,
      [1.2, 0.0, 0.0, 1.6, 0.0],
      rtol=1e-6,
  )


@pytest.mark.parametrize("name", ["none", "clip_only", "gaussian"])
def test_round_report(processes, name):
  process = processes[name]
  report = process.next(
      process.initialize(),
      [_update(0.5), _update(1.0), _update(3.0), _update(8.0), _update(1.5)],
  ).measurements
  assert report["num_clients"] == 5
  clipped_share = 0.0 if name == "none" else 0.4
  assert report["clipped_share"] == pytest.approx(clipped_share)
  assert report["median_update_norm"] == pytest.approx(1.5, rel=0.003)
  assert report["noise_stddev_of_mean"] == 0.0
  assert math.isinf(report["signal_to_noise"])


def test_median_of_few_and_of_zero_updates(processes):
  process = processes["none"]
  for norms, median in (([0.0], 0.0), ([0.0, 0.0, 7.0], 0.0), ([1e-5], 1e-5)):
    report = process.next(
        process.initialize(), [_update(norm) for norm in norms]
    ).measurements
    assert report["median_update_norm"] == pytest.approx(median, rel=0.003)


def test_noise_has_the_stated_scale_and_is_fresh(processes):
  process = processes["gaussian_noise"]
  state = process.initialize()
  rounds, ratios = [], []
  for _ in range(200):
    output = process.next(state, [_update(0.0)])
    state = output.state
    rounds.append(_flat(output.result))
    ratios.append(float(output.measurements["signal_to_noise"]))
  noise = np.array(rounds)
  stated = float(output.measurements["noise_stddev_of_mean"])
  assert stated == pytest.approx(3.0 * _CLIP_NORM / _CLIENTS_PER_ROUND)
  # 1,000 numbers: the sample's standard deviation is within 2.2 % (one
  # standard error), bounds at five; false alarm below 1e-6.
  assert noise.std() == pytest.approx(stated, rel=5 * 0.0224)
  assert abs(noise.mean()) < 5 * stated / math.sqrt(1000)
  # Fresh for each round and each number.
  assert np.unique(noise).size == noise.size
  correlation = np.corrcoef(noise.T) - np.eye(5)
  assert np.abs(correlation).max() < 5 / math.sqrt(200)
  lagged = np.mean(noise[1:] * noise[:-1]) / stated**2
  assert abs(lagged) < 5 / math.sqrt(995)
  # Nothing but noise: the ratio is small and often 0.
  assert np.median(ratios) < 1.0


def test_signal_to_noise_of_a_known_signal():
  name, norm = "gaussian", 200.0
  process = registry.create_mechanism(
      name,
      mechanism.AggregatorConfig(1.0, clip_norm=norm, noise_multiplier=0.01),
  ).factory.create(_TYPE)
  output = process.next(process.initialize(), [_update(norm)])
  # |mean| = 200 against a noise of norm 2 sqrt(5), in expectation.
  assert output.measurements["signal_to_noise"] == pytest.approx(
      200.0 / (2.0 * math.sqrt(5)), rel=0.1
  )


def test_removing_a_client_moves_the_sum_by_at_most_the_clip_norm(processes):
  process = processes["gaussian"]
  generator = np.random.default_rng(0)
  for _ in range(5):
    updates = [
        (
            generator.normal(size=2).astype("f4") * 10,
            generator.normal(size=3).astype("f4"),
        )
        for _ in range(3)
    ]
    state = process.initialize()
    with_all = _flat(process.next(state, updates).result)
    without = _flat(process.next(state, updates[:-1]).result)
    moved = np.linalg.norm(with_all - without) * _CLIENTS_PER_ROUND
    assert moved <= _CLIP_NORM * (1 + 1e-5)


def test_events():
  assert _create("gaussian", noise_multiplier=1.5).round_event == (
      dp_accounting.GaussianDpEvent(1.5)
  )
  for name in registry.AGGREGATORS:
    assert _create(name).round_event == dp_accounting.NonPrivateDpEvent()


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
def test_privacy_is_documented(name):
  text = registry.AGGREGATORS[name].__doc__
  for word in ("Privacy:", "Unit", "Sensitivity", "DpEvent"):
    assert word in text


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("laplace", {}, "aggregator must be one of"),
        ("none", {"noise_multiplier": 1.0}, "must be 0 with aggregator none"),
        ("clip_only", {"noise_multiplier": 1.0}, "must be 0 with aggregator"),
        ("gaussian", {"noise_multiplier": -1.0}, "noise_multiplier must be at"),
        ("gaussian", {"clip_norm": -1.0}, "clip_norm must be positive"),
        ("gaussian", {"clients_per_round": 0}, "clients_per_round must be pos"),
    ],
)
def test_mistakes_are_named(name, options, message):
  options = {"clients_per_round": 4, **options}
  with pytest.raises(ValueError, match=message):
    registry.create_mechanism(name, mechanism.AggregatorConfig(**options))
