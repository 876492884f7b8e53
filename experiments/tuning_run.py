"""One private tuning, from its trials to the report of the best.

What `tune` does once its flags are read. Papernot and Steinke 2022: the number
of trials is drawn once and nothing but the best is released, so the directory
of a tuning holds two kinds of files: `tuning.json` and `best/`, which may be
released, and all the others, which may not.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import json
import math
import os
import pathlib
import secrets
import shutil
import subprocess
import time
from typing import Any

import dp_accounting
import numpy as np
import tqdm

from experiments import search_space as search_space_lib
from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.evaluation import verification
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import tuning
from tff_fedemb.program import run_directory

REPORT = "tuning.json"
BEST = "best"

_NUM_TRIALS = "num_trials.json"
_TRIALS = "trials"
_SAVED_MODEL = "saved_model"
_METRIC_PREFIX = "recall_at_far_"
# Beside a trial's directory: why it has ended, if not by itself.
_ERROR = ".error.json"


class _Outcome(enum.Enum):
  """How a trial that counts has ended: the latter two as worse than any."""

  COMPLETE = "it has a summary"
  DIVERGED = "it ran, to no good"
  REFUSED = "it refused its hyperparameters before its first round"


@dataclasses.dataclass(frozen=True)
class TuningConfig:
  """What to search, how often and how to judge.

  Attributes:
    selection: Distribution of the number of trials.
    space: Distribution of the hyperparameters.
    trial_flags: Flags that all trials have, each "--name=value".
    metric: What the best has most of, on the validation split:
      "recall_at_far_" and one of the false accept rates of a trial, however
      the number is written.
    seed: Of the hyperparameters, and of the trials' own seeds, for simulations
      that are to be reproducible. None to draw one, which nobody knows.

  Raises:
    errors.FieldError: If the metric is unknown or the seed negative.
  """

  selection: tuning.RepeatAndSelect
  space: search_space_lib.SearchSpace
  trial_flags: tuple[str, ...] = ()
  metric: str = "recall_at_far_0.001"
  seed: int | None = None

  def __post_init__(self):
    known = {
      rate: _METRIC_PREFIX + verification.format_false_accept_rate(rate)
      for rate in verification.DEFAULT_FALSE_ACCEPT_RATES
    }
    rate = _false_accept_rate(self.metric)
    if rate not in known:
      raise errors.FieldError(
        "metric", f"be one of {', '.join(known.values())}", repr(self.metric)
      )
    object.__setattr__(self, "metric", known[rate])
    if self.seed is not None:
      checks.check_integer("seed", self.seed, minimum=0)

  def settings(self) -> dict[str, Any]:
    """Everything that a tuning depends on but chance."""
    return {
      "program": "tune",
      "mean_trials": self.selection.mean,
      "shape": str(self.selection.shape),
      "search_space": {
        name: {kind: list(values)}
        for name, (kind, values) in self.space.choices.items()
      },
      "trial_flags": list(self.trial_flags),
      "metric": self.metric,
      "seed": self.seed,
    }


@dataclasses.dataclass(frozen=True)
class _Cost:
  """What a trial costs if it runs to its end."""

  event: dp_accounting.DpEvent
  rounds: int
  participation: participation_lib.Participation
  delta: float


@dataclasses.dataclass(frozen=True)
class _Trial:
  """A trial that ran; its summary is `None` if its model diverged."""

  hyperparameters: Mapping[str, Any]
  cost: _Cost
  summary: Mapping[str, Any] | None


def _false_accept_rate(metric: str) -> float:
  """The rate in a metric's name; not a number if there is none."""
  try:
    if metric.startswith(_METRIC_PREFIX):
      return float(metric.removeprefix(_METRIC_PREFIX))
  except ValueError:
    pass
  return math.nan


class TuningRun:
  """Runs the trials in one directory."""

  def __init__(
    self,
    config: TuningConfig,
    output_dir: str | os.PathLike[str],
    *,
    command: Sequence[str],
    generator: np.random.Generator,
  ):
    """Opens the directory, and draws the number of trials if it is new.

    Args:
      config: What to search, how often and how to judge.
      output_dir: New, or that of a tuning with the same configuration.
      command: What starts a trial, before its flags.
      generator: Draws the number of trials, which a seed that anyone knows
        would give away.

    Raises:
      run_directory.RunDirectoryError: As `run_directory.RunDirectory`.
    """
    self._config = config
    self._command = tuple(command)
    self._directory = run_directory.RunDirectory(output_dir, config.settings())
    self._path = self._directory.path
    drawn = self._directory.read_json(_NUM_TRIALS)
    if drawn is None:
      # Saved before any trial has a result: to draw again because of one, or
      # because a tuning was interrupted, would void the guarantee.
      drawn = {
        "num_trials": config.selection.draw_num_trials(generator),
        # Whoever knows it can draw the hyperparameters of all trials again,
        # and so find the index of the best.
        "seed": (secrets.randbits(128) if config.seed is None else config.seed),
      }
      self._directory.write_json(_NUM_TRIALS, drawn)
    self._num_trials = drawn["num_trials"]
    self._seed = drawn["seed"]

  def run(self) -> dict[str, Any]:
    """Runs the trials that are left and reports the best.

    Returns:
      The report, JSON values by name, as in `REPORT`.

    Raises:
      errors.DataError: If a trial fails other than by diverging or by refusing
        its hyperparameters, or costs something else than those before it.
    """
    (self._path / _TRIALS).mkdir(exist_ok=True)
    best = None
    best_index = -1
    for index in tqdm.trange(self._num_trials, unit="trial"):
      trial = self._run_trial(index)
      if trial is None:
        # Worse than any: the tuning must not end, nor draw others instead.
        continue
      if best is None:
        best, best_index = trial, index
      elif trial.cost != best.cost:
        raise errors.DataError(
          "trials must all cost the same for their number to be accounted"
          f" for, found {trial.cost} after {best.cost} in"
          f" {self._trial_dir(index)}."
        )
      # Of equal trials the first: they are independent and alike, so this is
      # a choice at random.
      elif self._score(trial) > self._score(best):
        best, best_index = trial, index
    report = self._report(best)
    if report["best"] is not None:
      self._copy_model(self._trial_dir(best_index))
    self._directory.write_json(REPORT, report)
    self._directory.close()
    return report

  def _trial_dir(self, index: int) -> pathlib.Path:
    return self._path / _TRIALS / f"{index:03d}"

  def _draw(self, index: int) -> tuple[dict[str, Any], int]:
    """Hyperparameters and seed of a trial, which depend on nothing else."""
    seed = self._seed
    hyperparameters = self._config.space.draw(
      np.random.default_rng([seed, index])
    )
    # Different for all trials: the same users in two of them would not be
    # two independent runs.
    first = int(np.random.default_rng([seed]).integers(2**32))
    return hyperparameters, (first + index) % 2**32

  def _run_trial(self, index: int) -> _Trial | None:
    """Runs a trial, or reads it; `None` if it refused its flags."""
    run_dir = self._trial_dir(index)
    hyperparameters, seed = self._draw(index)
    outcome = _find_outcome(run_dir)
    if outcome is None:
      log = run_dir.with_suffix(".log")
      status, last_line = self._execute(
        log,
        *self._config.trial_flags,
        *(f"--{name}={value}" for name, value in hyperparameters.items()),
        f"--seed={seed}",
        f"--run_dir={run_dir}",
        f"--error_json={run_dir.with_suffix(_ERROR)}",
      )
      outcome = _find_outcome(run_dir)
      if outcome is None:
        raise errors.DataError(
          f"trial {index} must end with a summary, found exit status"
          f" {status}; see {log}: {last_line or 'it is empty'}"
        )
      if outcome is _Outcome.REFUSED:
        with log.open("a") as output:
          output.write("refused before its first round: counts as the worst\n")
    if outcome is _Outcome.REFUSED:
      return None
    is_complete = outcome is _Outcome.COMPLETE
    cost = _read_cost(run_dir, is_complete=is_complete)
    summary = run_directory.read_json(run_dir / run_directory.SUMMARY)
    return _Trial(hyperparameters, cost, summary if is_complete else None)

  def _execute(self, log: pathlib.Path, *flags: str) -> tuple[int, str]:
    """Runs a trial's program; returns its status and the end of its log."""
    with log.open("ab") as output:
      start = output.tell()
      process = subprocess.Popen(
        [*self._command, *flags],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        # Ctrl-C reaches it through here, and once.
        start_new_session=True,
      )
      try:
        process.wait()
      except BaseException:
        # It saves what it has done, and goes on from there another time.
        process.terminate()
        process.wait()
        raise
    text = log.read_bytes()[start:].decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return process.returncode, lines[-1].strip() if lines else ""

  def _recall(self, trial: _Trial, split: str) -> float:
    rate = _false_accept_rate(self._config.metric)
    recalls = trial.summary["evaluation"][split]["recall_at_far"]
    return recalls[verification.format_false_accept_rate(rate)]

  def _score(self, trial: _Trial) -> float:
    if trial.summary is None:
      return -math.inf
    return self._recall(trial, "validation")

  def _report(self, best: _Trial | None) -> dict[str, Any]:
    """The report; nothing in it may depend on the other trials."""
    if best is None:
      # No trial has told what it would have cost.
      reason = (
        "every trial refused its flags (see the ends of trials/*.log)"
        if self._num_trials
        else "no trial was drawn"
      )
      return {
        "best": None,
        "privacy": None,
        "warnings": [f"{reason}: no user's data were used"],
      }
    cost = best.cost
    privacy = tuning.create_report(
      self._config.selection,
      [(cost.event, cost.rounds)],
      cost.participation,
      cost.delta,
    )
    warnings = list(privacy.warnings)
    if self._config.seed is not None:
      warnings.append(
        "the seed was given: epsilon holds only for those who do not know it"
      )
    if best.summary is None:
      warnings.append("every model diverged: there is none to release")
      return {
        "best": None,
        "privacy": privacy.to_json(),
        "warnings": warnings,
      }
    # A summary that does not say so is no proof that it is not so.
    if best.summary.get("evaluation_on_training_users", True):
      warnings.append(
        "the validation split may hold data of the protected users"
        f" ({best.summary.get('split', 'not described')}): if it does,"
        " epsilon does not cover what the choice of the best tells of them"
      )
    return {
      "best": {
        "hyperparameters": dict(best.hyperparameters),
        "metric": self._config.metric,
        "validation": self._recall(best, "validation"),
        "test": self._recall(best, "test"),
        "saved_model": f"{BEST}/{_SAVED_MODEL}",
      },
      "privacy": privacy.to_json(),
      "warnings": warnings,
    }

  def _copy_model(self, run_dir: pathlib.Path) -> None:
    """Copies the model out of a directory whose name would tell of others."""
    best = self._path / BEST
    shutil.rmtree(best, ignore_errors=True)
    shutil.copytree(run_dir / _SAVED_MODEL, best / _SAVED_MODEL)
    # Those of the trial would tell how many came after it.
    now = time.time()
    for path in (best, *best.rglob("*")):
      os.utime(path, (now, now))


def _find_outcome(run_dir: pathlib.Path) -> _Outcome | None:
  """How a trial has ended; `None` if it has not, or for another reason.

  Any error but these two is no outcome: data that cannot be read, a flag that
  no hyperparameter can have set, a bug or the end of the machine.
  """
  if (run_dir / run_directory.SUMMARY).exists():
    return _Outcome.COMPLETE
  error = run_directory.read_json(run_dir.with_suffix(_ERROR))
  if error is None:
    return None
  if error["type"] == errors.DivergedError.__name__:
    return _Outcome.DIVERGED
  # What comes after a run has written its settings is no refusal either.
  has_begun = (run_dir / run_directory.SETTINGS).exists()
  if error["field"] in search_space_lib.SEARCHABLE_FLAGS and not has_begun:
    return _Outcome.REFUSED
  return None


def _read_cost(run_dir: pathlib.Path, *, is_complete: bool) -> _Cost:
  """What a trial was to cost; one that diverged early cost no more."""
  ledger = ledger_lib.Ledger.from_json(
    (run_dir / run_directory.LEDGER).read_text()
  )
  rounds = json.loads((run_dir / run_directory.SETTINGS).read_text())["rounds"]
  if (
    len(ledger.history) != 1
    or ledger.rounds > rounds
    or (is_complete and ledger.rounds < rounds)
  ):
    raise errors.DataError(
      f"the ledger of a trial must have {rounds} rounds of one event, found"
      f" {ledger.history} in {run_dir}."
    )
  return _Cost(ledger.history[0][0], rounds, ledger.participation, ledger.delta)
