"""Tests of the privacy ledger: composition and resumption."""

import dataclasses
import json
import math

import dp_accounting
import pytest

from tests.data import traces
from tff_fedemb.data import participation_trace
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import ledger as ledger_lib

_ONE = dp_accounting.GaussianDpEvent(1.0)
_TWO = dp_accounting.GaussianDpEvent(2.0)
_POISSON = poisson.Poisson(1_000, 10.0)
_POISSON_GROUPS = poisson.Poisson(1_000, 10.0, users_per_client=2)
_FIXED_SIZE = fixed_size.FixedSize(1_000, 10)
_MIN_SEPARATION = min_separation.MinSeparation(1_000, 10)


def _ledger(*events, participation=_POISSON, delta=1e-5, accountants=None):
  ledger = ledger_lib.Ledger(
    participation, delta=delta, accountants=accountants
  )
  for event in events:
    ledger = ledger.with_rounds(event)
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
  assert twice.epsilon() == pytest.approx(accountant.get_epsilon(1e-5))
  assert twice.epsilon() > once.with_rounds(_ONE).epsilon() > once.epsilon()
  assert (twice.rounds, twice.num_runs) == (1, 2)
  assert twice.noise == once.noise
  assert ledger_lib.Ledger.from_json(twice.to_json()) == twice


def test_what_cannot_run_again_with_other_noise():
  noiseless = dp_accounting.NonPrivateDpEvent()
  assert _ledger().with_rounds(noiseless, times=2) == _ledger(noiseless)


def test_runs_are_encoded_by_length():
  ledger = _ledger(*[_ONE] * 3, *[_TWO] * 2, _ONE)
  assert ledger.history == ((_ONE, 3), (_TWO, 2), (_ONE, 1))
  assert ledger.rounds == 6
  with pytest.raises(ValueError, match="mechanism_event must be"):
    ledger.with_rounds(dp_accounting.LaplaceDpEvent(1.0))


def test_no_rounds_cost_nothing():
  report = _ledger().report()
  assert report.rounds == report.epsilon == 0
  assert report.noise_multiplier is None
  assert "no round was recorded" in report.warnings


@pytest.mark.parametrize("participation", [_POISSON, _FIXED_SIZE])
def test_epsilon_is_that_of_one_composition(participation):
  ledger = _ledger(
    *[_ONE] * 20, *[_TWO] * 30, *[_ONE] * 5, participation=participation
  )
  accountant = dp_accounting.rdp.RdpAccountant(
    neighboring_relation=participation.neighboring_relation
  )
  counts = [(_ONE, 25), (_TWO, 30)]
  for event, count in composition.composed_events(counts, participation):
    accountant.compose(event, count)
  assert ledger.epsilon() == pytest.approx(
    accountant.get_epsilon(1e-5), rel=1e-12
  )


def test_curve_keeps_the_order_it_was_asked_in():
  ledger = _ledger(*[_TWO] * 3, *[_ONE] * 3)
  backwards = ledger.epsilon_curve([6, 3, 0, 3])
  assert backwards == [
    ledger.epsilon(),
    _ledger(*[_TWO] * 3).epsilon(),
    0,
    backwards[1],
  ]
  assert ledger.epsilon_curve([2], accountant="pld") == [
    _ledger(_TWO, _TWO).epsilon("pld")
  ]


def test_a_resumed_ledger_is_the_uninterrupted_one():
  # Values without a short decimal form, a break in the middle of a run.
  events = [dp_accounting.GaussianDpEvent(8 / 3)] * 7 + [
    dp_accounting.GaussianDpEvent(0.1 + 0.2 + 3.0)
  ] * 5
  uninterrupted = _ledger(*events, delta=1 / 3e5)
  half = _ledger(*events[:9], delta=1 / 3e5)
  # As a file has it.
  resumed = ledger_lib.Ledger.from_json(json.loads(json.dumps(half.to_json())))
  assert resumed == half
  assert resumed != uninterrupted
  for event in events[9:]:
    resumed = resumed.with_rounds(event)
  assert resumed == uninterrupted


@pytest.mark.parametrize(
  "noiseless",
  [dp_accounting.NonPrivateDpEvent(), dp_accounting.GaussianDpEvent(0.0)],
)
def test_a_round_without_noise_is_for_ever(noiseless):
  ledger = _ledger(_ONE, noiseless, _ONE, participation=_POISSON_GROUPS)
  assert ledger.epsilon_curve([1])[0] < math.inf
  assert ledger.epsilon() == math.inf
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
    (
      {"history": [{"count": 1, "noise": {"strategy": {"kind": "oak"}}}]},
      "must be one of",
    ),
    ({"delta": 2}, "delta must be"),
  ],
)
def test_what_a_stored_ledger_must_not_hold(change, message):
  values = _ledger(_ONE).to_json() | change
  with pytest.raises(ValueError, match=message):
    ledger_lib.Ledger.from_json(values)


def test_accountants_are_those_that_are_valid():
  assert _ledger().accountants == ("rdp", "pld")
  assert _ledger(participation=_FIXED_SIZE).accountants == ("rdp",)
  assert _ledger(accountants=("pld", "rdp")).accountants == ("rdp", "pld")
  with pytest.raises(ValueError, match="accountants must be among"):
    _ledger(participation=_FIXED_SIZE).epsilon("pld")
  with pytest.raises(ValueError, match="accountants must be among"):
    _ledger(accountants=())


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
  ).with_rounds(dp_accounting.GaussianDpEvent(8.0), rounds)
  with participation_trace.TraceReader(path) as trace:
    report = ledger.report(trace)
    assert ledger.tightest_epsilon(trace) == report.epsilon
  assert report.arithmetic_epsilon > 0.1
  if participation is _POISSON:
    # So are the curves over rounds.
    assert ledger.epsilon(report.accountant) == report.epsilon
