"""Tests of the noise that a target epsilon takes."""

import math

import dp_accounting
import pytest

from tests.privacy import gaussian
from tff_fedemb.features import budget as budget_lib

_DELTA = 1e-5


def _calibrate(*releases, epsilon=1.0, delta=_DELTA, split=()):
  releases = budget_lib.with_shares(releases, split or {})
  return budget_lib.calibrate(releases, epsilon=epsilon, delta=delta)


def test_split_by_hand():
  # Shares 1 and 3, the latter in 4 equal pieces: of the zCDP 1 / (2 z^2) the
  # first has 1 / (8 z^2) = 1 / (2 (2 z)^2), each of the pieces 3 / (32 z^2).
  budget = _calibrate(
    budget_lib.PlannedRelease("once"),
    budget_lib.PlannedRelease("steps", 3.0, 4),
  )
  once = budget.noise_multipliers["once"]
  steps = budget.noise_multipliers["steps"]
  assert steps / once == pytest.approx(math.sqrt(16 / 3) / 2, rel=1e-12)
  scale = once / 2
  assert 1 / (2 * scale**2) == pytest.approx(
    1 / (2 * once**2) + 4 / (2 * steps**2), rel=1e-12
  )
  assert budget.epsilon == pytest.approx(
    gaussian.exact_epsilon([scale], _DELTA), rel=1e-9
  )
  assert budget.accountant == "gaussian"
  event = dp_accounting.GaussianDpEvent(steps)
  event = dp_accounting.SelfComposedDpEvent(event, 4)
  assert budget.event == dp_accounting.ComposedDpEvent(
    [dp_accounting.GaussianDpEvent(once), event]
  )


def test_split_replaces_shares():
  # Shares are relative.
  releases = (
    budget_lib.PlannedRelease("a", 0.2),
    budget_lib.PlannedRelease("b", 0.2),
  )
  budget = _calibrate(*releases, split={"a": 1.8})
  ratio = budget.noise_multipliers["b"] / budget.noise_multipliers["a"]
  assert ratio == pytest.approx(3.0, rel=1e-12)
  assert [release.share for release in budget.releases] == [1.8, 0.2]
  # It moves noise, and costs nothing.
  assert budget.epsilon == pytest.approx(_calibrate(*releases).epsilon, 1e-3)


@pytest.mark.parametrize(
  ("epsilon", "delta"),
  [(0.01, 1e-5), (0.3, 1e-9), (1, 1e-3), (8.0, 1e-6), (100, 1e-5)],
)
def test_target_is_met_from_below(epsilon, delta):
  budget = _calibrate(
    budget_lib.PlannedRelease("a", 0.3),
    budget_lib.PlannedRelease("b", 0.7, 20),
    epsilon=epsilon,
    delta=delta,
  )
  multipliers = budget.noise_multipliers
  exact = gaussian.exact_epsilon(
    [multipliers["a"]] + [multipliers["b"]] * 20, delta
  )
  assert epsilon * (1 - 1e-3) < exact <= epsilon * (1 + 1e-9)
  assert budget.epsilon == pytest.approx(exact, rel=1e-6)
  assert budget.epsilon <= epsilon


@pytest.mark.parametrize(
  ("epsilon", "probability", "count", "share"),
  [(0.2, 0.5, 2, 1.0), (0.1, 0.5, 10, 0.1), (1.0, 0.05, 100, 0.1)],
)
def test_sampled_release(epsilon, probability, count, share):
  budget = _calibrate(
    budget_lib.PlannedRelease("once", share),
    budget_lib.PlannedRelease("steps", 1.0, count, probability),
    epsilon=epsilon,
  )
  once = budget.noise_multipliers["once"]
  steps = budget.noise_multipliers["steps"]
  ratio = probability * math.sqrt(count * share)
  assert steps / once == pytest.approx(ratio, rel=1e-12)
  assert budget.accountant == "pld"
  sampled = dp_accounting.PoissonSampledDpEvent(
    probability, dp_accounting.GaussianDpEvent(steps)
  )
  sampled = dp_accounting.SelfComposedDpEvent(sampled, count)
  event = dp_accounting.ComposedDpEvent(
    [dp_accounting.GaussianDpEvent(once), sampled]
  )
  assert budget.event == event
  pld = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(_DELTA)
  assert budget.epsilon == pytest.approx(pld, rel=1e-9)
  # The search itself is to 1e-3 of the scale.
  assert epsilon * (1 - 5e-3) < pld <= epsilon
  # Sampling helps, and RDP is a bound from above, not far from the truth.
  assert pld < gaussian.exact_epsilon([once, *[steps] * count], _DELTA)
  rdp = dp_accounting.rdp.RdpAccountant().compose(event)
  assert pld < rdp.get_epsilon(_DELTA) < 1.6 * epsilon


@pytest.mark.parametrize("epsilon", [0.01, 0.001])
def test_small_epsilons_take_no_more_noise_than_they_have_to(epsilon):
  release = budget_lib.PlannedRelease("steps", 1.0, 10, 0.1)
  budget = _calibrate(release, epsilon=epsilon)
  # On a grid that is finer still.
  pld = dp_accounting.pld.PLDAccountant(
    value_discretization_interval=epsilon / 1000
  ).compose(budget.event)
  assert epsilon * (1 - 1e-2) < pld.get_epsilon(_DELTA) <= epsilon
  assert epsilon * (1 - 1e-2) < budget.epsilon <= epsilon
  assert budget.epsilon == budget_lib.epsilon_of(
    budget.event, _DELTA, accountant="pld"
  )


def test_delta_must_be_below_the_chance_to_be_drawn(monkeypatch):
  # Quick, in return for more noise.
  monkeypatch.setattr(budget_lib, "_SLOW_PLD", 4e-4)
  monkeypatch.setattr(budget_lib, "_PLD_INTERVALS", (1e-3,))
  # 1 - 0.9^2 0.8 = 0.352.
  releases = (
    budget_lib.PlannedRelease("a", 1.0, 2, 0.1),
    budget_lib.PlannedRelease("b", 1.0, 1, 0.2),
  )
  for delta in (0.353, 0.9):
    with pytest.raises(
      ValueError, match=f"delta must be below 0.352, .* found {delta}"
    ):
      _calibrate(*releases, delta=delta)
  # Just below it the search ends, and where an example is in a sum for sure.
  sampled = budget_lib.PlannedRelease("sampled", 1.0, 1, 0.5)
  full = budget_lib.PlannedRelease("full")
  for releases, delta in (([sampled], 0.499), ([sampled, full], 0.6)):
    budget = _calibrate(*releases, delta=delta)
    assert budget.epsilon <= 1
    assert min(budget.noise_multipliers.values()) > 0


@pytest.mark.parametrize("delta", [None, 1e-5])
def test_no_noise(delta):
  budget = _calibrate(
    budget_lib.PlannedRelease("a"),
    budget_lib.PlannedRelease("b", sampling_probability=0.1),
    epsilon=math.inf,
    delta=delta,
  )
  assert budget.noise_multipliers == {"a": 0.0, "b": 0.0}
  assert budget.epsilon == math.inf
  assert budget.event == dp_accounting.ComposedDpEvent(
    [dp_accounting.NonPrivateDpEvent()] * 2
  )


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"delta": None}, "delta must be given .* found nothing"),
    ({"epsilon": math.inf, "delta": 2.0}, "delta must be in .* found 2.0"),
    ({"epsilon": 0.0}, "epsilon must be in .* found 0.0"),
    ({"epsilon": 101}, "epsilon must be in .* found 101"),
    ({"epsilon": math.nan}, "epsilon must be in .* found nan"),
    ({"epsilon": -math.inf}, "epsilon must be in .* found -inf"),
    ({"epsilon": "1"}, "epsilon must be in .* found '1'"),
    ({"split": {"sum": 1.0}}, r"split must .* method, sums, found 'sum'"),
    ({"split": {"sums": 0.0}}, "split must be positive, found 0.0"),
  ],
)
def test_calibrate_refuses(options, message):
  with pytest.raises(ValueError, match=message):
    _calibrate(budget_lib.PlannedRelease("sums"), **options)
