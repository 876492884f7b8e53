"""Tests of the panels of a run."""

import types

import dp_accounting
import numpy as np
import pandas as pd
import pytest

from tests.run import specs
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.report import charts


def _create_run(claim=specs.PARTICIPATION, metrics=None, **spec_fields):
  event = dp_accounting.GaussianDpEvent(2.0)
  ledger = ledger_lib.Ledger(claim, delta=1e-3).with_rounds(event, 4)
  spec = specs.create(participation=claim, **spec_fields)
  before = {"validation": {"recall_at_far": {"0.001": 0.1}}}
  return types.SimpleNamespace(
    spec=spec,
    summary={"evaluation_untrained": before},
    results={},
    metrics=metrics,
    account=types.SimpleNamespace(ledger=ledger, report=ledger.report()),
    extrapolation=spec.extrapolation.extrapolate(
      4, noise=ledger.noise, participation=claim
    ),
    deployment=pd.DataFrame(
      {
        "start_hours": [0.0, 3.0, 6.0, 9.0],
        "end_hours": [1.0, 4.0, 7.0, 10.0],
        "abandoned": 0,
      }
    ),
  )


_METRICS = pd.DataFrame(
  {
    "client_work/loss": [4.0, 3.0, 2.0, 1.0],
    "validation/recall_at_far_0.001": [np.nan, 0.2, np.nan, 0.4],
  },
  index=[1, 2, 3, 4],
)


def test_panels_show_what_the_files_have():
  run = _create_run(metrics=_METRICS)
  panels = charts.create_panels(run)
  assert list(panels) == ["loss", "recall", "epsilon"]
  assert list(panels["loss"].losses) == [4.0, 3.0, 2.0, 1.0]
  # Rounds without an evaluation are left out.
  assert list(panels["recall"].rounds) == [2, 4]
  assert list(panels["recall"].recall_by_far[1e-3]) == [0.2, 0.4]
  assert panels["recall"].untrained == {1e-3: 0.1}
  assert list(charts.create_panels(_create_run())) == ["epsilon"]


@pytest.mark.parametrize(
  "claim", [specs.PARTICIPATION, poisson.Poisson(100, 10)]
)
def test_epsilon_ends_where_the_report_says(claim):
  run = _create_run(claim)
  panel = charts.create_panels(run)["epsilon"]
  assert list(panel.rounds) == [1, 2, 3, 4]
  curve = panel.curves["this run"]
  assert curve == sorted(curve)
  assert curve[-1] == pytest.approx(run.account.report.epsilon)


def test_a_week_in_four_panels_and_an_extrapolation():
  run = _create_run(metrics=_METRICS)
  panels = charts.create_panels(run, extrapolates=True)
  _, name = panels["epsilon"].curves
  assert name.startswith("extrapolated to 10,000,000 users,\n64 x the cohort")
  week = charts.create_week(run, panels)
  assert list(week) == ["available", "recall_by_days", "reports"] + [
    "epsilon_by_days"
  ]
  np.testing.assert_allclose(week["recall_by_days"].rounds, [4, 10])
  # An extrapolation has no simulated time.
  assert list(week["epsilon_by_days"].curves) == ["this run"]
  without = charts.create_week(_create_run(), {"epsilon": panels["epsilon"]})
  assert list(without) == ["available", "reports", "epsilon_by_days"]
