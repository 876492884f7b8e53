"""Tests of the panels of a run."""

import types

import numpy as np
import pandas as pd
import pytest

from tests.spec import specs
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import poisson
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
  return types.SimpleNamespace(
    summary={"evaluation_untrained": before},
    results={},
    metrics=metrics,
    account=types.SimpleNamespace(ledger=ledger, report=ledger.report()),
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
  "claim", [specs.PARTICIPATION, poisson.Poisson(100, 10)]
)
def test_epsilon_ends_where_the_report_says(claim):
  run = _create_run(claim)
  panel = training_report.create_panels(run)["epsilon"].keywords
  assert list(panel["rounds"]) == [1, 2, 3, 4]
  curve = panel["epsilons"]
  assert curve == sorted(curve)
  assert curve[-1] == pytest.approx(run.account.report.epsilon)
