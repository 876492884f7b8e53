"""One private tuning, from its trials to the report of the best.

The program `tune` runs it. As in Papernot and Steinke 2022, the number of
trials is drawn once and only the best trial is released. The directory of a
tuning therefore holds two kinds of files: you may release those below
`release/`, and no others. Figures of users who train, which have no noise, are
among the others.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import dataclasses
import hashlib
import math
import os
import pathlib
import secrets
import shutil
import time
from typing import Any

from etils import epy
import numpy as np
import tqdm

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.records import release
from tff_fedemb.records import run_directory
from tff_fedemb.spec import experiment
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib
from tff_fedemb.training import search_space as search_space_lib
from tff_fedemb.training import tuning_charge

with epy.lazy_imports():
  from tff_fedemb.training import train

_REPORT = run_directory.TUNING
# Figures of users who train, without noise. The report leaves them out.
_RECALL = "recall_of_best.json"
_TRIALS = "trials"
_NUM_TRIALS = f"{_TRIALS}/num_trials.json"
# The best trial is the one with the largest recall at this false accept rate,
# on the first split.
_RATE = "0.001"
_METRIC = f"recall_at_far_{_RATE}"
_SPLITS = ("validation", "test")
# Files beside a trial's directory: how it ended, and what it printed.
_OUTCOME, _LOG = ".json", ".log"
# Values of the report that the table of a tuning shows.
_SHOWN = (
  "metric",
  *_SPLITS,
  "saved_model",
  "epsilon",
  "epsilon_if_chosen_by_others",
  "epsilon_of_one_trial",
  "delta",
  "distribution",
  "mean_trials",
)
_COMPLETE, _DIVERGED, _REFUSED = "complete", "diverged", "refused"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningConfig(config_lib.Config):
  """Settings of a tuning.

  Attributes:
    run_dir: Directory of the tuning: new, or of the tuning to go on with.
    mean_trials: Expected number of trials. The number itself is drawn at
      random; the guarantee rests on that.
    shape: Shape of that number's distribution: 0 logarithmic, 1 geometric, inf
      Poisson, others truncated negative binomial.
    privacy_budget: File of a budget that the tuning shares with runs on the
      same users. It is charged once, for the tuning as a whole.
  """

  run_dir: str = config_lib.field(flag="output_dir")
  mean_trials: float = config_lib.field(10.0, minimum=1)
  shape: float = config_lib.field(1.0, minimum=0, maximum=math.inf)
  privacy_budget: str | None = config_lib.field(None, path=True)


@dataclasses.dataclass(frozen=True)
class _Trial:
  """A trial that ran.

  Attributes:
    run_dir: Its directory.
    hyperparameters: Values that were drawn for it.
    cost: Its rounds, to its end.
    summary: Its summary.json; empty if its model diverged.
  """

  run_dir: pathlib.Path
  hyperparameters: Mapping[str, Any]
  cost: composition.Account
  summary: Mapping[str, Any]

  def recall(self, split: str) -> float:
    """Recall on the images of a split; -infinity if the model diverged.

    Args:
      split: "validation" or "test".

    Returns:
      Recall at a false accept rate of 0.001, in [0, 1].
    """
    if not self.summary:
      return -math.inf
    return self.summary["evaluation"][split]["recall_at_far"][_RATE]

  @property
  def splits_of_others(self) -> tuple[str, ...]:
    """Splits of which no image is of a user who trains.

    Only recalls on these are in the report: recall has no noise, so on images
    of users who train it is outside the guarantee.

    Returns:
      Names among "validation" and "test".
    """
    # Without this value in the summary, assume that users who train are in it.
    if not self.summary.get("evaluation_on_training_users", True):
      return _SPLITS
    return _SPLITS[:1] if self.summary.get("selection_users") else ()


class TuningRun:
  """Runs the trials in one directory.

  Trials run one after the other, each in a directory below `trials/`, which
  only its owner may open. The report has the best one alone.

  Privacy:
    Unit, neighbouring relation and sensitivity are those of a trial. Epsilon is
    that of choosing the best of a random number of trials, by RDP.

  References:
    Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential
    Privacy", ICLR 2022.
  """

  def __init__(
    self,
    config: TuningConfig,
    spec: spec_lib.RunSpec,
    space: search_space_lib.SearchSpace,
    *,
    generator: np.random.Generator | None = None,
    task: task_lib.Task | None = None,
  ):
    """Opens the directory, and draws the number of trials if it is new.

    Args:
      config: Settings of the tuning.
      spec: Spec that all trials share; each has its own hyperparameters and
        seed.
      space: Distributions of the hyperparameters.
      generator: Draws the number of trials, which a seed that anyone knows
        would give away [a new one].
      task: The task that `spec.task` creates, if it is at hand.

    Raises:
      errors.FieldError: As `run_directory.RunDirectory`; if the task's data are
        missing, the trials have a privacy budget of their own, or that of the
        tuning does not cover its choice.
      errors.DataError: If the task's data are damaged.
    """
    checks.check_not_forked()
    self._config, self._space = config, space
    self._spec = spec.with_absolute_paths()
    # All trials have the same data, which are read once.
    self._task = task or self._spec.task.create()
    self._check_budgets(spec.privacy_budget)
    # Values that all trials share are checked here, drawn ones in each trial.
    resolved = experiment.resolve(self._spec, self._task)
    self._selection = tuning.RepeatAndSelect(config.mean_trials, config.shape)
    self._directory = run_directory.RunDirectory(
      config.run_dir,
      self._describe(),
      varying={("trials", *x) for x in spec_lib.varying(self._spec)},
    )
    self._path = self._directory.path
    try:
      run_directory.make_private(self._path / _TRIALS)
      self._draw(generator)
      self._charge = self._create_charge(resolved.plan_ledger())
      self._charge.write()
    except BaseException:
      # A notebook keeps the error, and with it this tuning and its lock.
      self._directory.close()
      raise

  def _check_budgets(self, of_trials: str | None) -> None:
    """Refuses a budget of the trials, and one that covers no choice.

    Args:
      of_trials: Budget that the trials' spec names; None for none.

    Raises:
      errors.FieldError: If the trials have a budget, or the tuning has one and
        would choose by images of users who train.
    """
    if of_trials is not None:
      raise errors.FieldError(
        "privacy_budget",
        "not be given to the trials of a tuning: its file would tell how many"
        " there are, and charge each as if it were released",
        of_trials,
        "Give it to the tuning itself.",
      )
    if self._config.privacy_budget and not self._task.validates_on_others:
      raise errors.FieldError(
        "selection_users",
        "be given with privacy_budget where validation images may be of users"
        " who train: by these the best is chosen without noise",
        self._task.selection_users,
      )

  def _describe(self) -> dict[str, Any]:
    """Returns the settings that identify a tuning.

    Returns:
      JSON values by name, which a tuning that goes on must have again.
    """
    space = {}
    for name, (kind, values) in self._space.items():
      space[name] = {kind: list(values)}
    return {
      "mean_trials": self._config.mean_trials,
      "shape": str(self._config.shape),
      "search_space": space,
      "trials": self._spec.to_json(),
    }

  def _draw(self, generator: np.random.Generator | None) -> None:
    """Draws the number of trials and their seed, or reads what was drawn.

    Args:
      generator: Draws the number of trials; None for a new one, whose seed the
        operating system draws.

    Raises:
      errors.FieldError: If the file of what was drawn is damaged or lost.
    """
    drawn = self._directory.read_json(_NUM_TRIALS)
    if drawn is None and not self._directory.is_new:
      # Another number would be drawn, after trials that this one forgets.
      raise errors.FieldError(
        "run_dir",
        f"hold the {_NUM_TRIALS} that its tuning began with",
        f"{self._path} without it",
        "Take another directory to start again, at the cost of both.",
      )
    if drawn is None:
      if generator is None:
        generator = np.random.default_rng(secrets.randbits(128))
      # Save the number before any trial has a result: drawing again because of
      # a result, or because a tuning was interrupted, would void the guarantee.
      drawn = {
        "num_trials": self._selection.draw_num_trials(generator),
        # The seed is secret: with it, anyone could draw the hyperparameters of
        # all trials again and find the index of the best.
        "seed": secrets.randbits(128),
      }
      self._directory.write_json(_NUM_TRIALS, drawn)
    self._num_trials, self._seed = drawn["num_trials"], drawn["seed"]

  def _create_charge(
    self, planned: ledger_lib.Ledger
  ) -> tuning_charge.TuningCharge:
    """Returns the charge to the budget, by the ledger of a trial."""
    # The identifier is unique to this tuning, and does not reveal its seed.
    digest = hashlib.sha256(f"tuning {self._seed}".encode()).hexdigest()
    options = {
      "run_id": digest[:32],
      "users": self._task.train_users.digest,
      "selection": self._selection,
    }
    path, trial = self._config.privacy_budget, _of_trial(planned)
    return tuning_charge.TuningCharge(path, self._directory, trial, options)

  def run(self) -> dict[str, Any]:
    """Runs the trials that are left and reports the best.

    Returns:
      The contents of release/tuning.json.

    Raises:
      errors.DataError: If a trial fails other than by diverging or by refusing
        its hyperparameters, or costs something else than those before it.
      errors.FieldError: If a trial's directory is damaged or in use.
      errors.StorageError: If files cannot be written.
    """
    with contextlib.closing(self._directory):
      best = self._find_best()
      self._charge.end()
      report = self._report(best)
      if best is not None and best.summary:
        self._copy_model(best.run_dir, report["privacy"])
        kept = set(_SPLITS) - set(best.splits_of_others)
        if kept:
          recalls = {split: best.recall(split) for split in kept}
          self._directory.write_json(_RECALL, recalls)
      self._directory.write_json(_REPORT, report)
      self._directory.write_json(
        run_directory.TUNING_DIGESTS, release.digest_files(self._path)
      )
    return report

  def _find_best(self) -> _Trial | None:
    """Runs the trials that are left; `None` if none of them has trained.

    Returns:
      The first trial with the largest recall on validation images. A trial
      whose model diverged comes after all that trained to their end.

    Raises:
      errors.DataError: If a trial costs something else than those before it.
    """
    best, best_recall = None, -math.inf
    for index in tqdm.trange(self._num_trials, unit=" trials", disable=None):
      trial = self._run_trial(index)
      if trial is None:
        # A refused trial ranks below all others: the tuning must neither end,
        # nor draw another trial in its place.
        continue
      if best is not None:
        _check_equal(trial.cost, best.cost, trial.run_dir)
      recall = trial.recall(_SPLITS[0])
      # The first of equal trials wins: they are independent and alike, so this
      # is a choice at random.
      if best is None or recall > best_recall:
        best, best_recall = trial, recall
    return best

  def _run_trial(self, index: int) -> _Trial | None:
    """Runs a trial, or reads it; `None` if it refused its hyperparameters.

    Args:
      index: Number of the trial, from 0, on which its hyperparameters, seed and
        directory depend.
    """
    run_dir = self._path / _TRIALS / f"{index:03d}"
    # Directory and hyperparameters depend on seed and index alone.
    generator = np.random.default_rng([self._seed, index])
    drawn = search_space_lib.draw(self._space, generator)
    # Each trial has a seed of its own, and a key of its own for drawing users:
    # with the same users, two trials would not be independent runs.
    first = int(np.random.default_rng([self._seed]).integers(2**32))
    record = run_directory.read_json(run_dir.with_suffix(_OUTCOME)) or {}
    outcome = record.get("outcome")
    summary = run_dir / run_directory.SUMMARY
    was_lost = outcome == _COMPLETE and not summary.exists()
    if outcome is None or was_lost:
      self._check_not_finished(run_dir)
      self._charge.begin_trial()
      record = self._execute(run_dir, drawn, (first + index) % 2**32)
      outcome = record["outcome"]
      self._directory.write_json(f"{_TRIALS}/{index:03d}{_OUTCOME}", record)
    if outcome == _REFUSED:
      return None
    # A trial may diverge before its chain begins.
    cost: composition.Account = self._charge.trial
    if outcome == _COMPLETE or chain_lib.Chain(run_dir).found:
      cost = _read_cost(run_dir, is_complete=outcome == _COMPLETE)
    return _Trial(run_dir, drawn, cost, run_directory.read_json(summary) or {})

  def _check_not_finished(self, trial: pathlib.Path) -> None:
    """Refuses a finished tuning that has lost a trial.

    Another trial in its place would be one more than is accounted for.

    Args:
      trial: Directory of the trial.

    Raises:
      errors.FieldError: If the tuning has reported its best trial.
    """
    if self._directory.read_json(_REPORT) is not None:
      raise errors.FieldError(
        "run_dir",
        f"hold all trials of a finished tuning, as its {_REPORT} says it is",
        f"no finished trial in {trial}",
        "Take another directory to start again.",
      )

  def _execute(
    self, run_dir: pathlib.Path, drawn: Mapping[str, Any], seed: int
  ) -> dict[str, str]:
    """Runs a trial to its end; says how it ended, and why.

    Only a model that diverged, as its private weights and the images that the
    best is chosen by tell, and hyperparameters that no run can have are
    outcomes. Anything else, such as data that cannot be read, ends the tuning.

    Args:
      run_dir: Directory of the trial.
      drawn: Its hyperparameters.
      seed: Seed of its initial weights and client work.

    Returns:
      `outcome`, one of complete, diverged and refused, and `message`, if it is
      not complete.

    Raises:
      errors.DataError: If a class of one's own makes its noise by what is
        drawn, so that this trial would cost something else.
    """
    spec = dataclasses.replace(self._spec, seed=seed)
    try:
      spec = search_space_lib.apply(spec, drawn)
      resolved = experiment.resolve(spec, self._task)
    except errors.FieldError as error:
      return {"outcome": _REFUSED, "message": str(error)}
    # A tuning of a single trial has no other one to compare it with.
    planned = _of_trial(resolved.plan_ledger())
    _check_equal(planned, self._charge.trial, run_dir)
    # The terminal shows nothing of a trial: only the best is released.
    with (
      # Flush line by line, since the program may be killed.
      run_dir.with_suffix(_LOG).open("a", buffering=1) as log,
      contextlib.redirect_stdout(log),
      contextlib.redirect_stderr(log),
    ):
      try:
        train.train(spec, run_dir=run_dir, task=self._task, is_trial=True)
      except errors.DivergedError as error:
        return {"outcome": _DIVERGED, "message": str(error)}
    return {"outcome": _COMPLETE}

  def _report(self, best: _Trial | None) -> dict[str, Any]:
    """The report; nothing in it may depend on the other trials.

    Args:
      best: The best trial; None if none has trained.

    Returns:
      The contents of release/tuning.json: `best`, `privacy` and `warnings`.
      `best` has recalls only of splits without users who train.
    """
    report: dict[str, Any] = {"best": None, "privacy": None}
    if best is None:
      # No trial ran, so the cost is unknown.
      reason = (
        "every trial refused its hyperparameters (see trials/*.json)"
        if self._num_trials
        else "no trial was drawn"
      )
      return {**report, "warnings": [f"{reason}: no user's data were used"]}
    is_private = _SPLITS[0] in best.splits_of_others
    privacy = report["privacy"] = tuning.create_report(
      self._selection,
      best.cost,
      chosen_by_others=is_private,
      selection_users=best.summary.get("selection_users", 0),
    )
    warnings = report["warnings"] = list(privacy["warnings"])
    if not best.summary:
      warnings.append("every model diverged: there is none to release")
      return report
    if not is_private:
      warnings.append(
        "epsilon is infinite: the best was chosen by images that may be of"
        " users who train; selection_users=N chooses by those of N users who"
        " do not"
      )
    report["best"] = {
      "hyperparameters": dict(best.hyperparameters),
      "metric": _METRIC,
      **{split: best.recall(split) for split in best.splits_of_others},
      "saved_model": run_directory.SAVED_MODEL,
    }
    return report

  def _copy_model(
    self, run_dir: pathlib.Path, privacy: Mapping[str, Any]
  ) -> None:
    """Copies the model out of a directory whose name tells its number.

    Its card says what the whole tuning has cost, not its own trial alone.

    Args:
      run_dir: Directory of the best trial.
      privacy: Cost of the tuning, JSON values by name.
    """
    best = self._path / run_directory.SAVED_MODEL
    # A program that is killed here leaves nothing to be given away.
    partial = self._path / _TRIALS / f".{best.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(run_dir / run_directory.SAVED_MODEL, partial)
    path = partial / model_card.PATH
    card = model_card.read(path)
    if card is not None:
      not_covered = (card.privacy or {}).get("not_covered", [])
      privacy = {**privacy, "not_covered": not_covered}
      model_card.write(dataclasses.replace(card, privacy=privacy), path)
    # The trial's own times would tell how many trials came after it.
    now = time.time()
    for path in (partial, *partial.rglob("*")):
      os.utime(path, (now, now))
    shutil.rmtree(best, ignore_errors=True)
    os.replace(partial, best)


def _check_equal(
  cost: composition.Account, other: composition.Account, run_dir: pathlib.Path
) -> None:
  """Refuses a trial whose cost is not that of the others.

  Args:
    cost: The rounds of the trial.
    other: Those of another trial, or of the settings that all trials share.
    run_dir: Directory of the trial.

  Raises:
    errors.DataError: If they differ.
  """
  if cost != other:
    raise errors.DataError(
      "trials must all cost the same for their number to be accounted for,"
      f" found {cost} in place of {other} in {run_dir}."
    )


def _read_cost(
  run_dir: pathlib.Path, *, is_complete: bool
) -> composition.Account:
  """Cost of a trial to its end; one that diverged early cost no more.

  Args:
    run_dir: Directory of the trial.
    is_complete: Whether the trial trained to its end.

  Returns:
    The account of all its planned rounds, each run once.

  Raises:
    errors.DataError: If it is complete, and has fewer rounds than planned.
    errors.FieldError: If its chain is damaged.
  """
  chain = chain_lib.Chain(run_dir)
  # Only the end of a trial is used, so rounds that ran again release nothing.
  planned = chain.planned
  if is_complete and chain.rounds < planned.rounds:
    raise errors.DataError(
      f"a trial must have run {planned.rounds} rounds, found {chain.rounds} in"
      f" {run_dir}."
    )
  return _of_trial(planned)


def _of_trial(planned: ledger_lib.Ledger) -> ledger_lib.Ledger:
  """The ledger of a trial for the selection, which needs RDP.

  The selection takes the noise for exactly Gaussian, without the part of
  epsilon for its rounding.

  Args:
    planned: Ledger of a trial.

  Returns:
    The ledger with RDP as its only accountant.
  """
  participation = planned.participation
  accountants = participation.accountants + participation.further_accountants
  if "rdp" not in accountants:
    # RDP is valid if it is known which rounds users are in.
    participation = participation.with_known_schedule()
  return dataclasses.replace(
    planned, participation=participation, accountants=("rdp",), round_sum=None
  )


def to_table(report: Mapping[str, Any], output_dir: pathlib.Path) -> str:
  """Makes a table in Markdown of a report, which lies in a directory.

  Args:
    report: The report, as `TuningRun.run` returns it.
    output_dir: Directory of the tuning.

  Returns:
    A table of hyperparameters and results, the statement of the guarantee, and
    warnings.
  """
  best, privacy = report["best"] or {}, report["privacy"] or {}
  rows = dict(best.get("hyperparameters", {}))
  for values in (best, privacy):
    for name in _SHOWN:
      if values.get(name) is not None:
        rows[name] = values[name]
  lines = ["| best trial | |", "|---|---|"]
  for name, value in rows.items():
    shown = f"{value:.4g}" if isinstance(value, float) else value
    lines.append(f"| {name} | {shown} |")
  if privacy:
    lines += ["", privacy["statement"]]
  lines += [f"warning: {warning}" for warning in report["warnings"]]
  lines.append(
    f"Written to {output_dir}: {_REPORT}, with the model if there is one. The"
    f" guarantee covers {run_directory.RELEASE}/ and nothing outside of it,"
    " which tells of the other trials."
  )
  return "\n".join(lines)
