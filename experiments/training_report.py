"""What a finished training run leaves for readers: figures, pictures, lines."""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import math
import os
import pathlib
import resource
from typing import Any

import numpy as np
import pandas as pd

from experiments import experiment as experiment_lib
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import deployment_plots
from tff_fedemb.plots import training_plots as plots
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import run_directory
from tff_fedemb.program import same_again
from tff_fedemb.program import training

# What the result of a trained model is called beside that of an untrained one.
TRAINED = "trained"

# Of the examples that were left out, in summary.json.
_NUM_LISTED = 100
_NUM_MONTE_CARLO_POINTS = 6
# At which recall is told.
_FALSE_ACCEPT_RATE = 1e-3


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
  """Most memory that this process, or one that it has ended, ever held."""
  return 1024 * max(
    resource.getrusage(who).ru_maxrss
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  )


def _count(weights) -> int:
  return sum(np.size(value) for value in weights)


def _recall(
  results: Mapping[str, verification.VerificationResult],
) -> dict[str, float]:
  return {
    verification.format_false_accept_rate(rate): value
    for rate, value in results["test"].recall_at_far.items()
  }


def create_loss_panel(metrics: pd.DataFrame) -> plots.LossPanel:
  """The training loss of a run, by its rows of rounds."""
  return plots.LossPanel(metrics.index, metrics["client_work/loss"])


def create_recall_panel(
  metrics: pd.DataFrame, untrained: Mapping[float, float]
) -> plots.RecallPanel:
  """The recall of validation images, by a run's rows of rounds.

  Args:
    metrics: As `metrics.read` returns them.
    untrained: Recall before training by false accept rate.
  """
  names = [c for c in metrics if c.startswith(training.RECALL_PREFIX)]
  evaluated = metrics[names].dropna()
  return plots.RecallPanel(
    evaluated.index,
    {
      float(name.removeprefix(training.RECALL_PREFIX)): evaluated[name]
      for name in names
    },
    untrained,
  )


def create_epsilon_panel(
  ledger: ledger_lib.Ledger,
  privacy: report_lib.PrivacyReport,
  extrapolation: experiment_lib.ExtrapolationConfig | None = None,
  *,
  num_points: int = 12,
) -> plots.EpsilonPanel:
  """Epsilon over the rounds of a run, and that of its extrapolation if any.

  Args:
    ledger: Of the run, with at least one round.
    privacy: Its report, checked against the trace.
    extrapolation: For whom else to work out the cost, if for anyone.
    num_points: Of a curve, at most.
  """
  if privacy.accountant == "monte_carlo":
    # It takes seconds for each point.
    num_points = min(num_points, _NUM_MONTE_CARLO_POINTS)
  points = np.linspace(
    1, ledger.rounds, min(ledger.rounds, num_points), dtype=int
  )
  rounds = sorted(set(points.tolist()))
  known = ledger
  if not ledger.participation.is_sampled:
    # As the report has it: what the schedule says of its users.
    participation = ledger.participation.with_known_schedule(
      max(privacy.max_participations, 1)
    )
    known = dataclasses.replace(ledger, participation=participation)
  curves = {
    "this run": known.epsilon_curve(rounds, accountant=privacy.accountant)
  }
  if extrapolation is not None:
    # PLD would take seconds for each point.
    accountant = ledger.participation.with_secret_schedule().accountants[0]
    larger = [
      extrapolation.extrapolate(
        number,
        noise=ledger.noise,
        participation=ledger.participation,
        accountants=(accountant,),
      )
      for number in rounds
    ]
    if larger[0] is not None:
      name = (
        f"extrapolated to {extrapolation.extrapolated_num_users:,} users,\n"
        f"{extrapolation.cohort_factor:g} x the cohort,"
        f" δ = {larger[0].delta:g},"
        f" {report_lib.ACCOUNTANT_NAMES[accountant]}"
      )
      curves[name] = [x.user_level.epsilon for x in larger]
  return plots.EpsilonPanel(
    rounds,
    curves,
    ledger.delta,
    f"unit: {privacy.unit}; {privacy.neighboring_relation}; {privacy.sampling}",
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
  """What came out of a run.

  Attributes:
    experiment: What was run.
    state: After the last round.
    model_weights: Of the state.
    metrics: Rows of rounds, as `metrics.read` returns them.
    trained: Result per evaluation split.
    untrained: The same of a backbone with random weights.
    pretrained: What training started from, JSON values by name with the
      "evaluation" of each split, if those were not random weights.
    privacy: What the rounds cost.
    extrapolation: Cost with a larger population, if there is noise.
  """

  experiment: experiment_lib.Experiment
  state: training.TrainingState
  model_weights: Any
  metrics: pd.DataFrame
  trained: Mapping[str, verification.VerificationResult]
  untrained: Mapping[str, verification.VerificationResult]
  pretrained: Mapping[str, Any] | None
  privacy: report_lib.PrivacyReport
  extrapolation: extrapolation_lib.Extrapolation | None

  def to_json(self, *, wall_seconds: float) -> dict[str, Any]:
    """The contents of summary.json.

    Args:
      wall_seconds: Time of the whole run, start-up and evaluation included.

    Returns:
      JSON values by name; "inf" stands for infinity.
    """
    task, metrics = self.experiment.task, self.metrics
    before = {}
    if self.pretrained is not None:
      test = self.pretrained["evaluation"]["test"]
      before = {
        "recall_at_far_pretrained": test["recall_at_far"],
        "pretrained": dict(self.pretrained),
      }
    return report_lib.json_safe(
      {
        "recall_at_far": _recall(self.trained),
        "recall_at_far_untrained": _recall(self.untrained),
        "privacy": self.privacy.to_json(),
        "ledger": json.loads(self.state.ledger.to_json()),
        "privacy_extrapolated": (
          self.extrapolation and self.extrapolation.to_json()
        ),
        "rounds": self.state.rounds_done,
        "rounds_by_runs": composition.rounds_by_runs(self.state.ledger.history),
        "wall_seconds": wall_seconds,
        "wall_seconds_of_rounds": self.state.wall_seconds,
        "peak_memory_bytes": peak_memory_bytes(),
        "num_private_parameters": _count(self.model_weights.trainable),
        "algorithm": self.experiment.name,
        "task": task.name,
        "num_users": len(task.train_users),
        "user_meaning": task.user_meaning,
        "num_frozen_parameters": _count(self.model_weights.non_trainable),
        "num_skipped_clients": int(
          metrics[same_again.NUM_SKIPPED_CLIENTS].sum()
        ),
        # None where updates were summed in the clear.
        "secure_sums": self.experiment.secure_sums,
        "split": task.split_description,
        "evaluation_on_training_users": task.evaluation_on_training_users,
        "held_out_classes_are_new": task.held_out_classes_are_new,
        "data": {
          "warnings": list(task.warnings),
          "num_bad_examples": len(task.bad_examples),
          "bad_examples": list(task.bad_examples.lines[:_NUM_LISTED]),
          # An example counts in every round that has met it.
          "num_skips_over_rounds": int(
            metrics[same_again.NUM_SKIPPED_EXAMPLES].sum()
          ),
        },
        "evaluation": without_curves(self.trained),
        "evaluation_untrained": without_curves(self.untrained),
        **before,
      }
    )

  def evaluation_to_json(self) -> dict[str, Any]:
    """The contents of evaluation.json: test results with their ROC curves."""
    return {
      TRAINED: self.trained["test"].to_json(),
      plots.UNTRAINED: self.untrained["test"].to_json(),
    }

  def draw_plots(self, directory: str | os.PathLike[str]) -> None:
    """Draws loss, recall, ROC and epsilon, one by one and in one overview.

    Args:
      directory: Gets `loss.png`, `recall.png`, `roc.png`, `epsilon.png` and
        `overview.png`.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(exist_ok=True)
    untrained = self.untrained
    panels: dict[str, plots.Panel] = {
      "loss": create_loss_panel(self.metrics),
      "recall": create_recall_panel(
        self.metrics, untrained["validation"].recall_at_far
      ),
      "roc": plots.RocPanel(
        {TRAINED: self.trained["test"], plots.UNTRAINED: untrained["test"]}
      ),
      "epsilon": create_epsilon_panel(
        self.state.ledger, self.privacy, self.experiment.extrapolation
      ),
    }
    for name, panel in panels.items():
      plots.plot(directory / f"{name}.png", panel)
    plots.plot_overview(
      directory / "overview.png",
      list(panels.values()),
      title=f"{self.experiment.task.name}, {self.experiment.name}",
    )

  def draw_deployment(self, run_dir: str | os.PathLike[str]) -> None:
    """Draws devices, recall and epsilon over simulated days.

    Args:
      run_dir: Has the rounds, and gets `plots/deployment.png`.
    """
    run_dir = pathlib.Path(run_dir)
    untrained = self.untrained["validation"].recall_at_far
    plots.plot_overview(
      run_dir / "plots" / "deployment.png",
      deployment_plots.create_week(
        pd.read_csv(run_dir / run_directory.DEPLOYED_ROUNDS),
        create_recall_panel(self.metrics, untrained),
        create_epsilon_panel(self.state.ledger, self.privacy),
      ),
      title=(
        f"{self.experiment.task.name}, {self.experiment.name}: devices that"
        " come and go (simulated)"
      ),
    )

  def to_lines(self) -> Iterator[str]:
    """The outcome in words, a paragraph each."""
    task, privacy = self.experiment.task, self.privacy
    rate, trained = _FALSE_ACCEPT_RATE, self.trained["test"]
    key = verification.format_false_accept_rate(rate)
    before = f"untrained {_recall(self.untrained)[key]:.4f}"
    if self.pretrained is not None:
      test = self.pretrained["evaluation"]["test"]
      before += f"; pretrained {test['recall_at_far'][key]:.4f}"
    low, high = trained.recall_class_interval_at_far[rate]
    yield (
      f"Recall at FAR {rate:g} on {trained.num_classes}"
      f" {'unseen classes' if task.held_out_classes_are_new else 'classes'}"
      f" ({trained.num_images} images): {trained.recall_at_far[rate]:.4f}"
      f" ({trained.confidence:.0%} interval over classes {low:.4f} to"
      f" {high:.4f}); {before}."
    )
    if trained.recall_sample_interval_at_far is not None:
      low, high = trained.recall_sample_interval_at_far[rate]
      yield (
        f"That is a random sample of the {trained.num_found:,} images held out;"
        f" all of them would give {low:.4f} to {high:.4f}"
        f" ({trained.confidence:.0%} interval)."
      )
    if task.evaluation_on_training_users and privacy.epsilon < math.inf:
      yield (
        "This recall is of images that may be of the users who trained:"
        " epsilon does not cover it."
      )
    yield from (f"warning: {warning}" for warning in trained.warnings)
    yield (
      f"epsilon = {privacy.epsilon:.4g} at delta = {privacy.delta:g}"
      f" ({privacy.accountant}), {privacy.rounds} rounds."
    )
    yield (
      f"{_count(self.model_weights.trainable):,} parameters are trained on"
      f" users' data, {_count(self.model_weights.non_trainable):,} are frozen."
    )
    yield privacy.statement
    if self.experiment.secure_sums:
      yield (
        f"The sums of updates are secure sums, {self.experiment.secure_sums}:"
        " epsilon does not rest on them."
      )
    yield from (f"warning: {warning}" for warning in privacy.warnings)
    if self.extrapolation is not None:
      yield self.extrapolation.to_text()
