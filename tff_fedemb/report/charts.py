"""The pictures of a finished run: panels by name, for files and for pages."""

import dataclasses
from typing import Any

import numpy as np

from tff_fedemb.plots import deployment_plots
from tff_fedemb.plots import training_plots as plots
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import training
from tff_fedemb.report import run_files

_NUM_EPSILON_POINTS = 12
# Monte Carlo takes seconds for each point.
_NUM_MONTE_CARLO_POINTS = 6
_THIS_RUN = "this run"


def create_panels(
  run: run_files.Run, *, extrapolates: bool = False
) -> dict[str, Any]:
  """Creates the panels of a run, as far as its files are there.

  Args:
    run: The run.
    extrapolates: Whether the panel of epsilon shows the extrapolation as well.

  Returns:
    Panels by name: loss, recall, roc and epsilon.
  """
  panels: dict[str, Any] = {}
  if run.metrics is not None and len(run.metrics):
    metrics = run.metrics
    panels["loss"] = plots.LossPanel(metrics.index, metrics["client_work/loss"])
    names = [c for c in metrics if c.startswith(training.RECALL_PREFIX)]
    evaluated = metrics[names].dropna()
    validation = run.summary["evaluation_untrained"]["validation"]
    panels["recall"] = plots.RecallPanel(
      evaluated.index,
      {
        float(name.removeprefix(training.RECALL_PREFIX)): evaluated[name]
        for name in names
      },
      {float(x): recall for x, recall in validation["recall_at_far"].items()},
    )
  if run.results:
    panels["roc"] = plots.RocPanel(run.results)
  panels["epsilon"] = _create_epsilon_panel(run, extrapolates)
  return panels


def _create_epsilon_panel(
  run: run_files.Run, extrapolates: bool
) -> plots.EpsilonPanel:
  """Epsilon over the rounds of a run, and that of its extrapolation if any."""
  ledger, privacy = run.account.ledger, run.account.report
  claim, num_points = ledger.participation, _NUM_EPSILON_POINTS
  if privacy.accountant == "monte_carlo":
    num_points = _NUM_MONTE_CARLO_POINTS
  points = np.linspace(1, ledger.rounds, num_points, dtype=int)
  rounds = np.unique(points).tolist()
  known = ledger
  if not claim.is_sampled:
    # As the report has it: what the schedule says of its users.
    known = dataclasses.replace(
      ledger,
      participation=claim.with_known_schedule(
        max(privacy.max_participations, 1)
      ),
    )
  curves = {
    _THIS_RUN: known.epsilon_curve(rounds, accountant=privacy.accountant)
  }
  if extrapolates and run.extrapolation is not None:
    config = run.spec.extrapolation
    # PLD would take seconds for each point.
    accountant = claim.with_secret_schedule().accountants[0]
    name = (
      f"extrapolated to {config.extrapolated_num_users:,} users,\n"
      f"{config.cohort_factor:g} x the cohort,"
      f" δ = {run.extrapolation.delta:g},"
      f" {report_lib.ACCOUNTANT_NAMES[accountant]}"
    )
    curves[name] = [
      config.extrapolate(
        number,
        noise=ledger.noise,
        participation=claim,
        accountants=(accountant,),
      ).user_level.epsilon
      for number in rounds
    ]
  return plots.EpsilonPanel(
    rounds,
    curves,
    ledger.delta,
    f"unit: {privacy.unit}; {privacy.neighboring_relation}; {privacy.sampling}",
  )


def create_week(run: run_files.Run, panels: dict[str, Any]) -> dict[str, Any]:
  """Creates the panels of a run's deployment, by rows.

  Args:
    run: The run, with a deployment.
    panels: Panels of the run.

  Returns:
    Panels by name: available, recall_by_days, reports and epsilon_by_days.
  """
  rounds = run.deployment
  epsilon = panels["epsilon"]
  own = {_THIS_RUN: epsilon.curves[_THIS_RUN]}
  week = {"available": deployment_plots.AvailabilityPanel(rounds)}
  if "recall" in panels:
    week["recall_by_days"] = deployment_plots.over_time(
      panels["recall"], rounds
    )
  return week | {
    "reports": deployment_plots.ReportsPanel(rounds),
    "epsilon_by_days": deployment_plots.over_time(
      dataclasses.replace(epsilon, curves=own), rounds
    ),
  }
