"""Figures, pictures and closing lines of a finished training run."""

from collections.abc import Mapping
import functools
import math
import resource
from typing import Any

import numpy as np
import pandas as pd

from tff_fedemb import progress
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.evaluation import verification
from tff_fedemb.planning import extrapolation as extrapolation_lib
from tff_fedemb.plots import training_plots as plots
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import metrics as metrics_lib
from tff_fedemb.records import release
from tff_fedemb.records import run_directory
from tff_fedemb.report import finished_run
from tff_fedemb.report import templates
from tff_fedemb.rounds import loop
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.spec import task as task_lib

# The summary lists at most this many of the examples that were left out.
_NUM_LISTED = 100


def without_curves(
  results: Mapping[str, verification.VerificationResult],
) -> dict[str, Any]:
  """Returns results as JSON values, without their ROC curves.

  Args:
    results: Results by split.

  Returns:
    JSON values by split.
  """
  values = {}
  for split, result in results.items():
    values[split] = result.to_json()
    values[split].pop("roc", None)
  return values


def peak_memory_bytes() -> int:
  """Returns the peak memory of this process and of its ended children.

  Returns:
    Bytes of the largest single process, not of all together.
  """
  own = resource.getrusage(resource.RUSAGE_SELF)
  children = resource.getrusage(resource.RUSAGE_CHILDREN)
  # Linux counts in KiB.
  return 1024 * max(own.ru_maxrss, children.ru_maxrss)


def summarize(
  experiment: experiment_lib.Experiment,
  *,
  state: loop.TrainingState,
  chain: chain_lib.Chain,
  model_weights: Any,
  metrics: pd.DataFrame,
  trained: Mapping[str, verification.VerificationResult],
  untrained: Mapping[str, verification.VerificationResult],
  pretrained: Mapping[str, Any] | None,
  privacy: report_lib.PrivacyReport,
  extrapolation: extrapolation_lib.Extrapolation | None,
) -> dict[str, Any]:
  """Returns the contents of summary.json.

  Args:
    experiment: The run, resolved.
    state: State after the last round.
    chain: Chain of the rounds.
    model_weights: Model weights of the state.
    metrics: Metrics of each round, as returned by `metrics.read`.
    trained: Result by evaluation split.
    untrained: Result by split of a backbone with random weights.
    pretrained: JSON values that describe the pretrained weights at the start,
      with the "evaluation" of each split; `None` for random weights.
    privacy: Privacy cost of the rounds.
    extrapolation: Cost in a larger population; `None` without noise.

  Returns:
    JSON values by name; "inf" stands for infinity.
  """
  task = experiment.task
  evaluation = without_curves(trained)
  before = without_curves(untrained)
  skipped_clients = metrics[metrics_lib.NUM_SKIPPED_CLIENTS].sum()
  started = {}
  if pretrained is not None:
    test = pretrained["evaluation"]["test"]
    started = {
      "recall_at_far_pretrained": test["recall_at_far"],
      "pretrained": dict(pretrained),
    }
  return report_lib.json_safe(
    {
      "recall_at_far": evaluation["test"]["recall_at_far"],
      "recall_at_far_untrained": before["test"]["recall_at_far"],
      "privacy": privacy.to_json(),
      "privacy_extrapolated": extrapolation and extrapolation.to_json(),
      "rounds": state.rounds_done,
      "rounds_by_runs": chain.ledger.rounds_by_runs,
      "wall_seconds_of_rounds": state.wall_seconds,
      "peak_memory_bytes": peak_memory_bytes(),
      "num_private_parameters": sum(map(np.size, model_weights.trainable)),
      "algorithm": experiment.name,
      "task": task.name,
      "num_users": len(task.train_users),
      "user_meaning": task.user_meaning,
      "num_frozen_parameters": sum(map(np.size, model_weights.non_trainable)),
      "num_skipped_clients": int(skipped_clients),
      # This is None if updates were summed in the clear.
      "secure_sums": experiment.secure_sums,
      **_describe_data(task, metrics),
      "evaluation": evaluation,
      "evaluation_untrained": before,
      **started,
    }
  )


def _describe_data(
  task: task_lib.Task,
  metrics: pd.DataFrame,
) -> dict[str, Any]:
  """Returns how the data were split, and which examples were left out.

  Args:
    task: Task of the run.
    metrics: Metrics of each round.

  Returns:
    Part of `summary.json`. At most 100 bad examples are listed.
  """
  skipped_examples = metrics[metrics_lib.NUM_SKIPPED_EXAMPLES].sum()
  return {
    "split": task.split_description,
    "selection_users": task.selection_users,
    "evaluation_on_training_users": task.evaluation_on_training_users,
    "held_out_classes_are_new": task.held_out_classes_are_new,
    "data": {
      "warnings": list(task.warnings),
      "num_bad_examples": len(task.bad_examples),
      "bad_examples": list(task.bad_examples.lines[:_NUM_LISTED]),
      # The same example counts in each round that it is in.
      "num_skips_over_rounds": int(skipped_examples),
    },
  }


def create_panels(run: finished_run.FinishedRun) -> dict[str, Any]:
  """Creates the panels of a run, as far as it has their files.

  Each panel is a function that draws on axes of Matplotlib.

  Args:
    run: The run.

  Returns:
    Panels by name, as far as they can be drawn: loss, recall, roc and epsilon.
  """
  panels = {}
  if run.metrics is not None:
    losses = run.metrics[metrics_lib.LOSS]
    evaluated = run.metrics.filter(like=metrics_lib.RECALL_PREFIX).dropna()
    by_far = evaluated.rename(
      columns=lambda name: float(name.removeprefix(metrics_lib.RECALL_PREFIX))
    )
    before = run.summary["evaluation_untrained"]["validation"]["recall_at_far"]
    panels["loss"] = functools.partial(
      plots.draw_loss, rounds=losses.index, losses=losses
    )
    panels["recall"] = functools.partial(
      plots.draw_recall,
      rounds=by_far.index,
      recall_by_far=dict(by_far.items()),
      untrained={float(far): recall for far, recall in before.items()},
    )
  if run.results:
    panels["roc"] = functools.partial(plots.draw_roc, curves=run.results)
  panels["epsilon"] = functools.partial(
    plots.draw_epsilon,
    rounds=list(run.epsilons),
    epsilons=list(run.epsilons.values()),
    delta=run.delta,
  )
  return panels


def create_week(
  run: finished_run.FinishedRun,
  panels: dict[str, Any],
) -> dict[str, Any]:
  """Creates the panels of a run's deployment.

  Args:
    run: The run, with a deployment.
    panels: Panels of the run, as returned by `create_panels`.

  Returns:
    Panels by name: available, reports, and where the run has their panels
    recall_by_days and epsilon_by_days.
  """
  rounds = run.deployment
  week = {
    "available": functools.partial(plots.draw_availability, rounds=rounds),
    "reports": functools.partial(plots.draw_reports, rounds=rounds),
  }
  for name in ("recall", "epsilon"):
    if name in panels:
      panel = plots.over_time(panels[name], rounds)
      week[f"{name}_by_days"] = panel
  return week


def draw(run: finished_run.FinishedRun) -> None:
  """Draws loss, recall, ROC and epsilon to `plots/overview.png`.

  For a run with a deployment it also draws the devices, recall and epsilon over
  simulated time, to `plots/deployment.png`.

  Args:
    run: The run; the pictures are in its directory.

  Raises:
    errors.FieldError: As `FinishedRun.account`.
    errors.DataError: As `FinishedRun.account`, or if metrics are damaged.
  """
  directory = run.path / "plots"
  directory.mkdir(exist_ok=True)
  title = f"{run.summary['task']}, {run.summary['algorithm']}"
  privacy = run.account.report
  panels = create_panels(run)
  plot = functools.partial(
    plots.plot_overview,
    statement=(
      f"unit: {privacy.unit}; {privacy.neighboring_relation};"
      f" {privacy.sampling}"
    ),
  )
  plot(directory / "overview.png", list(panels.values()), title=title)
  if run.deployment is not None:
    plot(
      directory / "deployment.png",
      list(create_week(run, panels).values()),
      title=f"{title}: devices that come and go (simulated)",
    )


def tell(run: finished_run.FinishedRun) -> str:
  """Returns the outcome in at most eight lines; summary.json has the rest.

  Args:
    run: The run.

  Returns:
    Lines of at most 80 columns: results, cost, warnings, and the directory.
  """
  privacy = run.account.report
  warnings = list(privacy.warnings) + list(run.trained["warnings"])
  lines = templates.render("closing.txt", run=run).splitlines()
  extras = templates.render("closing_extras.txt", run=run).splitlines()
  covered = release.say(privacy.epsilon)
  if privacy.epsilon < math.inf:
    covered = f"the guarantee covers {run_directory.RELEASE}/ alone"
    extras.insert(0, run.account.ledger.participation.breaks_if)
    if run.summary["evaluation_on_training_users"]:
      of_them = "recall is of images of users who may train: epsilon does not"
      warnings.insert(0, f"{of_them} cover it")
  return progress.end(
    lines,
    warnings=warnings,
    extras=extras,
    rest=f"Written to {run.path}: {run_directory.SUMMARY}; {covered}.",
  )
