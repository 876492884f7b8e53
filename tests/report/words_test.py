"""Tests of what a report says in words."""

import re
import types

import dp_accounting
import pandas as pd
import pytest

from tff_fedemb.participation import check_ins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.report import words
from tff_fedemb.runtime import secure_sums
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree


def _guarantee(participation, event, rounds=4, delta=1e-3, **summary):
  ledger = ledger_lib.Ledger(participation, delta=delta)
  ledger = ledger.with_rounds(event, rounds)
  report = ledger.report()
  run = types.SimpleNamespace(
    account=types.SimpleNamespace(
      report=report, ledger=ledger, notes=("all is well",)
    ),
    summary={"user_meaning": "a writer", "secure_sums": None} | summary,
    settings={"clip_norm": 0.5},
  )
  return words.create_guarantee(run), report


def test_groups_of_users_and_the_length_they_share():
  claim = fixed_size.FixedSize(1000, 20, users_per_client=4)
  found, report = _guarantee(claim, dp_accounting.GaussianDpEvent(1.0))
  first, second = found.sentences
  assert found.strength == "reasonable" and 1 < report.epsilon <= 10
  share = words.guess_share(report.epsilon, 1e-3)
  said = float(first.partition("at most ")[2].partition(" %")[0])
  # Rounded up: it is a bound.
  assert 100 * share <= said < 100 * share + 0.1
  assert "in one single user (replace one user)" in first
  assert "a group of 4 users contributes together to a round" in second
  assert "was cut to length 0.5, so that one user changes" in second
  assert "by at most 2 times that" in second
  assert "each round has 20 of the 1,000 users" in second
  assert found.assumptions[0].startswith("The unit is one user (a writer)")
  assert found.assumptions[-1] == "Checked for this page: all is well."


def test_noise_that_is_correlated_is_called_so():
  claim = min_separation.MinSeparation(100, 10, min_separation=10)
  event = strategy_lib.CorrelatedGaussianDpEvent(20.0, tree.TreeStrategy())
  found, _ = _guarantee(claim, event)
  assert found.strength == "strong"
  assert (
    "Gaussian noise, correlated from round to round, of 20 times"
    in (found.sentences[1])
  )


def test_little_noise_is_not_called_protection():
  claim = fixed_size.FixedSize(100, 20)
  found, _ = _guarantee(claim, dp_accounting.GaussianDpEvent(0.1))
  assert found.strength == "weak"
  assert found.verdict.startswith("a weak guarantee, or none in practice (ε =")
  assert "may be right practically every time" in found.sentences[0]


def test_no_noise_is_no_guarantee():
  claim = poisson.Poisson(100, 20.0)
  found, _ = _guarantee(claim, dp_accounting.NonPrivateDpEvent())
  assert (found.strength, found.verdict) == ("none", "no guarantee")
  assert found.sentences[0].startswith("Nothing is guaranteed")
  assert "100 users (a user: a writer)" in found.sentences[1]
  assert not found.assumptions


@pytest.mark.parametrize(
  "event",
  [dp_accounting.GaussianDpEvent(1.0), dp_accounting.NonPrivateDpEvent()],
)
def test_secure_sums_are_called_simulated(event):
  claim = poisson.Poisson(1000, 20.0)
  found, _ = _guarantee(claim, event, secure_sums=secure_sums.SIMULATED)
  told = "secure sums, simulated, not cryptographic"
  assert told in found.sentences[1]
  found, _ = _guarantee(claim, event)
  assert "secure sums" not in found.sentences[1]
  # Who takes part by chance is expected to.
  if found.strength != "none":
    assert "has an expected 20 of the 1,000 users" in found.sentences[1]


def test_how_many_members_an_attack_can_find():
  # All users are in the one round: two Gaussians 1 apart, at z = 2 and two clip
  # norms.
  claim = fixed_size.FixedSize(100, 100)
  found, _ = _guarantee(claim, dp_accounting.GaussianDpEvent(8.0))
  epsilon_rates = re.search(
    r"at most ([\d.]+) % of them at 1 % and ([\d.]+) % of them at 0.1 % false",
    found.sentences[0],
  )
  assert epsilon_rates is not None
  first, second = map(float, epsilon_rates.groups())
  assert 1 < first < 100
  assert 0.1 < second < first


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
  "days": 2.5,
  "rounds_released": 3,
  "selected": 50,
  "reported": 35,
  "aborted": 5,
  "late": 4,
  "interrupted": 1,
  "dropped": 5,
  "measured": {"min_separation": 3, "max_participations": 1},
}


def _describe(*, found=(), **options):
  claim = check_ins.CheckIns(100, 10, min_separation=2, **options)
  run = types.SimpleNamespace(
    summary={"deployment": _DEVICES | dict(found)},
    deployment=pd.DataFrame({"abandoned": [0, 1, 0, 0]}),
    settings={"deployment": "files/old.yaml"},
    account=types.SimpleNamespace(
      ledger=types.SimpleNamespace(participation=claim)
    ),
  )
  return words.describe_devices(run)


def test_shares_and_bounds():
  found = _describe()
  assert (found["name"], found["num_rounds"]) == ("old.yaml", 4)
  assert list(found["fates"].values()) == [0.7, 0.1, 0.08, 0.02, 0.1]
  # The enforced bound differs from the measured one: in three rounds a
  # separation of two allows two participations.
  assert [bound[1:] for bound in found["bounds"]] == [
    ("at least 2", "3"),
    ("at most 2", "1"),
  ]
  measured = {"min_separation": None, "max_participations": 1}
  found = _describe(found={"measured": measured, "days": 54 / 60 / 24})
  assert found["bounds"][0][2] == "nobody came twice"
  assert found["simulated"] == "54 minutes"


@pytest.mark.parametrize("equal_work", [True, False])
def test_what_dropping_out_may_depend_on(equal_work):
  found = _describe(equal_work=equal_work)
  assert found["is_assumed"] != equal_work
  said = "By this deployment it does not" in found["assumption"]
  assert said == equal_work
