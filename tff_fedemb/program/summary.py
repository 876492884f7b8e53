"""What a finished run leaves for readers: summary.json and pictures."""

from collections.abc import Mapping
import json
import os
import pathlib
import resource
from typing import Any

import pandas as pd

from tff_fedemb.evaluation import verification
from tff_fedemb.plots import training_plots as plots
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import training


def peak_memory_bytes() -> int:
  """Largest resident size so far of this process or of one of its children."""
  return 1024 * max(
    resource.getrusage(who).ru_maxrss
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  )


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


def build_summary(
  *,
  state: training.TrainingState,
  trained: Mapping[str, verification.VerificationResult],
  untrained: Mapping[str, verification.VerificationResult],
  pretrained: Mapping[str, Any] | None,
  privacy: report_lib.PrivacyReport,
  extrapolation: extrapolation_lib.Extrapolation | None,
  num_private_parameters: int,
  wall_seconds: float,
  extra: Mapping[str, Any],
) -> dict[str, Any]:
  """Builds the contents of summary.json.

  Args:
    state: State after the last round.
    trained: Result per evaluation split, "test" among them.
    untrained: The same of a backbone with random weights.
    pretrained: What training started from, JSON values by name with the
      "evaluation" of each split, if those were not random weights.
    privacy: What the rounds cost.
    extrapolation: Cost with a larger population, if there is noise.
    num_private_parameters: Numbers in one client's update.
    wall_seconds: Time of the whole run, start-up and evaluation included.
    extra: Further facts, by name.

  Returns:
    JSON values by name; "inf" stands for infinity.
  """

  def recall(result):
    return {
      verification.format_false_accept_rate(rate): value
      for rate, value in result.recall_at_far.items()
    }

  before = {}
  if pretrained is not None:
    before = {
      "recall_at_far_pretrained": (
        pretrained["evaluation"]["test"]["recall_at_far"]
      ),
      "pretrained": dict(pretrained),
    }
  return report_lib.json_safe(
    {
      "recall_at_far": recall(trained["test"]),
      "recall_at_far_untrained": recall(untrained["test"]),
      "privacy": privacy.to_json(),
      "ledger": json.loads(state.ledger.to_json()),
      "privacy_extrapolated": extrapolation and extrapolation.to_json(),
      "rounds": state.rounds_done,
      "wall_seconds": wall_seconds,
      "wall_seconds_of_rounds": state.wall_seconds,
      "peak_memory_bytes": peak_memory_bytes(),
      "num_private_parameters": num_private_parameters,
      **extra,
      "evaluation": without_curves(trained),
      "evaluation_untrained": without_curves(untrained),
      **before,
    }
  )


def draw_plots(
  directory: str | os.PathLike[str],
  *,
  metrics: pd.DataFrame,
  ledger: ledger_lib.Ledger,
  privacy: report_lib.PrivacyReport,
  trained: Mapping[str, verification.VerificationResult],
  untrained: Mapping[str, verification.VerificationResult],
  extrapolated: Mapping[str, list[float]],
  epsilon_rounds: list[int],
  title: str,
) -> None:
  """Draws loss, recall, ROC and epsilon, one by one and in one overview.

  Args:
    directory: Gets `loss.png`, `recall.png`, `roc.png`, `epsilon.png` and
      `overview.png`.
    metrics: Rows of rounds, as `MetricsLog.read` returns them.
    ledger: The rounds' events.
    privacy: What they cost.
    trained: Result per evaluation split.
    untrained: The same before training.
    extrapolated: Further epsilon curves by name, over `epsilon_rounds`.
    epsilon_rounds: Rounds at which to show epsilon.
    title: Title of the overview.
  """
  directory = pathlib.Path(directory)
  directory.mkdir(exist_ok=True)
  recall_names = [c for c in metrics if c.startswith(training.RECALL_PREFIX)]
  evaluated = metrics[recall_names].dropna()
  epsilons = ledger.epsilon_curve(epsilon_rounds, accountant=privacy.accountant)
  panels: dict[str, plots.Panel] = {
    "loss": plots.LossPanel(metrics.index, metrics["client_work/loss"]),
    "recall": plots.RecallPanel(
      evaluated.index,
      {
        float(name.removeprefix(training.RECALL_PREFIX)): evaluated[name]
        for name in recall_names
      },
      untrained["validation"].recall_at_far,
    ),
    "roc": plots.RocPanel(
      {"trained": trained["test"], plots.UNTRAINED: untrained["test"]}
    ),
    "epsilon": plots.EpsilonPanel(
      epsilon_rounds,
      {"this run": epsilons, **extrapolated},
      ledger.delta,
      f"unit: {privacy.unit}; {privacy.neighboring_relation};"
      f" {privacy.sampling}",
    ),
  }
  for name, panel in panels.items():
    plots.plot(directory / f"{name}.png", panel)
  plots.plot_overview(
    directory / "overview.png", list(panels.values()), title=title
  )
