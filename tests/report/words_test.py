"""Tests of the words of a report."""

import types

import pytest

from tests.binaries import pages
from tests.spec import specs
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.report import templates
from tff_fedemb.report import words
from tff_fedemb.runtime import secure_sums


def _render(template, spec, values, **more):
  """Renders a part of a run's section; returns its text."""
  run = types.SimpleNamespace(**values, spec=spec)
  return pages.Parsed(templates.render(template, r=run, **more)).text


def _guarantee(
  participation, noise, rounds=4, aggregator="gaussian", **summary
):
  ledger = ledger_lib.Ledger(participation, delta=1e-3)
  ledger = ledger.with_rounds(noise, rounds)
  account = types.SimpleNamespace(
    report=ledger.report(), ledger=ledger, notes=("all is well",)
  )
  summary = {"user_meaning": "a writer", "secure_sums": None} | summary
  found = words.rate_guarantee(account)
  text = _render(
    "guarantee.html",
    specs.create(mechanism={"kind": aggregator, "clip_norm": 0.5}),
    {"account": account, "summary": summary},
    p=account.report,
    s={"guarantee": found},
  )
  return found, text


_PASSES = min_separation.MinSeparation(100, 10, min_separation=10)
_NOISE = composition.Noise(1.0)
_NOISELESS = composition.Noise(0.0)


@pytest.mark.parametrize(
  ("claim", "noise", "strength", "said"),
  [
    (
      fixed_size.FixedSize(1000, 20, users_per_client=4),
      _NOISE,
      "reasonable",
      "a group of 4 users contributes together to a round was cut to length"
      " 0.5, so that one user changes a round's sum by at most 2 times that,",
    ),
    (
      _PASSES,
      composition.Noise(20.0, tree_strategy.TreeStrategy()),
      "strong",
      "noise, correlated from round to round, of 20 times",
    ),
    (
      fixed_size.FixedSize(100, 20),
      composition.Noise(0.1),
      "weak",
      "may be right practically every time, for all that is proven",
    ),
    (
      poisson.Poisson(1000, 20.0),
      _NOISE,
      "strong",
      "has an expected 20 of the 1,000 users",
    ),
    (
      poisson.Poisson(100, 20.0),
      _NOISELESS,
      "none",
      "No guarantee Nothing is guaranteed: in at least one round no noise was",
    ),
  ],
)
def test_guarantees(claim, noise, strength, said):
  found, text = _guarantee(claim, noise)
  assert found["strength"] == strength
  assert said in text
  assert ("It rests on The unit is one user (a writer)" in text) == bool(
    noise != _NOISELESS
  )
  _, text = _guarantee(claim, noise, secure_sums=secure_sums.SIMULATED)
  assert "secure sums, simulated, not cryptographic" in text


def test_a_clip_norm_that_is_adapted_is_no_length():
  _, text = _guarantee(_PASSES, _NOISE, aggregator="adaptive_gaussian")
  assert (
    "was cut to a length that follows the noised share of updates that were cut"
    " in earlier rounds, so that one user"
  ) in text
  assert "0.5" not in text


def test_bounds_are_rounded_up():
  # Each user is in one of ten rounds: two Gaussians, one standard deviation
  # apart.
  found, text = _guarantee(_PASSES, _NOISE, rounds=10)
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


def test_epsilon_in_words():
  epsilons = (float("inf"), 2.43456, 599_912.3, 3.21e8)
  found = [*map(words.format_epsilon, epsilons)]
  assert found == ["∞", "2.435", "599,900", "3.210e+08"]


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
  ledger = types.SimpleNamespace(participation=claim)
  charts = dict.fromkeys(("available", "reports", "epsilon_by_days"), "data:")
  run = {
    "summary": {"deployment": _DEVICES | dict(found), "wall_seconds": 60.0},
    "deployment": range(4),
    "account": types.SimpleNamespace(ledger=ledger),
  }
  return _render(
    "deployment.html",
    types.SimpleNamespace(settings=lambda: {"deployment": "files/old.yaml"}),
    run,
    s={"charts": charts},
    number=1,
  )


def test_devices_and_bounds():
  text = _describe()
  assert "those of deployment old.yaml" in text
  assert "2.5 days for 3 rounds, 1.2 a day; in reality 60 s" in text
  assert "1 of 4" in text and "60 of 100 (60.0 %)" in text
  assert "50 altogether, of which 70.0 % reported, 10.0 % were not need" in text
  # The enforced bounds differ from the measured ones: in three rounds a
  # separation of two allows two participations.
  assert "user to the next at least 2 3" in text
  assert "rounds of a user at most 2 1" in text
  assert "Assumed, not enforced:" in text
  measured = {"min_separation": None, "max_participations": 1}
  text = _describe(
    found={"measured": measured, "days": 54 / 60 / 24}, equal_work=True
  )
  assert "By this deployment it does not" in text
  assert "Assumed, not enforced:" not in text
  assert "at least 2 nobody came twice" in text
  assert "54 minutes for 3 rounds" in text
