"""Tests of the panels of a run."""

import types

import numpy as np
import pandas as pd
import pytest

from tests.spec import specs
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import poisson
from tff_fedemb.report import finished_run
from tff_fedemb.report import templates
from tff_fedemb.report import training_report

_METRICS = pd.DataFrame(
  {
    "client_work/loss": [4.0, 3.0, 2.0, 1.0],
    "validation/recall_at_far_0.001": [np.nan, 0.2, np.nan, 0.4],
  },
  index=[1, 2, 3, 4],
)


def _create_run(claim=specs.PARTICIPATION, metrics=None):
  noise = composition.Noise(2.0)
  ledger = ledger_lib.Ledger(claim, delta=1e-3).with_rounds(noise, 4)
  before = {"validation": {"recall_at_far": {"0.001": 0.1}}}
  hours = np.array([0.0, 3.0, 6.0, 9.0])
  account = types.SimpleNamespace(ledger=ledger, report=ledger.report())
  at_hand = finished_run.FinishedRun.at_hand(None, "", {}, account)
  return types.SimpleNamespace(
    summary={"evaluation_untrained": before},
    results={},
    metrics=metrics,
    account=account,
    epsilons=at_hand.epsilons,
    delta=ledger.delta,
    deployment=pd.DataFrame(
      {"start_hours": hours, "end_hours": hours + 1, "abandoned": 0}
    ),
  )


def test_panels_show_what_the_files_have():
  run = _create_run(metrics=_METRICS)
  panels = training_report.create_panels(run)
  assert list(panels) == ["loss", "recall", "epsilon"]
  assert list(panels["loss"].keywords["losses"]) == [4.0, 3.0, 2.0, 1.0]
  recall = panels["recall"].keywords
  # Rounds without an evaluation are left out.
  assert list(recall["rounds"]) == [2, 4]
  assert list(recall["recall_by_far"][1e-3]) == [0.2, 0.4]
  assert recall["untrained"] == {1e-3: 0.1}
  week = training_report.create_week(run, panels)
  times = week["recall_by_days"].keywords["rounds"]
  np.testing.assert_allclose(times, [4, 10])
  panels = training_report.create_panels(_create_run())
  assert list(panels) == ["epsilon"]
  week = training_report.create_week(run, panels)
  assert list(week) == ["available", "reports", "epsilon_by_days"]


@pytest.mark.parametrize(
  ("average", "of"), [(None, "the round"), (0.9, "the average over rounds")]
)
def test_the_ending_names_what_the_start_is_mixed_with(average, of):
  run = _create_run()
  run.spec = types.SimpleNamespace(export_average=average)
  recall = {"recall_at_far": {"0.001": 0.25}, "confidence": 0.95}
  counts = {"num_classes": 3, "num_images": 9, "num_found": None}
  interval = {"recall_class_interval_at_far": {"0.001": (0.0, 0.5)}}
  run.untrained, run.trained = recall, recall | counts | interval
  run.summary = {
    "user_meaning": "a user",
    "secure_sums": None,
    "held_out_classes_are_new": True,
    "kept": {"round": 4, "of_rounds": 4, "start_share": 0.25},
  }
  told = templates.render("closing.txt", run=run)
  assert f" 25% those of the start, 75% those of {of}.\n" in told


@pytest.mark.parametrize(
  "claim", [specs.PARTICIPATION, poisson.Poisson(100, 10)]
)
def test_epsilon_ends_where_the_report_says(claim):
  run = _create_run(claim)
  panel = training_report.create_panels(run)["epsilon"].keywords
  assert list(panel["rounds"]) == [1, 2, 3, 4]
  curve = panel["epsilons"]
  assert curve == sorted(curve)
  assert curve[-1] == pytest.approx(run.account.report.epsilon)
