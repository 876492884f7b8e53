"""Tests of participations by name: creation, ledgers, and one of one's own."""

import dataclasses
import json

import dp_accounting
import numpy as np
import pytest

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import participation
from tff_fedemb.participation import participation_trace
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation
from tff_fedemb.participation import registry


@dataclasses.dataclass(frozen=True)
class _Halves(participation.Participation):
  """The even slots in even rounds, the odd slots in odd ones; each alone.

  Privacy:
    Unit: user.
    Neighbouring relation: one user is absent.
    Sensitivity: one clip norm.
    DpEvent: that of the mechanism, in every second round.
  """

  name = "halves"
  users_are = "exact"
  accountants = ("rdp",)
  neighboring_relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
  is_sampled = False

  min_separation = 2
  sensitivity_in_clip_norms = 1.0
  neighboring_relation_in_words = "zero out one user"
  users_in_words = "Halves: every user takes part in every second round"

  def sample(self, round_num, *, key):
    del key  # Nothing is drawn.
    return list(np.arange(round_num % 2, self.num_users, 2)[:, np.newaxis])


def _report(claim, rounds, path):
  ledger = ledger_lib.Ledger(claim, delta=1e-5)
  with participation_trace.TraceWriter(path, claim.num_users) as trace:
    for number, clients in enumerate(rounds):
      trace.record(number, clients)
      ledger = ledger.with_rounds(composition.Noise(2.0))
  ledger = ledger_lib.Ledger.from_json(ledger.to_json())
  with participation_trace.TraceReader(path) as trace:
    return ledger.report(trace)


def test_a_new_participation_is_a_class_and_a_line(tmp_path, monkeypatch):
  monkeypatch.setitem(registry.PARTICIPATIONS, "halves", _Halves)
  claim = registry.create_participation(
    "halves", num_users=6, users_per_round=3
  )
  rounds = [claim.sample(number, key=0) for number in range(10)]
  report = _report(claim, rounds, tmp_path / "trace")
  # Five of the ten rounds are a user's.
  accountant = dp_accounting.rdp.RdpAccountant(
    neighboring_relation=claim.neighboring_relation
  ).compose(dp_accounting.GaussianDpEvent(2.0), 5)
  assert report.epsilon == pytest.approx(accountant.get_epsilon(1e-5))
  assert "trace of 10 rounds" in report.participation_checked
  assert "trace of the run does not refute" in report.statement
  assert "every second round; each user is a client" in report.statement
  with pytest.raises(
    participation.ClaimError, match="halves participation was"
  ):
    _report(claim, rounds[:1] * 10, tmp_path / "other")


@pytest.mark.parametrize(
  "claim",
  [
    *(known(50, 5) for known in registry.PARTICIPATIONS.values()),
    poisson.Poisson(1_000, 9.5, known_schedule=True, max_participations=3),
    fixed_size.FixedSize(1_000, 10, users_per_client=5),
    random_allocation.RandomAllocation(50, 5, period=2),
    check_ins.CheckIns(10, 2, min_separation=3, equal_work=True),
  ],
)
def test_participations_survive_json(claim):
  values = json.loads(json.dumps(registry.PARTICIPATIONS.to_json(claim)))
  found = registry.PARTICIPATIONS.from_json(values, name="participation")
  assert found == claim


@pytest.mark.parametrize(
  ("name", "options", "message"),
  [
    (
      "uniform",
      {},
      "one of balls_in_bins, check_ins, cyclic_poisson, .*'uni",
    ),
    ("poisson", {"min_separation": 2}, "min_separation must not be given"),
    (
      "fixed_size",
      {"max_participations": 2},
      "unless its schedule is known: .* 2",
    ),
    ("min_separation", {"min_separation": 6}, "at most 5, the rounds in wh"),
    ("poisson", {"num_users": 0}, "num_users must be .* found 0"),
    ("poisson", {"users_per_round": 51}, "found 51"),
    ("poisson", {"users_per_client": 11}, "users_per_round must be at least"),
    (
      "fixed_size",
      {"users_per_round": 9.5},
      "integer of at least 1, found 9.5",
    ),
    ("balls_in_bins", {"period": 4}, r"period must be .* rounded down, 5"),
    (
      "cyclic_poisson",
      {"period": 6},
      "period must be at most .* 5: .* 50 / 6 u",
    ),
    ("random_allocation", {"period": 6}, "period must be at most .* 5:"),
    ("check_ins", {"users_per_client": 2}, "users_per_client must be 1"),
  ],
)
def test_mistakes_are_named(name, options, message):
  with pytest.raises(ValueError, match=message):
    registry.create_participation(
      name, **{"num_users": 50, "users_per_round": 10, **options}
    )
