"""Tests of the privacy report: its figures, its words and its JSON."""

import dataclasses
import json
import math

import dp_accounting
import pytest

from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib

_POISSON = poisson.Poisson(1_000, 10.0)
_POISSON_GROUPS = poisson.Poisson(1_000, 10.0, users_per_client=2)
_FIXED_SIZE = fixed_size.FixedSize(1_000, 10)
_TWO = dp_accounting.GaussianDpEvent(2.0)
_FOUR = dp_accounting.GaussianDpEvent(4.0)


def _report(claim, *history, delta=1e-5, accountants=None):
  return report_lib.create_report(
    composition.Account(
      claim, delta=delta, accountants=accountants, history=history
    )
  )


@pytest.mark.parametrize("virtual", [None, math.inf, 3.5])
def test_report_survives_json(virtual):
  report = dataclasses.replace(
    _report(_FIXED_SIZE, (_FOUR, 3)),
    epsilon=math.inf,
    epsilon_by_accountant={"rdp": math.inf},
    unit_is_virtual_client_epsilon=virtual,
    zcdp=virtual,
    warnings=("words",),
  )
  values = report.to_json()
  assert values["epsilon"] == "inf"
  text = json.dumps(values, allow_nan=False)
  assert report_lib.PrivacyReport.from_json(json.loads(text)) == report


def test_json_safe_goes_through_nested_values():
  values = {"a": (math.inf, -math.inf), "b": {"c": [1.5, None, "words"]}}
  assert report_lib.json_safe(values) == {
    "a": ["inf", "-inf"],
    "b": {"c": [1.5, None, "words"]},
  }


def test_report_of_single_user_poisson():
  ledger = ledger_lib.Ledger(_POISSON, delta=1e-5).with_rounds(_TWO, 50)
  report = ledger.report()
  assert report == _report(_POISSON, (_TWO, 50))
  assert report.epsilon_by_accountant == {
    "rdp": ledger.epsilon("rdp"),
    "pld": ledger.epsilon("pld"),
  }
  assert (report.accountant, report.epsilon) == ("pld", ledger.epsilon("pld"))
  assert report.unit_is_virtual_client_epsilon is None
  assert report.sensitivity_in_clip_norms == 1
  assert report.neighboring_relation == (
    "a user's slot stays empty; the number of slots and the probability are"
    " public"
  )
  assert report.warnings == ()
  assert report.rounds == 50


@pytest.mark.parametrize(
  ("participations", "expected"), [(10, 39.0), (31, 85.6)]
)
def test_a_known_schedule_costs_what_it_costs(participations, expected):
  """Of 131,072 of 10 million users a round, in virtual clients of 32."""
  secret = poisson.Poisson(10_000_000, 131_072, users_per_client=32)
  rounds, delta = (dp_accounting.GaussianDpEvent(1.28), 800), 1e-7
  amplified = _report(secret, rounds, delta=delta, accountants=("rdp",))
  assert amplified.epsilon == pytest.approx(10.59, abs=5e-3)
  assert amplified.amplification.startswith("by sampling, from a secret key")
  assert amplified.epsilon_with_secret_sampling is None
  known = secret.with_known_schedule(participations)
  report = _report(known, rounds, delta=delta)
  by_rdp = report.epsilon_by_accountant["rdp"]
  assert by_rdp == pytest.approx(expected, abs=0.05)
  assert report.epsilon == report.epsilon_by_accountant["gaussian"] < by_rdp
  assert report.max_participations == participations
  assert report.amplification.startswith("none: who is drawn when is taken")
  # Beside it what a secret draw would be worth, by PLD.
  assert 9 < report.epsilon_with_secret_sampling < amplified.epsilon
  assert f"would be {report.epsilon_with_secret_sampling:.4g}, ampl" in (
    report.statement
  )
  assert f"is in at most {participations} rounds" in report.statement
  assert any("taken to be known" in text for text in report.warnings)


@pytest.mark.parametrize("participation", [_POISSON_GROUPS, _FIXED_SIZE])
def test_report_names_both_readings(participation):
  report = _report(participation, (_FOUR, 50))
  undoubled = epsilon_lib.epsilon_by_accountant(
    [(_FOUR, 50)], participation, 1e-5, sensitivity_in_clip_norms=1
  )
  _, expected = epsilon_lib.leading(undoubled)
  assert report.unit_is_virtual_client_epsilon == expected
  assert expected < report.epsilon
  assert report.sensitivity_in_clip_norms == 2
  assert report.noise_multiplier == 4
  for part in (
    f"{report.epsilon:.4g}",
    f"{expected:.4g}",
    report.neighboring_relation,
    participation.sampling,
    "z / 2",
    "not user-level",
    "50 x ",
    "GaussianDpEvent(noise_multiplier=2.0)",
  ):
    assert part in report.statement
  assert any("metrics" in text for text in report.not_covered)
  assert any("hyperparameter" in text for text in report.not_covered)
  assert any("pseudo-random" in text for text in report.not_covered)


def test_report_of_little_noise_leaves_pld_out():
  event = dp_accounting.GaussianDpEvent(0.02)
  report = _report(_POISSON, (event, 1))
  assert report.accountant == "rdp"
  assert any("pld not run" in text for text in report.warnings)


def test_an_epsilon_of_zero_is_remarked():
  claim = poisson.Poisson(10**6, 1.0, users_per_client=1)
  event = dp_accounting.GaussianDpEvent(1e3)
  report = _report(claim, (event, 10), delta=1e-7)
  assert report.epsilon == 0
  assert any("epsilon is 0" in warning for warning in report.warnings)


@pytest.mark.parametrize("multiplier, is_told", [(0.02, True), (1.28, False)])
def test_it_is_told_where_the_noise_ends(multiplier, is_told):
  event = dp_accounting.GaussianDpEvent(multiplier)
  report = _report(_POISSON, (event, 10), accountants=("rdp",))
  told = [line for line in report.warnings if "computed noise ends" in line]
  assert len(told) == is_told
