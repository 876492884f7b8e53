"""Tests of `check_ins`: what is enforced may be claimed, and nothing else."""

import dataclasses

import numpy as np
import pytest

from tff_fedemb import errors
from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.deployment import deployment
from tff_fedemb.deployment import simulation
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import participation
from tff_fedemb.participation import registry
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import planning
from tff_fedemb.strategies import strategy as strategy_lib

_CLAIM = check_ins.CheckIns(100, 4, min_separation=3, max_participations=2)


def _observe(*rounds, num_users=100):
  recorded = (
    participation_trace.RecordedRound.of(
      number, [np.array([slot]) for slot in slots]
    )
    for number, slots in enumerate(rounds)
  )
  return participation_check.observe(num_users, recorded)


def test_nothing_is_drawn_and_nothing_amplified():
  assert not _CLAIM.is_sampled
  assert _CLAIM.amplification == "none: who is there is not drawn by the server"
  assert _CLAIM.sensitivity_in_clip_norms == 1
  with pytest.raises(errors.FieldError, match="without a deployment"):
    _CLAIM.sample(0, key=1)
  with pytest.raises(errors.FieldError, match="users_per_client must be 1"):
    check_ins.CheckIns(100, 4, users_per_client=2)
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
  observed = _observe([1, 2, 3, 4], [5], [], [1, 2, 6], [7])
  _CLAIM.check_trace(observed, rounds=5)


@pytest.mark.parametrize(
  ("rounds", "message"),
  [
    ([[1], [2], [1], [3]], "at least 3 rounds .* user 1 is in rounds 0 and 2"),
    (
      [[1], [], [], [1], [], [], [1]],
      "at most 2 participations .* user 1 has 3",
    ),
    ([[1, 2, 3, 4, 5]], "at most 4 users in a round were .* a round of 5"),
  ],
)
def test_a_trace_beyond_a_bound_is_refused(rounds, message):
  with pytest.raises(participation.ClaimError, match=message):
    _CLAIM.check_trace(_observe(*rounds), rounds=len(rounds))


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
  strategy = composition.noise_of(plan.event).strategy
  expected = strategy.sensitivity(strategy_lib.Schedule(60, 20, 2))
  report = planning.create_report(plan)
  assert report.strategy_sensitivity == expected
  # One Gaussian mechanism for the whole run.
  assert report.zcdp == pytest.approx(expected**2 / 2 / 49)


@pytest.mark.parametrize(
  ("bounds", "participations"),
  [
    ({}, 60),
    ({"max_participations": 3}, 3),
    # Every 20th of 60 rounds.
    ({"min_separation": 20}, 3),
    ({"min_separation": 20, "max_participations": 2}, 2),
  ],
)
def test_independent_noise_is_composed_for_the_enforced_number(
  bounds, participations
):
  report = planning.create_report(_plan("gaussian", 60, **bounds))
  # A Gaussian for each round: rho = T / (2 z^2).
  assert report.zcdp == pytest.approx(participations / 2 / 49)


@pytest.fixture(name="played", scope="module")
def _played():
  """Thirty rounds of phones that may be back at once, as a trace has them."""
  phones = deployment.load("phones")
  server = dataclasses.replace(phones.server, min_separation_hours=0)
  some = simulation.Simulation(
    dataclasses.replace(phones, server=server),
    2_500,
    0,
    simulation.WorkOfRound(bytes_down=10**6, bytes_up=10**6, examples=100),
    report_goal=100,
    min_separation=12,
  )
  rounds = []
  while len(rounds) < 30:
    outcome = some.next_round()
    if not outcome.abandoned:
      rounds.append(sorted(outcome.reported.tolist()))
  return _observe(*rounds, num_users=2_500)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("poisson", {}),
    ("fixed_size", {}),
    ("min_separation", {}),
    ("check_ins", {"min_separation": 25}),
  ],
)
def test_a_false_claim_is_refuted_by_the_trace(played, name, options):
  claim = registry.create_participation(
    name, num_users=2_500, users_per_round=100, **options
  )
  with pytest.raises(participation.ClaimError):
    claim.check_trace(played, rounds=30)
  enforced = check_ins.CheckIns(2_500, 100, min_separation=12)
  enforced.check_trace(played, rounds=30)
