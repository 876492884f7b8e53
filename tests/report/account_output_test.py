"""Tests of the texts that the program that accounts prints."""

import math

import pytest

from tff_fedemb.mechanisms import strategy
from tff_fedemb.participation import min_separation
from tff_fedemb.planning import planning
from tff_fedemb.report import account_output

_ROUNDS = 8


def _plan(mechanism, noise_multiplier):
  return planning.create_plan(
    mechanism,
    min_separation.MinSeparation(400, 100, min_separation=4),
    _ROUNDS,
    noise_multiplier,
    1e-4,
    workload=strategy.Workload(noise_objective="last"),
  )


@pytest.mark.parametrize(
  ("planned", "told"),
  [(0, "8 rounds"), (8, "8 rounds"), (20, "8 of 20 rounds")],
)
def test_rounds_of_a_run_that_is_not_finished_are_some_of_all(planned, told):
  plan = _plan("gaussian", 1.0)
  _, text = account_output.tell_epsilon(
    planning.create_report(plan),
    plan.name,
    plan.account,
    ["the run is not finished: 8 rounds are accounted for"] * 8,
    planned=planned,
    explain=False,
  )
  assert text.partition("\n")[0].endswith(f", {told}")


def test_choices_are_compared_by_the_error_that_ranks_them():
  # The last of eight sums is a whole tree: estimates of it from each of four
  # levels, of 1, 2, 4 and 8 nodes, have variance 1 / (1 + 1/2 + 1/4 + 1/8).
  tree = _plan("tree", 1.0)
  assert tree.error == pytest.approx(math.sqrt(8 / 15) / 100)
  # Independent noise adds up to variance 8.
  independent = _plan("gaussian", 1.02 / math.sqrt(15))
  assert independent.error == pytest.approx(1.02 * tree.error)
  # Over all rounds it has the least.
  assert independent.rmse < 0.6 * tree.rmse
  values, text = account_output.tell_choices([tree, independent], 4.0, ())
  rows = [line.split() for line in text.splitlines()[3:5]]
  assert [(row[0], row[-1]) for row in rows] == [
    ("tree", "1.000"),
    ("independent", "1.020"),
  ]
  words = " ".join(text.split())
  assert "min_separation: 1.02 times less error than independent" in words
  assert values["leanest"]["mechanism"] == "gaussian"
  assert "independent, min_separation, 1.02 times the error" in words
