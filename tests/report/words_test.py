"""Tests of what a report says in words."""

import types

import dp_accounting
import pytest

from tests.binaries import pages
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.report import templates
from tff_fedemb.report import words
from tff_fedemb.runtime import secure_sums
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree


def _render(template, run, **values):
  """The text of a part of a run's section."""
  return pages.Parsed(templates.render(template, r=run, **values)).text


def _guarantee(participation, event, rounds=4, delta=1e-3, **summary):
  ledger = ledger_lib.Ledger(participation, delta=delta)
  ledger = ledger.with_rounds(event, rounds)
  account = types.SimpleNamespace(
    report=ledger.report(), ledger=ledger, notes=("all is well",)
  )
  run = types.SimpleNamespace(
    account=account,
    summary={"user_meaning": "a writer", "secure_sums": None} | summary,
    settings={"clip_norm": 0.5},
  )
  found = words.rate_guarantee(account)
  text = _render(
    "guarantee.html", run, p=account.report, s={"guarantee": found}
  )
  return found, text


def test_groups_of_users_and_the_length_they_share():
  claim = fixed_size.FixedSize(1000, 20, users_per_client=4)
  found, text = _guarantee(claim, dp_accounting.GaussianDpEvent(1.0))
  assert found["strength"] == "reasonable"
  assert f"is right at most {found['guess']:.1f} % of the time" in text
  assert "in one single user (replace one user)" in text
  assert "a group of 4 users contributes together to a round" in text
  assert "was cut to length 0.5, so that one user changes" in text
  assert "by at most 2 times that" in text
  assert "Each round has 20 of the 1,000 users" in text
  assert "The unit is one user (a writer)" in text
  assert "Checked for this page: all is well." in text


def test_noise_that_is_correlated_is_called_so():
  claim = min_separation.MinSeparation(100, 10, min_separation=10)
  event = strategy_lib.CorrelatedGaussianDpEvent(20.0, tree.TreeStrategy())
  found, text = _guarantee(claim, event)
  assert found["strength"] == "strong"
  assert "Gaussian noise, correlated from round to round, of 20 times" in text


def test_little_noise_is_not_called_protection():
  claim = fixed_size.FixedSize(100, 20)
  found, text = _guarantee(claim, dp_accounting.GaussianDpEvent(0.1))
  assert (found["strength"], found["guess"], found["found"]) == (
    *("weak", None, []),
  )
  assert "A weak guarantee, or none in practice (ε =" in text
  assert "may be right practically every time" in text
  assert "false alarms" not in text


def test_no_noise_is_no_guarantee():
  claim = poisson.Poisson(100, 20.0)
  found, text = _guarantee(claim, dp_accounting.NonPrivateDpEvent())
  assert found["strength"] == "none"
  assert text.startswith("No guarantee Nothing is guaranteed")
  assert "100 users (a user: a writer)" in text
  assert "It rests on" not in text


@pytest.mark.parametrize(
  "event",
  [dp_accounting.GaussianDpEvent(1.0), dp_accounting.NonPrivateDpEvent()],
)
def test_secure_sums_are_called_simulated(event):
  claim = poisson.Poisson(1000, 20.0)
  _, text = _guarantee(claim, event, secure_sums=secure_sums.SIMULATED)
  assert "secure sums, simulated, not cryptographic" in text
  found, text = _guarantee(claim, event)
  assert "secure sums" not in text
  # Who takes part by chance is expected to.
  if found["strength"] != "none":
    assert "has an expected 20 of the 1,000 users" in text


def test_bounds_are_rounded_up():
  # Every user is in one of ten rounds: two Gaussians one standard deviation
  # apart.
  claim = min_separation.MinSeparation(100, 10, min_separation=10)
  event = dp_accounting.GaussianDpEvent(1.0)
  found, text = _guarantee(claim, event, rounds=10)
  (first, most), (second, fewer) = found["found"]
  assert (first, second) == (1, 0.1)
  # By hand: 1 - Phi(2.3263 - 1) and 1 - Phi(3.0902 - 1).
  assert 9.24 < most < 9.5 and 1.83 < fewer < 2.1
  assert f"at most {most:.3g} % of them at 1 % and {fewer:.3g} % of" in text


def test_how_often_a_guess_is_right():
  # By hand: e^0 = 1, and e^ln(3) = 3.
  assert words.guess_share(0.0, 0.0) == 0.5
  assert words.guess_share(1.0986122886681098, 0.1) == pytest.approx(3.1 / 4)
  assert words.guess_share(1e6, 0.0) == 1.0


@pytest.mark.parametrize(
  ("epsilon", "text"),
  [
    (float("inf"), "∞"),
    (2.43456, "2.435"),
    (599_912.3, "599,900"),
    (3.21e8, "3.210e+08"),
  ],
)
def test_epsilon_in_words(epsilon, text):
  assert words.format_epsilon(epsilon) == text


_DEVICES = {
  "description": "phones",
  "days": 2.5,
  "rounds_a_day": 1.2,
  "rounds_released": 3,
  "rounds_abandoned": 1,
  "selected": 50,
  "reported": 35,
  "aborted": 5,
  "late": 4,
  "interrupted": 1,
  "dropped": 5,
  "session_shapes": {"short": 1.0},
  "devices_never_reached": 60,
  "bytes_down": 1e6,
  "bytes_up": 1e6,
  "participation_by_device_class": {"slow": 0.4, "fast": 0.6},
  "measured": {"min_separation": 3, "max_participations": 1},
}


def _describe(*, found=(), **options):
  claim = check_ins.CheckIns(100, 10, min_separation=2, **options)
  run = types.SimpleNamespace(
    summary={"deployment": _DEVICES | dict(found), "wall_seconds": 60.0},
    deployment=range(4),
    settings={"deployment": "files/old.yaml"},
    account=types.SimpleNamespace(
      ledger=types.SimpleNamespace(participation=claim)
    ),
  )
  charts = dict.fromkeys(("available", "reports", "epsilon_by_days"), "data:")
  return _render("deployment.html", run, s={"charts": charts}, number=1)


def test_devices_and_bounds():
  text = _describe()
  assert "those of deployment old.yaml" in text
  assert "2.5 days for 3 rounds, 1.2 a day; in reality 60 s" in text
  assert "1 of 4" in text and "60 of 100 (60.0 %)" in text
  assert (
    "50 altogether, of which 70.0 % reported, 10.0 % were not needed any more"
    " once the goal was met, 8.0 % were late, 2.0 % were interrupted, 10.0 %"
    " dropped out"
  ) in text
  # The enforced bound differs from the measured one: in three rounds a
  # separation of two allows two participations.
  assert "user to the next at least 2 3" in text
  assert "rounds of a user at most 2 1" in text
  measured = {"min_separation": None, "max_participations": 1}
  assert "Assumed, not enforced:" in text
  text = _describe(
    found={"measured": measured, "days": 54 / 60 / 24}, equal_work=True
  )
  assert "By this deployment it does not" in text
  assert "Assumed, not enforced:" not in text
  assert "at least 2 nobody came twice" in text
  assert "54 minutes for 3 rounds" in text
