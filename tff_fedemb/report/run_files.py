"""A finished run as a report reads it: from its files, and accounted anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from etils import epy

from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.program import run_directory
from tff_fedemb.report import measured_runs
from tff_fedemb.run import account as account_run
from tff_fedemb.run import spec as spec_lib

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.program import metrics as metrics_lib
  from tff_fedemb.report import training_report

_TEST = "test"


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run.

  Attributes:
    path: Its directory.
    name: What tells it from the others of the report.
    spec: What was asked for.
    summary: Its summary.json.
    trained: Result of the test images, without the ROC curve, JSON values.
    untrained: The same before training.
    results: Both with their curves, by name; none of an earlier version.
    metrics: Rows of rounds; `None` if the file is not there.
    deployment: Rows of rounds on a simulated clock; `None` without one.
    code_version: Commit, and whether it was modified.
    account: Its privacy, made again from its ledger and its trace.
    extrapolation: What the same noise on the mean would cost with more users.
  """

  path: pathlib.Path
  name: str
  spec: spec_lib.RunSpec
  summary: Mapping[str, Any]
  trained: Mapping[str, Any]
  untrained: Mapping[str, Any]
  results: Mapping[str, verification.VerificationResult]
  metrics: pd.DataFrame | None
  deployment: pd.DataFrame | None
  code_version: Mapping[str, Any]
  account: account_run.Recomputed
  extrapolation: extrapolation_lib.Extrapolation | None

  @property
  def evaluation_on_training_users(self) -> bool:
    """Whether held-out images may be of the users who trained."""
    return self.summary.get("evaluation_on_training_users") is not False

  @property
  def settings(self) -> Mapping[str, Any]:
    """What was asked for, by flags."""
    return self.spec.settings()


def read_all(
  run_dirs: Sequence[str], account: account_run.Recomputed | None = None
) -> list[Run]:
  """Reads finished runs.

  Args:
    run_dirs: Their directories, at most `figures.MAX_CURVES`.
    account: That of the only run, if it is at hand.

  Raises:
    errors.FieldError: If there are too many or none, one is not finished or is
      refused an epsilon, or they are of several tasks.
    errors.DataError: If a trace refutes what its run claims.
  """
  figures.check_count("number of run_dirs", len(run_dirs))
  paths = [pathlib.Path(path) for path in run_dirs]
  if len({path.resolve() for path in paths}) < len(paths):
    raise errors.FieldError(
      "run_dirs", "be different directories", ", ".join(run_dirs)
    )
  runs = [
    _read(path, name, account)
    for path, name in zip(paths, measured_runs.name_paths(paths), strict=True)
  ]
  tasks = sorted({str(run.summary["task"]) for run in runs})
  if len(tasks) > 1:
    raise errors.FieldError(
      "run_dirs", "be of one task, to be compared", ", ".join(tasks)
    )
  return runs


def _read(
  path: pathlib.Path, name: str, account: account_run.Recomputed | None
) -> Run:
  if not (path / run_directory.SUMMARY).exists():
    found = f"{os.fspath(path)} without"
    if (path / run_directory.SPEC).exists():
      found += "; the command that began the run goes on with it"
    raise errors.FieldError(
      "run_dirs", f"hold finished runs ({run_directory.SUMMARY})", found
    )
  try:
    account = account or account_run.recompute(path)
  except errors.FieldError as error:
    raise error.renamed("run_dirs") from error
  try:
    return _parse(path, name, account)
  except (errors.FieldError, errors.DataError):
    raise
  except measured_runs.DAMAGES as error:
    raise measured_runs.not_a_run(path, error) from error


def _parse(
  path: pathlib.Path, name: str, account: account_run.Recomputed
) -> Run:
  summary = json.loads((path / run_directory.SUMMARY).read_text())
  evaluation = run_directory.read_json(path / run_directory.EVALUATION) or {}
  results = {
    key: verification.VerificationResult.from_json(values)
    for key, values in evaluation.items()
  }
  trained = summary["evaluation"][_TEST]
  found = results.get(training_report.TRAINED)
  if found and found.to_json()["recall_at_far"] != trained["recall_at_far"]:
    raise errors.FieldError(
      "run_dirs",
      f"hold an {run_directory.EVALUATION} that agrees with"
      f" {run_directory.SUMMARY}",
      f"{path} with other recalls",
    )
  try:
    metrics = metrics_lib.read(path)
  except FileNotFoundError:
    metrics = None
  run = Run(
    path=path,
    name=name,
    spec=spec_lib.read(path),
    summary=summary,
    trained=trained,
    untrained=summary["evaluation_untrained"][_TEST],
    results=results,
    metrics=metrics,
    deployment=(
      pd.read_csv(path / run_directory.DEPLOYED_ROUNDS)
      if summary.get("deployment")
      else None
    ),
    code_version=account.chain.found["code_version"],
    account=account,
    extrapolation=None,
  )
  ledger = account.ledger
  extrapolation = run.spec.extrapolation.extrapolate(
    ledger.rounds, noise=ledger.noise, participation=ledger.participation
  )
  return dataclasses.replace(run, extrapolation=extrapolation)
