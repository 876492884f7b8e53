"""A finished run, read from its files for reports, tables and `Result`."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import json
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import run_directory
from tff_fedemb.report import account as account_run
from tff_fedemb.spec import spec as spec_lib

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.records import metrics as metrics_lib

# Name of the trained model's result; the other is that of the untrained one.
TRAINED = "trained"
_NUM_EPSILONS = 12
# Fewer for Monte Carlo, which takes seconds for each.
_NUM_EPSILONS_BY_MONTE_CARLO = 6
# Each summary must have these values, which reports and tables read.
_NEEDED = (
  ("task",),
  ("algorithm",),
  ("rounds",),
  ("chain",),
  ("privacy", "epsilon"),
  ("recall_at_far",),
  ("recall_at_far_untrained",),
  ("evaluation", "test"),
  ("evaluation", "validation"),
)


@dataclasses.dataclass(frozen=True)
class FinishedRun:
  """A finished run, whose files are read when a property needs them.

  Each file is read once.

  Attributes:
    spec: Spec of the run.
    run_dir: Its directory.
    name: Name that distinguishes it from the other runs of a report.
  """

  spec: spec_lib.RunSpec
  run_dir: str
  name: str = ""

  @classmethod
  def read(cls, path: pathlib.Path, name: str = "") -> FinishedRun:
    """Reads a run, and checks its summary.

    Args:
      path: Directory of the run.
      name: Name of the run.

    Returns:
      The run, of which spec and summary are read already.

    Raises:
      errors.DataError: If there is no finished run, or its summary is damaged.
      errors.FieldError: If its `run.json` is missing or damaged, or the summary
        tells another cost than the card of its model.
    """
    try:
      summary = json.loads((path / run_directory.SUMMARY).read_text())
    except FileNotFoundError as error:
      raise _not_finished(path, _NO_SUMMARY) from error
    except (OSError, ValueError) as error:
      raise _not_finished(path, error) from error
    run = cls(spec_lib.read(path), str(path), name)
    run.__dict__["summary"] = summary
    for names in _NEEDED:
      run.require(*names)
    account_run.check_told_cost(path, summary)
    return run

  @classmethod
  def at_hand(
    cls,
    spec: spec_lib.RunSpec,
    run_dir: str,
    summary: Mapping[str, Any],
    account: account_run.Recomputed,
  ) -> FinishedRun:
    """Creates a run from values of this program, before they are on file.

    Args:
      spec: Spec of the run.
      run_dir: Directory of the run.
      summary: The coming contents of `summary.json`.
      account: Account of the run.

    Returns:
      A run whose summary and account need no files; its name is the
      directory's.
    """
    run = cls(spec, run_dir, pathlib.Path(run_dir).resolve().name)
    run.__dict__.update(summary=summary, account=account)
    return run

  def require(self, *names: str) -> None:
    """Refuses a summary that lacks a value.

    Args:
      *names: Names that lead to the value.

    Raises:
      errors.DataError: If the value is missing or `None`.
    """
    value: Any = self.summary
    for name in names:
      value = value.get(name) if isinstance(value, dict) else None
    if value is None:
      path = ".".join(names)
      raise _not_finished(self.path, f"{run_directory.SUMMARY} without {path}")

  @property
  def path(self) -> pathlib.Path:
    """Directory of the run."""
    return pathlib.Path(self.run_dir)

  @functools.cached_property
  def summary(self) -> Mapping[str, Any]:
    """All figures, as `summary.json` has them.

    Raises:
      errors.FieldError: If there is no such file, or if it is damaged.
    """
    found = run_directory.read_json(self.path / run_directory.SUMMARY)
    if found is None:
      raise errors.FieldError(
        "run_dir", "hold a finished run", f"{self.run_dir} without"
      )
    return found

  @functools.cached_property
  def account(self) -> account_run.Recomputed:
    """Privacy of the run, recomputed from its chain and its trace.

    Raises:
      errors.FieldError: As `account.recompute`.
      errors.DataError: As `account.recompute`.
    """
    return account_run.recompute(self.path)

  @functools.cached_property
  def epsilons(self) -> Mapping[int, float]:
    """Epsilon by the number of rounds, by the accountant of the report.

    There are up to twelve, or six by Monte Carlo, at the delta of the ledger.

    Raises:
      errors.FieldError: As `account`.
      errors.DataError: As `account`.
    """
    ledger, privacy = self.account.ledger, self.account.report
    count = _NUM_EPSILONS
    if privacy.accountant == "monte_carlo":
      count = _NUM_EPSILONS_BY_MONTE_CARLO
    rounds = np.unique(np.linspace(1, ledger.rounds, count, dtype=int)).tolist()
    if not ledger.participation.is_sampled:
      # Like the report, use the largest number of rounds that a user was in.
      ledger = ledger.as_seen(privacy.max_participations)
    found = ledger.epsilon_curve(rounds, accountant=privacy.accountant)
    return dict(zip(rounds, found, strict=True))

  @functools.cached_property
  def chain(self) -> chain_lib.Chain:
    """Chain of the run.

    Raises:
      errors.FieldError: If the chain is damaged.
      errors.DataError: If the summary is of other rounds.
    """
    chain = chain_lib.Chain(self.path)
    if chain.given_away_at(self.summary["chain"]) is None:
      raise _not_finished(
        self.path, f"{run_directory.SUMMARY} is not that of the rounds"
      )
    return chain

  @property
  def epsilon(self) -> float:
    """Epsilon of the run for one user at `delta`; infinity without noise."""
    return float(self.summary["privacy"]["epsilon"])

  @property
  def delta(self) -> float:
    """Delta of `epsilon`.

    It is in (0, 1).
    """
    return self.summary["privacy"]["delta"]

  @property
  def trained(self) -> Mapping[str, Any]:
    """Result on the test images, JSON values without the ROC curve.

    `recall_at_far` and `threshold_at_far` in it are by the formatted false
    accept rate.
    """
    return self.summary["evaluation"]["test"]

  @property
  def untrained(self) -> Mapping[str, Any]:
    """Result on the test images before training, as `trained`.

    It is that of random weights, also if training starts from pretrained ones.
    """
    return self.summary["evaluation_untrained"]["test"]

  @functools.cached_property
  def results(self) -> Mapping[str, verification.VerificationResult]:
    """Both results with their ROC curves, by name; empty without the file.

    The recalls of the trained model must be those of the summary.

    Raises:
      errors.DataError: If the file has other values, or is of another run.
      errors.FieldError: If the file is no JSON.
    """
    found = run_directory.read_json(self.path / run_directory.EVALUATION)
    if not found:
      return {}
    results = {}
    try:
      for name, values in found.items():
        results[name] = verification.VerificationResult.from_json(values)
      recalls = found[TRAINED]["recall_at_far"]
    except account_run.DAMAGES as error:
      raise _not_finished(self.path, error) from error
    if recalls != self.trained["recall_at_far"]:
      raise _not_finished(
        self.path,
        f"{run_directory.EVALUATION} is not that of {run_directory.SUMMARY}",
      )
    return results

  @functools.cached_property
  def metrics(self) -> pd.DataFrame | None:
    """Metrics of each round; `None` without the file.

    No guarantee covers them: they come from clients' updates without noise.

    Raises:
      errors.DataError: If the file is damaged.
    """
    try:
      return metrics_lib.read(self.path)
    except FileNotFoundError:
      return None
    except (OSError, ValueError) as error:
      raise _not_finished(self.path, error) from error

  @functools.cached_property
  def deployment(self) -> pd.DataFrame | None:
    """Rounds on the simulated clock; `None` without a deployment.

    Abandoned rounds have rows of their own.

    Raises:
      errors.DataError: If their file is missing or damaged.
    """
    if not self.summary.get("deployment"):
      return None
    try:
      return pd.read_csv(self.path / run_directory.DEPLOYED_ROUNDS)
    except (OSError, ValueError) as error:
      raise _not_finished(self.path, error) from error


_NO_SUMMARY = (
  f"no {run_directory.SUMMARY}; the command that began the run goes on with it"
)


def _not_finished(path: pathlib.Path, why: Exception | str) -> errors.DataError:
  """Returns the error for a directory without a whole finished run.

  Args:
    path: The directory.
    why: What is wrong, or the exception that reading raised.
  """
  if isinstance(why, Exception):
    why = f"{type(why).__name__}: {why}"
  return errors.DataError(
    f"runs must be directories of finished runs, found {path}: {why}"
  )
