"""Tests of the privacy ledger and its report: figures, words, resumption."""

import dataclasses
import json
import math

import dp_accounting
import pytest

from tests.participation import traces
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import participation_trace
from tff_fedemb.participation import poisson

_ONE = composition.Noise(1.0)
_TWO = composition.Noise(2.0)
_POISSON = poisson.Poisson(1_000, 10.0)
_POISSON_GROUPS = poisson.Poisson(1_000, 10.0, users_per_client=2)
_FIXED_SIZE = fixed_size.FixedSize(1_000, 10)
_MIN_SEPARATION = min_separation.MinSeparation(1_000, 10)


def _ledger(*noises, participation=_POISSON, delta=1e-5, accountants=()):
  ledger = ledger_lib.Ledger(
    participation, delta=delta, accountants=accountants
  )
  for noise in noises:
    ledger = ledger.with_rounds(noise)
  return ledger


def test_the_noise_of_all_rounds():
  assert _ledger(_ONE, _ONE).noise == composition.Noise(1.0)
  for ledger in (_ledger(), _ledger(_ONE, _TWO)):
    with pytest.raises(ValueError, match="the same noise in all rounds"):
      _ = ledger.noise


def test_a_round_that_ran_again_costs_more_than_another_one():
  """The same users twice: the composition is amplified, not each by itself."""
  once = _ledger(_ONE, participation=_FIXED_SIZE)
  twice = _ledger(participation=_FIXED_SIZE).with_rounds(_ONE, times=2)
  accountant = dp_accounting.rdp.RdpAccountant(
    neighboring_relation=_FIXED_SIZE.neighboring_relation
  )
  composed = dp_accounting.GaussianDpEvent(1 / 2 / math.sqrt(2))
  accountant.compose(_FIXED_SIZE.sampled_event(composed))
  assert twice.tightest_epsilon() == pytest.approx(accountant.get_epsilon(1e-5))
  other = once.with_rounds(_ONE)
  epsilons = [each.tightest_epsilon() for each in (once, other, twice)]
  assert epsilons == sorted(set(epsilons))
  assert (twice.rounds, twice.num_runs) == (1, 2)
  assert twice.noise == once.noise
  assert ledger_lib.Ledger.from_json(twice.to_json()) == twice


def test_runs_are_encoded_by_length():
  ledger = _ledger(*[_ONE] * 3, *[_TWO] * 2, _ONE)
  assert [(each.noise, each.count) for each in ledger.history] == [
    (_ONE, 3),
    (_TWO, 2),
    (_ONE, 1),
  ]
  assert ledger.rounds == 6
  with pytest.raises(ValueError, match="noise must be"):
    ledger.with_rounds(dp_accounting.LaplaceDpEvent(1.0))


def test_no_rounds_cost_nothing():
  report = _ledger().report()
  assert report.rounds == report.epsilon == 0
  assert report.noise_multiplier is None
  assert "no round was recorded" in report.warnings


def test_curve_keeps_the_order_it_was_asked_in():
  ledger = _ledger(*[_TWO] * 3, *[_ONE] * 3, accountants=("rdp",))
  half = _ledger(*[_TWO] * 3, accountants=("rdp",)).tightest_epsilon()
  backwards = ledger.epsilon_curve([6, 3, 0, 3], accountant="rdp")
  assert backwards == [ledger.tightest_epsilon(), half, 0, half]
  by_pld = _ledger(_TWO, _TWO, accountants=("pld",)).tightest_epsilon()
  assert ledger.epsilon_curve([2], accountant="pld") == [by_pld]


def test_curve_of_bins_at_a_delta_that_rounding_hides():
  bins = balls_in_bins.BallsInBins(1_000, 100)
  ledger = _ledger(*[_TWO] * 12, participation=bins, delta=1e-20)
  report = ledger.report()
  assert report.accountant == "rdp"
  curve = ledger.epsilon_curve([5, 12], accountant=report.accountant)
  assert 0.0 < curve[0] < curve[1] == report.epsilon


def test_a_resumed_ledger_is_the_uninterrupted_one():
  # Values without a short decimal form, a break in the middle of a run.
  noises = [composition.Noise(8 / 3)] * 7 + [
    composition.Noise(0.1 + 0.2 + 3.0)
  ] * 5
  uninterrupted = _ledger(*noises, delta=1 / 3e5)
  half = _ledger(*noises[:9], delta=1 / 3e5)
  # As a file has it.
  resumed = ledger_lib.Ledger.from_json(json.loads(json.dumps(half.to_json())))
  assert resumed == half
  assert resumed != uninterrupted
  for noise in noises[9:]:
    resumed = resumed.with_rounds(noise)
  assert resumed == uninterrupted


@pytest.mark.parametrize(
  "noiseless",
  [composition.Noise(0.0), composition.Noise(0)],
)
def test_a_round_without_noise_is_for_ever(noiseless):
  ledger = _ledger(_ONE, noiseless, _ONE, participation=_POISSON_GROUPS)
  assert ledger.epsilon_curve([1], accountant="rdp")[0] < math.inf
  assert ledger.tightest_epsilon() == math.inf
  restored = ledger_lib.Ledger.from_json(ledger.to_json())
  assert restored == ledger
  report = restored.report()
  assert report.epsilon == math.inf
  assert report.unit_is_virtual_client_epsilon == math.inf
  assert report.noise_multiplier == 0
  assert any("nothing is protected" in text for text in report.warnings)
  assert json.loads(json.dumps(report.to_json()))["epsilon"] == "inf"


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"history": [{"count": 1, "scale": 1.0}]}, "scale must be a field"),
    ({"history": [{"count": 1, "noise": {"multiplier": -1}}]}, "noise_multipl"),
    ({"delta": 2}, "delta must be"),
  ],
)
def test_what_a_stored_ledger_must_not_hold(change, message):
  values = _ledger(_ONE).to_json() | change
  with pytest.raises(ValueError, match=message):
    ledger_lib.Ledger.from_json(values)


@pytest.mark.parametrize(
  "participation",
  [_POISSON, _POISSON.with_known_schedule(), _MIN_SEPARATION],
)
def test_tightest_epsilon_is_that_of_the_report_to_the_digit(
  participation, tmp_path
):
  """Arithmetic included, and what the schedule says of the users."""
  path, rounds = tmp_path / "trace", 60
  traces.write(
    path, 1_000, [participation.sample(r, key=1) for r in range(rounds)]
  )
  ledger = dataclasses.replace(
    _ledger(participation=participation),
    round_sum=composition.RoundSum(1.0, 8.0, 25_000_000),
  ).with_rounds(composition.Noise(8.0), rounds)
  with participation_trace.TraceReader(path) as trace:
    report = ledger.report(trace)
    assert ledger.tightest_epsilon(trace) == report.epsilon
  assert report.arithmetic_epsilon > 0.1
  if participation is _POISSON:
    # So are the curves over rounds.
    curve = ledger.epsilon_curve([rounds], accountant=report.accountant)
    assert curve == [report.epsilon]


_FOUR = composition.Rounds(count=50, noise=composition.Noise(4.0))


def _report(claim, *history, delta=1e-5, accountants=()):
  return report_lib.create_report(
    composition.Account(
      claim, delta=delta, accountants=accountants, history=history
    )
  )


def test_report_of_single_user_poisson():
  ledger = ledger_lib.Ledger(_POISSON, delta=1e-5).with_rounds(_TWO, 50)
  report = ledger.report()
  epsilons = {
    name: ledger.epsilon_curve([50], accountant=name)[0]
    for name in ("rdp", "pld")
  }
  assert report.epsilon_by_accountant == epsilons
  assert (report.accountant, report.epsilon) == ("pld", epsilons["pld"])
  assert report.unit_is_virtual_client_epsilon is None


@pytest.mark.parametrize("kind", [poisson.Poisson, fixed_size.FixedSize])
def test_a_draw_of_everybody_amplifies_nothing(kind):
  rounds = composition.Rounds(count=3, noise=composition.Noise(4.0))
  report = _report(kind(20, 20), rounds, delta=1e-3)
  assert report.amplification == "none: the draw leaves nobody out"
  assert "amplified" not in report.statement
  fewer = _report(kind(20, 19), rounds, delta=1e-3)
  assert "amplified by the sampling" in fewer.statement
  assert kind(20, 19).breaks_if != kind(20, 20).breaks_if


def test_a_known_schedule_costs_what_it_costs():
  """A round draws 131,072 of 10 million users, in virtual clients of 32."""
  secret = poisson.Poisson(10_000_000, 131_072, users_per_client=32)
  rounds = composition.Rounds(count=800, noise=composition.Noise(1.28))
  delta = 1e-7
  amplified = _report(secret, rounds, delta=delta, accountants=("rdp",))
  assert amplified.epsilon == pytest.approx(10.59, abs=5e-3)
  assert amplified.amplification.startswith("by sampling, from a secret key")
  assert amplified.epsilon_with_secret_sampling is None
  known = secret.with_known_schedule(10)
  report = _report(known, rounds, delta=delta)
  by_rdp = report.epsilon_by_accountant["rdp"]
  assert by_rdp == pytest.approx(39.0, abs=0.05)
  assert report.epsilon == report.epsilon_by_accountant["gaussian"] < by_rdp
  assert report.max_participations == 10
  # Beside it what a secret draw would be worth, by PLD.
  assert 9 < report.epsilon_with_secret_sampling < amplified.epsilon
  assert any("taken to be known" in text for text in report.warnings)


def test_report_names_both_readings():
  report = _report(_FIXED_SIZE, _FOUR)
  account = composition.Account(_FIXED_SIZE, delta=1e-5, history=(_FOUR,))
  (expected,) = epsilon_lib.epsilon_by_accountant(
    account, sensitivity_in_clip_norms=1
  ).values()
  assert report.unit_is_virtual_client_epsilon == expected
  assert expected < report.epsilon
  assert report.sensitivity_in_clip_norms == 2
  assert report.noise_multiplier == 4
  for part in (
    f"{report.epsilon:.4g}",
    f"{expected:.4g}",
    report.neighboring_relation,
    _FIXED_SIZE.sampling,
    "z / 2",
    "50 x ",
    "GaussianDpEvent(noise_multiplier=2.0)",
  ):
    assert part in report.statement


@pytest.mark.parametrize(
  ("claim", "noise", "delta", "warnings"),
  [
    (_POISSON, 1.28, 1e-5, []),
    (_POISSON, 0.02, 1e-5, ["pld not run", "computed noise has gaps"]),
    (poisson.Poisson(10**6, 1.0), 1e3, 1e-7, ["epsilon is 0"]),
    (poisson.Poisson(5, 1.0), 1.28, 0.15, ["5 users are too few to hide one"]),
    (_POISSON, 1.28, 1e-3, ["delta 0.001 is not below 1 / num_users = 0.001"]),
  ],
)
def test_what_deserves_a_second_look_is_told(claim, noise, delta, warnings):
  rounds = composition.Rounds(count=10, noise=composition.Noise(noise))
  found = sorted(_report(claim, rounds, delta=delta).warnings)
  assert len(found) == len(warnings)
  for warning, text in zip(sorted(warnings), found, strict=True):
    assert warning in text
