"""Finished runs, read from their files for reports, tables and pictures.

Runs that differ only in their seeds are one measurement. Runs that also differ
in noise_multiplier are one curve. The utility is as measured. The epsilon is
the run's own, or that of a larger population with a larger cohort and more
noise, computed from the ledger of the rounds that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import glob
import json
import math
import pathlib
import sys
from typing import Any

from etils import epy

from tff_fedemb import errors
from tff_fedemb.evaluation import retrieval
from tff_fedemb.evaluation import verification
from tff_fedemb.planning import extrapolation
from tff_fedemb.records import run_directory
from tff_fedemb.report import account
from tff_fedemb.report import finished_run

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.plots import figures

FALSE_ACCEPT_RATE = 1e-3
RECALL = f"recall at FAR {FALSE_ACCEPT_RATE:g}"
_RATE = verification.format_false_accept_rate(FALSE_ACCEPT_RATE)
# Runs of one curve may differ in these settings.
_VARYING = (
  "seed",
  "noise_multiplier",
  "extrapolated_num_users",
  "extrapolated_cohort_factor",
  "extrapolated_delta",
)


def name_paths(paths: Sequence[pathlib.Path]) -> list[str]:
  """Names paths by their last parts.

  Args:
    paths: Different paths, at least one.

  Returns:
    For each path, as many of its last parts as make all names differ.
  """
  parts = [path.resolve().parts for path in paths]
  longest = max(map(len, parts))
  for count in range(1, longest + 1):
    names = ["/".join(part[-count:]) for part in parts]
    if len(set(names)) == len(names):
      break
  return names


def check_one_task(name: str, tasks: Iterable[str]) -> None:
  """Refuses runs of several tasks.

  Args:
    name: Name of the field that has the runs.
    tasks: Their tasks.

  Raises:
    errors.FieldError: If the tasks differ.
  """
  found = sorted(set(tasks))
  if len(found) > 1:
    raise errors.FieldError(
      name, "be of one task, to be compared", ", ".join(found)
    )


def read_all(run_dirs: Sequence[str]) -> list[finished_run.FinishedRun]:
  """Reads finished runs with all their files, and recomputes their accounts.

  Args:
    run_dirs: Their directories, 1 to `figures.MAX_CURVES`.

  Returns:
    The runs in the order of the directories, with names that differ.

  Raises:
    errors.FieldError: If there are too many or none, if the account of one is
      refused, or if they are of several tasks.
    errors.DataError: If one is not finished, if a trace refutes what its run
      claims, or if a file is damaged.
  """
  figures.check_count("number of run_dirs", len(run_dirs))
  paths = [pathlib.Path(path) for path in run_dirs]
  runs = []
  for path, name in zip(paths, name_paths(paths), strict=True):
    try:
      run = finished_run.FinishedRun.read(path, name)
      run.require("evaluation_untrained", "test")
      # Read all files here, so that a damaged one is an error of its run.
      _ = run.account, run.results, run.metrics, run.deployment
    except errors.FieldError as error:
      raise error.renamed("run_dirs") from error
    runs.append(run)
  check_one_task("run_dirs", [str(run.summary["task"]) for run in runs])
  if len({run.chain.run_id for run in runs}) < len(runs):
    found = "one of them and a copy of it"
    raise errors.FieldError("run_dirs", "be of different runs", found)
  return runs


def find(patterns: Iterable[str]) -> pd.DataFrame:
  """Reads the finished runs among directories; prints the names of others.

  Args:
    patterns: Directories, or patterns of them as in a shell.

  Returns:
    A row for each run, in the order of the paths:

    path: Its directory.
    run_id, is_trial: As its chain has them; copies of a run are left out.
    task, algorithm, rounds: As in its summary.
    recall, recall_untrained: Recall at `FALSE_ACCEPT_RATE`, after and before
      training.
    num_images: Number of test images.
    measured: By title: these recalls, that of validation images, and other
      metrics.
    epsilon, delta: Cost of the run itself.
    num_users: Number of users in its population.
    noise_multiplier, mechanism: Its noise; the mechanism may be 'no noise'.
    summary: Its summary.
    ledger: Ledger of its rounds.
    settings: Values of all its flags.
    setting: JSON text of all settings but the seed; equal settings have equal
      texts.
    curve: JSON text of all settings but seed and noise.

  Raises:
    errors.FieldError: If no run is finished.
    errors.DataError: If a directory has files of something else.
  """
  finished = []
  unfinished = []
  for path in _list_paths(patterns):
    if (path / run_directory.SUMMARY).exists():
      finished.append(path)
    else:
      unfinished.append(path)
  if not finished:
    found = ", ".join(map(str, unfinished)) or "nothing"
    needed = f"hold a finished run ({run_directory.SUMMARY})"
    raise errors.FieldError("runs", needed, found)
  if unfinished:
    names = sorted(path.name for path in unfinished)
    print(f"not finished, left out: {', '.join(names)}", file=sys.stderr)
  rows = pd.DataFrame(list(map(_create_row, finished)))
  for path in rows.path[rows.is_trial]:
    print(f"warning: {path}: {account.TRIAL_WARNING}", file=sys.stderr)
  is_copy = rows.duplicated("run_id")
  for path in rows.path[is_copy]:
    print(f"a copy of another run, left out: {path}", file=sys.stderr)
  return rows[~is_copy]


def _list_paths(patterns: Iterable[str]) -> list[pathlib.Path]:
  """Returns the paths that patterns match, each once, sorted.

  A pattern that matches nothing counts as a path.
  """
  # Patterns may name a run in several ways.
  paths: dict[pathlib.Path, pathlib.Path] = {}
  for pattern in patterns:
    for path in map(pathlib.Path, glob.glob(pattern) or [pattern]):
      paths.setdefault(path.resolve(), path)
  return sorted(paths.values())


def _create_row(path: pathlib.Path) -> dict[str, Any]:
  """Returns the row of a run, as `find` describes it.

  Args:
    path: Directory of the run.

  Raises:
    errors.DataError: If it is not finished, or damaged.
    errors.FieldError: If its spec or its chain is damaged.
  """
  run = finished_run.FinishedRun.read(path)
  summary = run.summary
  settings = run.spec.settings()
  ledger = run.chain.ledger
  compared = dict(settings)
  if compared["sampling_seed"] is not None:
    # Runs with a given seed have another epsilon, the same for all seeds.
    compared["sampling_seed"] = "given"
  # Other metrics do not make another run.
  compared.pop("metrics", None)
  noise = ledger.noise
  validation = summary["evaluation"]["validation"]
  test = summary["evaluation"]["test"]
  recall = float(summary["recall_at_far"][_RATE])
  untrained = float(summary["recall_at_far_untrained"][_RATE])
  metrics = (test.get("metrics") or {}).items()
  return {
    "path": path,
    "run_id": run.chain.run_id,
    "is_trial": run.chain.is_trial,
    "task": str(summary["task"]),
    "algorithm": str(summary["algorithm"]),
    "rounds": summary["rounds"],
    "recall": recall,
    "recall_untrained": untrained,
    "num_images": test["num_images"],
    "measured": {
      "validation": validation["recall_at_far"][_RATE],
      RECALL: recall,
      "untrained": untrained,
      **{retrieval.TITLES[name]: value for name, value in metrics},
    },
    "epsilon": run.epsilon,
    "delta": ledger.delta,
    "num_users": ledger.participation.num_users,
    "noise_multiplier": noise.multiplier,
    "mechanism": settings["aggregator"] if noise.multiplier else "no noise",
    "summary": summary,
    "ledger": ledger,
    "settings": settings,
    "setting": _without(compared, ["seed"]),
    "curve": _without(compared, _VARYING),
  }


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> str:
  """Returns all settings but some as a JSON text.

  Args:
    settings: Values by flag.
    names: Flags to leave out.

  Returns:
    A text with sorted keys, so that equal settings have equal texts.
  """
  others = {n: value for n, value in settings.items() if n not in names}
  return json.dumps(others, sort_keys=True)


def either(texts: Iterable[str]) -> str:
  """Joins texts by "or", each once.

  Args:
    texts: The texts, which may be repeated.

  Returns:
    For example "20 or 40"; a single text is returned as it is.
  """
  return " or ".join(dict.fromkeys(texts))


def describe_cohorts(runs: pd.DataFrame) -> str:
  """Returns the numbers of users of runs, and of users a round, in words.

  Args:
    runs: Runs as returned by `find`.

  Returns:
    For example "20,000 users, 512 a round".
  """
  claims = [ledger.participation for ledger in runs.ledger]
  users = either(f"{number:,}" for number in sorted(runs.num_users))
  claims.sort(key=lambda claim: claim.users_per_round)
  cohorts = either(claim.cohort_in_words for claim in claims)
  return f"{users} users, {cohorts} a round"


def extrapolate(
  run: Any,
  *,
  num_users: int,
  cohort_factor: float,
  delta: float,
) -> float:
  """Returns the user-level epsilon of a run in a larger population.

  Privacy:
    As `extrapolation.extrapolate_ledger`.

  Args:
    run: A run with noise, a row of the result of `find`.
    num_users: Number of users of the larger population.
    cohort_factor: Factor for the users of a round and the noise multiplier.
    delta: Delta of the guarantee, in (0, 1).

  Returns:
    Epsilon for one user, by the tightest valid accountant.

  Raises:
    errors.FieldError: As `extrapolation.extrapolate_ledger`; names the run.
  """
  try:
    return extrapolation.extrapolate_ledger(
      run.ledger,
      num_users=num_users,
      cohort_factor=cohort_factor,
      delta=delta,
    ).user_level.epsilon
  except errors.FieldError as error:
    where = f"{error.found} (extrapolating {run.path})"
    raise errors.FieldError(error.name, error.requirement, where) from error


def create_curves(
  runs: pd.DataFrame,
  extrapolated: Callable[[Any], Mapping[float, float]] = lambda run: {},
) -> dict[str, list[figures.Measurement]]:
  """Groups runs to curves.

  Args:
    runs: Runs as returned by `find`.
    extrapolated: Maps a run to its epsilons elsewhere, by cohort factor or
      number of users [none]; called for one run of each measurement.

  Returns:
    By name, in order: a curve for each setting with noise. Runs without noise
    are points of each curve of their algorithm.

  Raises:
    errors.FieldError: If runs are of several tasks; if none has noise; if an
      algorithm has several settings without noise, so that it is unclear which
      one to compare with; or if there are more than `figures.MAX_CURVES`
      curves.
  """
  check_one_task("runs", runs.task)
  is_noisy = runs.noise_multiplier > 0
  if not is_noisy.any():
    raise errors.FieldError(
      "runs", "include some with noise", f"{len(runs)} without"
    )
  noiseless = _measure_noiseless(runs[~is_noisy])
  keys = ["algorithm", "mechanism", "curve", "delta"]
  groups = runs[is_noisy].groupby(keys)
  if len(groups) > figures.MAX_CURVES:
    raise errors.FieldError(
      "runs",
      f"differ in at most {figures.MAX_CURVES} settings beside their noise",
      len(groups),
    )
  names = _names(groups.head(1).sort_values(keys))
  curves = {}
  for name, ((algorithm, *_), same) in zip(names, groups, strict=True):
    curves[name] = []
    for _, level in same.groupby("noise_multiplier"):
      # They may differ in cost: a killed run pays twice for rounds it has lost.
      epsilon = level.epsilon.max()
      run = level.iloc[0]
      measured = figures.Measurement(
        tuple(level.recall),
        epsilon,
        extrapolated(run),
        run.num_users,
      )
      curves[name].append(measured)
    curves[name] += noiseless.get(algorithm, [])
  return dict(sorted(curves.items()))


def _measure_noiseless(
  runs: pd.DataFrame,
) -> dict[Any, list[figures.Measurement]]:
  """Returns the measurement without noise of each algorithm.

  Args:
    runs: Runs without noise.

  Returns:
    A list of one measurement by algorithm; its epsilon is infinite.

  Raises:
    errors.FieldError: If an algorithm has several settings.
  """
  measured = {}
  for algorithm, same in runs.groupby("algorithm"):
    settings = same.drop_duplicates("setting")
    if len(settings) > 1:
      raise errors.FieldError(
        "runs",
        f"include at most one setting of {algorithm} without noise",
        f"several: {', '.join(map(str, settings.path))}",
      )
    measured[algorithm] = [figures.Measurement(tuple(same.recall), math.inf)]
  return measured


def _names(curves: pd.DataFrame) -> list[str]:
  """Names curves by algorithm and mechanism, and the settings that differ.

  Args:
    curves: A run of each curve.

  Returns:
    Names in the order of the runs. Settings that differ between curves of the
    same name are added to these names, a line each.
  """
  names = curves.algorithm + ", " + curves.mechanism
  if curves.delta.nunique() > 1:
    names += curves.delta.map(", δ = {:.2g}".format)
  settings = pd.DataFrame(list(curves.settings), curves.index, dtype=object)
  settings = settings[sorted(settings.columns.difference(_VARYING))]
  settings = settings.where(settings.notna(), None)
  for name in names.unique():
    alike = names.index[names == name]
    for flag, values in settings.loc[alike].items():
      if values.map(json.dumps).nunique() > 1:
        names[alike] += values.map(f"\n{flag}={{}}".format)
  return list(names)
