"""Tests of `check_ins`: what is enforced may be claimed, and nothing else."""

import dataclasses

import pytest

from tests.participation import draws
from tests.participation import traces
from tff_fedemb import errors
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import check_ins
from tff_fedemb.planning import planning

_CLAIM = check_ins.CheckIns(100, 4, min_separation=3, max_participations=2)


def test_nothing_is_drawn_and_nothing_amplified():
  assert not _CLAIM.is_sampled
  assert _CLAIM.amplification == "none: who is there is not drawn by the server"
  assert _CLAIM.sensitivity_in_clip_norms == 1
  with pytest.raises(errors.FieldError, match="without a deployment"):
    _CLAIM.sample(0, key=1)
  with pytest.raises(NotImplementedError, match="check_ins participation has"):
    _CLAIM.sampled_event(None)
  # Nor do figures replace the bounds that were only measured.
  assert _CLAIM.with_known_schedule(1) == _CLAIM
  assert _CLAIM.for_rounds(3) == _CLAIM


def test_words_say_what_is_enforced_and_what_assumed():
  assert "at most once in any 3 consecutive released rounds" in _CLAIM.sampling
  assert "at most 2 times; it is ASSUMED, and not enforced" in _CLAIM.sampling
  equal = dataclasses.replace(_CLAIM, equal_work=True)
  assert "every device does the same work" in equal.sampling
  assert "ASSUMED" not in equal.sampling


def test_rounds_within_the_bounds_are_not_refused():
  # Rounds need not reach the goal; no user needs to come.
  rounds = ([1, 2, 3, 4], [5], [], [1, 2, 6], [7])
  traces.check(_CLAIM, list(map(draws.alone, rounds)))


def _plan(mechanism, rounds=2_000, **bounds):
  return planning.create_plan(
    mechanism,
    check_ins.CheckIns(10_000_000, 6_500, **bounds),
    rounds=rounds,
    noise_multiplier=7.0,
    delta=1e-10,
    accountants=("rdp",),
  )


def test_keyboards_are_accounted_for_as_published():
  """Xu et al. 2023, "Federated Learning of Gboard Language Models".

  One tree over 2,000 rounds of 6,500 devices at z = 7, at most 6 rounds of a
  device, 313 apart: zCDP 0.81, epsilon 8.90 at delta 1e-10.
  """
  report = planning.create_report(
    _plan("tree", min_separation=313, max_participations=6)
  )
  assert round(report.zcdp, 2) == 0.81
  assert round(report.epsilon, 2) == 8.90
  assert report.max_participations == 6
  # The seventh, which the separation alone would allow.
  more = planning.create_report(_plan("tree", min_separation=313))
  assert (more.max_participations, more.zcdp > report.zcdp) == (7, True)


@pytest.mark.parametrize("mechanism", ["tree", "blt", "banded"])
def test_correlated_noise_is_that_of_the_enforced_bounds(mechanism):
  plan = _plan(mechanism, 60, min_separation=20, max_participations=2)
  strategy = plan.noise.strategy
  expected = strategy.sensitivity(strategy_lib.Schedule(60, 20, 2))
  report = planning.create_report(plan)
  assert report.strategy_sensitivity == expected
  # One Gaussian mechanism for the whole run.
  assert report.zcdp == pytest.approx(expected**2 / 2 / 49)


@pytest.mark.parametrize(
  ("num_users", "users_per_round", "separation"),
  [(10_000, 100, 50), (10_000, 640, 16), (10_000, 10_000, 1)],
)
def test_another_population_has_users_for_the_separation(
  num_users, users_per_round, separation
):
  claim = check_ins.CheckIns(1_000, 10, min_separation=50)
  larger = claim.resized(num_users=num_users, users_per_round=users_per_round)
  assert larger.min_separation == separation
