"""A finished run as tables, pictures and reports read it, from its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any, TypeVar

from etils import epy

from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.program import run_directory
from tff_fedemb.run import account as account_run
from tff_fedemb.run import spec as spec_lib

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.plots import figures
  from tff_fedemb.program import metrics as metrics_lib

# Name of a trained model's result, beside that of an untrained one.
TRAINED = "trained"

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run; what it left is read when it is asked for.

  Attributes:
    path: Its directory.
    spec: Spec of the run.
    summary: Contents of its summary.json.
    name: Name that tells it from the other runs of a report.
    account: Its privacy, worked out from its chain and its trace; `None` where
      nobody has asked for it.
  """

  path: pathlib.Path
  spec: spec_lib.RunSpec
  summary: Mapping[str, Any]
  name: str = ""
  account: account_run.Recomputed | None = None

  @functools.cached_property
  def extrapolation(self) -> extrapolation_lib.Extrapolation | None:
    """Cost of the same noise on the mean with more users."""
    ledger = self.account.ledger
    return self.spec.extrapolation.extrapolate(
      ledger.rounds, noise=ledger.noise, participation=ledger.participation
    )

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
    """Both with their curves, by name; none if the file is not there."""
    found = run_directory.read_json(self.path / run_directory.EVALUATION) or {}
    recalls = found and found[TRAINED]["recall_at_far"]
    if recalls and recalls != self.trained["recall_at_far"]:
      raise ValueError(
        f"{run_directory.EVALUATION} is not that of {run_directory.SUMMARY}"
      )
    return {
      name: verification.VerificationResult.from_json(values)
      for name, values in found.items()
    }

  @functools.cached_property
  def metrics(self) -> pd.DataFrame | None:
    """Rows of rounds; `None` if the file is not there."""
    try:
      return metrics_lib.read(self.path)
    except FileNotFoundError:
      return None

  @functools.cached_property
  def deployment(self) -> pd.DataFrame | None:
    """Rows of rounds on a simulated clock; `None` without one."""
    if not self.summary.get("deployment"):
      return None
    return pd.read_csv(self.path / run_directory.DEPLOYED_ROUNDS)

  @property
  def evaluation_on_training_users(self) -> bool:
    """Whether held-out images may belong to users who trained."""
    return self.summary["evaluation_on_training_users"]

  @functools.cached_property
  def settings(self) -> Mapping[str, Any]:
    """The settings that were asked for, by flags."""
    return self.spec.settings()


def name_paths(paths: Sequence[pathlib.Path]) -> list[str]:
  """The last parts of different paths, as many as tell them apart."""
  parts = [path.resolve().parts for path in paths]
  for count in range(1, max(map(len, parts)) + 1):
    names = ["/".join(part[-count:]) for part in parts]
    if len(set(names)) == len(names):
      break
  return names


def read(path: pathlib.Path, make: Callable[[Run], _T]) -> _T:
  """Reads a finished run.

  Args:
    path: Its directory.
    make: Maps the run to what is wanted of it.

  Raises:
    errors.DataError: If it has no finished run, or a file is damaged.
  """
  try:
    summary = json.loads((path / run_directory.SUMMARY).read_text())
    return make(Run(path, spec_lib.read(path), summary))
  except OSError as error:
    raise errors.DataError(
      f"runs must be directories of finished runs, found {error.filename}:"
      f" {error.strerror}."
    ) from error
  except (ValueError, TypeError, KeyError, AttributeError) as error:
    raise errors.DataError(
      f"runs must be directories that training wrote, found {path}:"
      f" {type(error).__name__}: {error}"
    ) from error


def check_one_task(name: str, tasks: Iterable[str]) -> None:
  """Raises `errors.FieldError` if runs are of several tasks."""
  found = sorted(set(tasks))
  if len(found) > 1:
    raise errors.FieldError(
      name, "be of one task, to be compared", ", ".join(found)
    )


def read_all(
  run_dirs: Sequence[str], account: account_run.Recomputed | None = None
) -> list[Run]:
  """Reads finished runs, and works out their accounts.

  Args:
    run_dirs: Their directories, at most `figures.MAX_CURVES`.
    account: That of the only run, if it is at hand.

  Raises:
    errors.FieldError: If there are too many or none, one is not finished or is
      refused an epsilon, or they are of several tasks.
    errors.DataError: If a trace refutes what its run claims, or a file is
      damaged.
  """
  figures.check_count("number of run_dirs", len(run_dirs))
  paths = [pathlib.Path(path) for path in run_dirs]
  if len({path.resolve() for path in paths}) < len(paths):
    raise errors.FieldError(
      "run_dirs", "be different directories", ", ".join(run_dirs)
    )
  runs = []
  for path, name in zip(paths, name_paths(paths), strict=True):
    if not (path / run_directory.SUMMARY).exists():
      found = f"{os.fspath(path)} without"
      if (path / run_directory.SPEC).exists():
        found += "; the command that began the run goes on with it"
      raise errors.FieldError(
        "run_dirs", f"hold finished runs ({run_directory.SUMMARY})", found
      )
    try:
      known = account or account_run.recompute(path)
    except errors.FieldError as error:
      raise error.renamed("run_dirs") from error
    runs.append(
      read(path, functools.partial(_complete, name=name, account=known))
    )
  check_one_task("run_dirs", [str(run.summary["task"]) for run in runs])
  return runs


def _complete(run: Run, **known: Any) -> Run:
  """The run with what is known of it, if its files have what they should."""
  run = dataclasses.replace(run, **known)
  _ = run.trained, run.untrained, run.results, run.metrics, run.deployment
  return run
