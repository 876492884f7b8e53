"""Figures, pictures and closing lines of a finished training run."""

from collections.abc import Mapping
import math
import resource
from typing import Any

import numpy as np
import pandas as pd

from tff_fedemb.evaluation import verification
from tff_fedemb.plots import training_plots as plots
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import metrics as metrics_lib
from tff_fedemb.program import release
from tff_fedemb.program import training
from tff_fedemb.report import charts
from tff_fedemb.report import run_files
from tff_fedemb.report import templates
from tff_fedemb.run import experiment as experiment_lib

# summary.json lists at most so many of the examples that were left out.
_NUM_LISTED = 100


def without_curves(
  results: Mapping[str, verification.VerificationResult],
) -> dict[str, Any]:
  """Results by split as JSON values, without their ROC curves."""
  return {
    split: {
      name: value for name, value in result.to_json().items() if name != "roc"
    }
    for split, result in results.items()
  }


def peak_memory_bytes() -> int:
  """Peak memory of this process and of those that it has ended."""
  return 1024 * max(
    resource.getrusage(who).ru_maxrss
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  )


def summarize(
  experiment: experiment_lib.Experiment,
  *,
  state: training.TrainingState,
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
    metrics: Rows of rounds, as `metrics.read` returns them.
    trained: Result per evaluation split.
    untrained: Result per split of a backbone with random weights.
    pretrained: JSON values that describe the pretrained weights at the start,
      with the "evaluation" of each split; `None` for random weights.
    privacy: Privacy cost of the rounds.
    extrapolation: Cost with a larger population, if there is noise.

  Returns:
    JSON values by name; "inf" stands for infinity.
  """
  task = experiment.task
  evaluation, before = without_curves(trained), without_curves(untrained)
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
      "chain": chain.head,
      "privacy_extrapolated": extrapolation and extrapolation.to_json(),
      "rounds": state.rounds_done,
      "rounds_by_runs": composition.rounds_by_runs(chain.ledger.history),
      "wall_seconds_of_rounds": state.wall_seconds,
      "peak_memory_bytes": peak_memory_bytes(),
      "num_private_parameters": sum(map(np.size, model_weights.trainable)),
      "algorithm": experiment.name,
      "task": task.name,
      "num_users": len(task.train_users),
      "user_meaning": task.user_meaning,
      "num_frozen_parameters": sum(map(np.size, model_weights.non_trainable)),
      "num_skipped_clients": int(
        metrics[metrics_lib.NUM_SKIPPED_CLIENTS].sum()
      ),
      # None where updates were summed in the clear.
      "secure_sums": experiment.secure_sums,
      "split": task.split_description,
      "selection_users": task.selection_users,
      "evaluation_on_training_users": task.evaluation_on_training_users,
      "held_out_classes_are_new": task.held_out_classes_are_new,
      "data": {
        "warnings": list(task.warnings),
        "num_bad_examples": len(task.bad_examples),
        "bad_examples": list(task.bad_examples.lines[:_NUM_LISTED]),
        # An example counts in every round that has met it.
        "num_skips_over_rounds": int(
          metrics[metrics_lib.NUM_SKIPPED_EXAMPLES].sum()
        ),
      },
      "evaluation": evaluation,
      "evaluation_untrained": before,
      **started,
    }
  )


def draw(run: run_files.Run) -> None:
  """Draws loss, recall, ROC and epsilon in one overview.

  A run with a deployment gets the devices, recall and epsilon over simulated
  time as well.

  Args:
    run: The run; its directory gets `plots/`.
  """
  directory = run.path / "plots"
  directory.mkdir(exist_ok=True)
  panels = charts.create_panels(run, extrapolates=True)
  title = f"{run.summary['task']}, {run.summary['algorithm']}"
  plots.plot_overview(
    directory / "overview.png", list(panels.values()), title=title
  )
  if run.deployment is not None:
    plots.plot_overview(
      directory / "deployment.png",
      list(charts.create_week(run, panels).values()),
      title=f"{title}: devices that come and go (simulated)",
    )


def tell(run: run_files.Run) -> str:
  """The outcome in five lines at most: summary.json has the rest."""
  privacy = run.account.report
  warnings = [*run.trained["warnings"], *privacy.warnings]
  if run.evaluation_on_training_users and privacy.epsilon < math.inf:
    warnings.append(
      "recall is of images that may be of the users who trained: epsilon does"
      " not cover it"
    )
  covered = release.say(privacy.epsilon)
  return templates.render(
    "closing.txt", run=run, warnings=warnings, covered=covered
  )
