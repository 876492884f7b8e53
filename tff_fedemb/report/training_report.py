"""What a finished training run leaves for readers: figures, pictures, lines."""

from collections.abc import Iterator, Mapping
import dataclasses
import math
import os
import pathlib
import resource
from typing import Any

import numpy as np
import pandas as pd

from tff_fedemb.evaluation import verification
from tff_fedemb.plots import deployment_plots
from tff_fedemb.plots import training_plots as plots
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import metrics as metrics_lib
from tff_fedemb.program import release
from tff_fedemb.program import run_directory
from tff_fedemb.program import training
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import extrapolation as extrapolation_config

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
  extrapolation: extrapolation_config.ExtrapolationConfig | None = None,
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
    chain: What happened in the rounds.
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
  chain: chain_lib.Chain
  model_weights: Any
  metrics: pd.DataFrame
  trained: Mapping[str, verification.VerificationResult]
  untrained: Mapping[str, verification.VerificationResult]
  pretrained: Mapping[str, Any] | None
  privacy: report_lib.PrivacyReport
  extrapolation: extrapolation_lib.Extrapolation | None

  @property
  def ledger(self) -> ledger_lib.Ledger:
    """What the rounds have cost."""
    return self.chain.ledger

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
        "chain": self.chain.head,
        "privacy_extrapolated": (
          self.extrapolation and self.extrapolation.to_json()
        ),
        "rounds": self.state.rounds_done,
        "rounds_by_runs": composition.rounds_by_runs(self.ledger.history),
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
          metrics[metrics_lib.NUM_SKIPPED_CLIENTS].sum()
        ),
        # None where updates were summed in the clear.
        "secure_sums": self.experiment.secure_sums,
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
        self.ledger, self.privacy, self.experiment.spec.extrapolation
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
        create_epsilon_panel(self.ledger, self.privacy),
      ),
      title=(
        f"{self.experiment.task.name}, {self.experiment.name}: devices that"
        " come and go (simulated)"
      ),
    )

  def to_lines(
    self,
    run_dir: str | os.PathLike[str],
    deployed: Mapping[str, Any] | None = None,
  ) -> Iterator[str]:
    """The outcome in five lines at most: summary.json has the rest.

    Args:
      run_dir: Where the files are.
      deployed: What came of a deployment, if there was one.
    """
    yield self._tell_recall()
    yield self._tell_epsilon()
    larger = self.extrapolation
    if larger is not None:
      yield (
        "Extrapolated, not this run's: epsilon ="
        f" {larger.user_level.epsilon:.4g} at delta = {larger.delta:.3g}, for"
        f" {larger.participation.num_users:,} users and"
        f" {larger.cohort_factor:g} times the cohort and the noise; that recall"
        " would be the same is assumed, not measured."
      )
    warnings = [*self.trained["test"].warnings, *self.privacy.warnings]
    is_private = self.privacy.epsilon < math.inf
    if self.experiment.task.evaluation_on_training_users and is_private:
      warnings.append(
        "recall is of images that may be of the users who trained: epsilon does"
        " not cover it"
      )
    if warnings:
      yield f"warning: {'; '.join(warnings)}"
    files = "plots/overview.png, metrics.csv"
    if deployed is not None:
      unit_hours, unit = deployment_plots.choose_unit(24 * deployed["days"])
      files += (
        f"; plots/deployment.png: {deployed['rounds_released']:,} rounds in"
        f" {24 * deployed['days'] / unit_hours:.3g} simulated {unit},"
        f" {deployed['rounds_abandoned']:,} abandoned,"
        f" {deployed['dropout']:.1%} of the devices lost"
      )
    yield (
      f"Written to {os.fspath(run_dir)}: summary.json (all figures, and what"
      f" they assume), {files}; {release.say(self.privacy.epsilon)}."
    )

  def _tell_recall(self) -> str:
    rate, trained = _FALSE_ACCEPT_RATE, self.trained["test"]
    key = verification.format_false_accept_rate(rate)
    before = f"untrained {_recall(self.untrained)[key]:.4f}"
    if self.pretrained is not None:
      test = self.pretrained["evaluation"]["test"]
      before += f"; pretrained {test['recall_at_far'][key]:.4f}"
    is_new = self.experiment.task.held_out_classes_are_new
    sample = ""
    if trained.num_found is not None:
      sample = f", a random sample of {trained.num_found:,}"
    low, high = trained.recall_class_interval_at_far[rate]
    return (
      f"Recall at FAR {rate:g} on {trained.num_classes:,}"
      f" {'unseen classes' if is_new else 'classes'}"
      f" ({trained.num_images:,} test images{sample}):"
      f" {trained.recall_at_far[rate]:.4f} ({trained.confidence:.0%} interval"
      f" over classes {low:.4f} to {high:.4f}); {before}."
    )

  def _tell_epsilon(self) -> str:
    privacy, sums = self.privacy, ""
    if self.experiment.secure_sums:
      sums = (
        f" The sums of updates are secure sums, {self.experiment.secure_sums}:"
        " epsilon does not rest on them."
      )
    return (
      f"epsilon = {privacy.epsilon:.4g} at delta = {privacy.delta:g} for one"
      f" {privacy.unit} ({self.experiment.task.user_meaning};"
      f" {privacy.neighboring_relation}), {privacy.rounds:,} rounds, by"
      f" {privacy.accountant}.{sums}"
    )
