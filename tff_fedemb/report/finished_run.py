"""A finished run, from its files: what reports, tables and `Result` read."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import json
import pathlib
from typing import Any

from etils import epy

from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import run_directory
from tff_fedemb.report import account as account_run
from tff_fedemb.spec import spec as spec_lib

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.records import metrics as metrics_lib

# Name of a trained model's result, beside that of an untrained one.
TRAINED = "trained"
# Every summary must have these values: reports and tables read them.
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
# A file whose values are of other types leads to these errors.
_DAMAGES = (ValueError, KeyError, TypeError, AttributeError)


@dataclasses.dataclass(frozen=True)
class FinishedRun:
  """A finished run; what it left is read when it is asked for.

  Attributes:
    spec: Spec of the run.
    run_dir: Its directory.
    name: Name that tells it from the other runs of a report.
  """

  spec: spec_lib.RunSpec
  run_dir: str
  name: str = ""

  @classmethod
  def read(cls, path: pathlib.Path, name: str = "") -> FinishedRun:
    """Reads a run, and checks its summary.

    Args:
      path: Its directory.
      name: Its name.

    Raises:
      errors.DataError: If there is none, it is not finished, or a file is
        damaged.
      errors.FieldError: If its `run.json` is.
    """
    try:
      summary = json.loads((path / run_directory.SUMMARY).read_text())
    except (OSError, ValueError) as error:
      raise _not_finished(path, error) from error
    run = cls(spec_lib.read(path), str(path), name)
    run.__dict__["summary"] = summary
    for names in _NEEDED:
      run.require(*names)
    return run

  @classmethod
  def at_hand(
    cls,
    spec: spec_lib.RunSpec,
    run_dir: str,
    summary: Mapping[str, Any],
    account: account_run.Recomputed,
  ) -> FinishedRun:
    """Returns a run that ends here, before its summary is in its file."""
    run = cls(spec, run_dir, pathlib.Path(run_dir).resolve().name)
    run.__dict__.update(summary=summary, account=account)
    return run

  def require(self, *names: str) -> None:
    """Refuses a summary without a value.

    Args:
      *names: Names that lead to it.

    Raises:
      errors.DataError: If it is not there.
    """
    value: Any = self.summary
    for name in names:
      value = value.get(name) if isinstance(value, dict) else None
    if value is None:
      raise _not_finished(
        self.path, f"{run_directory.SUMMARY} without {'.'.join(names)}"
      )

  @property
  def path(self) -> pathlib.Path:
    """Its directory."""
    return pathlib.Path(self.run_dir)

  @functools.cached_property
  def summary(self) -> Mapping[str, Any]:
    """All figures, as `summary.json` has them.

    Raises:
      errors.FieldError: If there is none.
    """
    found = run_directory.read_json(self.path / run_directory.SUMMARY)
    if found is None:
      raise errors.FieldError(
        "run_dir", "hold a finished run", f"{self.run_dir} without"
      )
    return found

  @functools.cached_property
  def account(self) -> account_run.Recomputed:
    """Its privacy, worked out from its chain and its trace.

    Raises:
      errors.FieldError: As `account.recompute`; or errors.DataError.
    """
    return account_run.recompute(self.path)

  @functools.cached_property
  def chain(self) -> chain_lib.Chain:
    """The chain of its rounds.

    Raises:
      errors.DataError: If the summary is not that of these rounds.
    """
    chain = chain_lib.Chain(self.path)
    if chain.given_away_at(self.summary["chain"]) is None:
      raise _not_finished(
        self.path, f"{run_directory.SUMMARY} is not that of the rounds"
      )
    return chain

  @property
  def epsilon(self) -> float:
    """Epsilon of the run for one user, at `delta`; infinite without noise."""
    return float(self.summary["privacy"]["epsilon"])

  @property
  def delta(self) -> float:
    """Delta of `epsilon`."""
    return self.summary["privacy"]["delta"]

  @property
  def trained(self) -> Mapping[str, Any]:
    """Result of the test images, without the ROC curve, JSON values."""
    return self.summary["evaluation"]["test"]

  @property
  def untrained(self) -> Mapping[str, Any]:
    """The same before training."""
    return self.summary["evaluation_untrained"]["test"]

  @functools.cached_property
  def results(self) -> Mapping[str, verification.VerificationResult]:
    """Both with their curves, by name; none if the file is not there.

    Raises:
      errors.DataError: If the file is damaged, or not that of the summary.
    """
    found = run_directory.read_json(self.path / run_directory.EVALUATION) or {}
    try:
      results = {
        name: verification.VerificationResult.from_json(values)
        for name, values in found.items()
      }
      recalls = found and found[TRAINED]["recall_at_far"]
    except _DAMAGES as error:
      raise _not_finished(self.path, error) from error
    if recalls and recalls != self.trained["recall_at_far"]:
      raise _not_finished(
        self.path,
        f"{run_directory.EVALUATION} is not that of {run_directory.SUMMARY}",
      )
    return results

  @functools.cached_property
  def metrics(self) -> pd.DataFrame | None:
    """Rows of rounds; `None` if the file is not there. No guarantee covers it.

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
    """Rows of rounds on a simulated clock; `None` without one.

    Raises:
      errors.DataError: If their file is missing or damaged.
    """
    if not self.summary.get("deployment"):
      return None
    try:
      return pd.read_csv(self.path / run_directory.DEPLOYED_ROUNDS)
    except (OSError, ValueError) as error:
      raise _not_finished(self.path, error) from error


def _not_finished(path: pathlib.Path, why: Exception | str) -> errors.DataError:
  if isinstance(why, Exception):
    why = f"{type(why).__name__}: {why}"
  return errors.DataError(
    f"runs must be directories of finished runs, found {path}: {why}"
  )
