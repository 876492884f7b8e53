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
_FIXED_SIZE = fixed_size.FixedSize(1_000, 10)
_TWO = dp_accounting.GaussianDpEvent(2.0)
_FOUR = dp_accounting.GaussianDpEvent(4.0)


def _report(claim, *history, delta=1e-5, accountants=None):
  return report_lib.create_report(
    composition.Account(
      claim, delta=delta, accountants=accountants, history=history
    )
  )


def test_report_as_json():
  report = dataclasses.replace(
    _report(_FIXED_SIZE, (_FOUR, 3)),
    epsilon=math.inf,
    epsilon_by_accountant={"rdp": math.inf},
    warnings=("words",),
  )
  values = json.loads(json.dumps(report.to_json(), allow_nan=False))
  assert values["epsilon"] == values["epsilon_by_accountant"]["rdp"] == "inf"
  assert values["warnings"] == ["words"]


def test_report_of_single_user_poisson():
  ledger = ledger_lib.Ledger(_POISSON, delta=1e-5).with_rounds(_TWO, 50)
  report = ledger.report()
  assert report.epsilon_by_accountant == {
    "rdp": ledger.epsilon("rdp"),
    "pld": ledger.epsilon("pld"),
  }
  assert (report.accountant, report.epsilon) == ("pld", ledger.epsilon("pld"))
  assert report.unit_is_virtual_client_epsilon is None
  assert report.sensitivity_in_clip_norms == 1
  assert report.warnings == ()
  assert report.rounds == 50


def test_a_known_schedule_costs_what_it_costs():
  """A round draws 131,072 of 10 million users, in virtual clients of 32."""
  secret = poisson.Poisson(10_000_000, 131_072, users_per_client=32)
  rounds, delta = (dp_accounting.GaussianDpEvent(1.28), 800), 1e-7
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
  assert report.amplification.startswith("none: who is drawn when is taken")
  # Beside it what a secret draw would be worth, by PLD.
  assert 9 < report.epsilon_with_secret_sampling < amplified.epsilon
  assert f"would be {report.epsilon_with_secret_sampling:.4g}, ampl" in (
    report.statement
  )
  assert "is in at most 10 rounds" in report.statement
  assert any("taken to be known" in text for text in report.warnings)


def test_report_names_both_readings():
  report = _report(_FIXED_SIZE, (_FOUR, 50))
  account = composition.Account(_FIXED_SIZE, delta=1e-5, history=((_FOUR, 50),))
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
    "not user-level",
    "50 x ",
    "GaussianDpEvent(noise_multiplier=2.0)",
  ):
    assert part in report.statement
  for part in ("metrics", "hyperparameter", "pseudo-random"):
    assert any(part in text for text in report.not_covered)


@pytest.mark.parametrize(
  ("claim", "noise", "delta", "warnings"),
  [
    (_POISSON, 1.28, 1e-5, []),
    (_POISSON, 0.02, 1e-5, ["pld not run", "computed noise ends"]),
    (poisson.Poisson(10**6, 1.0), 1e3, 1e-7, ["epsilon is 0"]),
    (_POISSON, 1.28, 1e-3, ["delta 0.001 is not below 1 / num_users = 0.001"]),
  ],
)
def test_what_deserves_a_second_look_is_told(claim, noise, delta, warnings):
  event = dp_accounting.GaussianDpEvent(noise)
  found = sorted(_report(claim, (event, 10), delta=delta).warnings)
  assert len(found) == len(warnings)
  for warning, text in zip(sorted(warnings), found, strict=True):
    assert warning in text
