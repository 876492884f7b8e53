"""Finished runs, from their files: for reports, tables and pictures.

As rows of a table, runs that differ in nothing but their seeds are one
measurement; those that differ in noise_multiplier besides are one curve. The
utility is what was measured; the epsilon is the run's own, and that of a larger
population with a larger cohort and more noise, computed from the ledger of what
happened in it.
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
from tff_fedemb.report import finished_run

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.plots import figures

FALSE_ACCEPT_RATE = 1e-3
RECALL = f"recall at FAR {FALSE_ACCEPT_RATE:g}"
_RATE = verification.format_false_accept_rate(FALSE_ACCEPT_RATE)
# Runs of one curve may differ in these.
_VARYING = (
  "seed",
  "noise_multiplier",
  "extrapolated_num_users",
  "extrapolated_cohort_factor",
  "extrapolated_delta",
)


def name_paths(paths: Sequence[pathlib.Path]) -> list[str]:
  """The last parts of different paths, as many as tell them apart."""
  parts = [path.resolve().parts for path in paths]
  for count in range(1, max(map(len, parts)) + 1):
    names = ["/".join(part[-count:]) for part in parts]
    if len(set(names)) == len(names):
      break
  return names


def check_one_task(name: str, tasks: Iterable[str]) -> None:
  """Raises `errors.FieldError` if runs are of several tasks."""
  found = sorted(set(tasks))
  if len(found) > 1:
    raise errors.FieldError(
      name, "be of one task, to be compared", ", ".join(found)
    )


def read_all(run_dirs: Sequence[str]) -> list[finished_run.FinishedRun]:
  """Reads finished runs, and works out their accounts.

  Args:
    run_dirs: Their directories, at most `figures.MAX_CURVES`.

  Raises:
    errors.FieldError: If there are too many or none, one is refused an epsilon,
      or they are of several tasks.
    errors.DataError: If one is not finished, a trace refutes what its run
      claims, or a file is damaged.
  """
  figures.check_count("number of run_dirs", len(run_dirs))
  paths = [pathlib.Path(path) for path in run_dirs]
  runs = []
  for path, name in zip(paths, name_paths(paths), strict=True):
    try:
      run = finished_run.FinishedRun.read(path, name)
      run.require("evaluation_untrained", "test")
      # Everything is read here, where it is told of what is damaged.
      _ = run.account, run.results, run.metrics, run.deployment
    except errors.FieldError as error:
      raise error.renamed("run_dirs") from error
    runs.append(run)
  check_one_task("run_dirs", [str(run.summary["task"]) for run in runs])
  return runs


def find(patterns: Iterable[str]) -> pd.DataFrame:
  """Reads the finished runs among directories; says which ones are not.

  Args:
    patterns: Directories, or patterns of such as a shell has.

  Returns:
    A row for each run, by path:

    path: Its directory.
    task, algorithm, rounds: As in its summary.
    recall, recall_untrained: At `FALSE_ACCEPT_RATE`, after and before training.
    num_images: Number of test images.
    measured: These recalls, that of validation images and what else was
      measured, by title.
    epsilon: Cost of the run itself.
    noise_multiplier, mechanism: Its noise; the name may be 'no noise'.
    summary: Its summary.
    ledger: Ledger of its rounds.
    settings: Values of all its flags.
    setting: JSON text of all settings but the seed; equal settings have equal
      texts.
    curve: JSON text of all settings but seed and noise.

  Raises:
    errors.FieldError: If nothing is finished.
    errors.DataError: If a file is not that of a run.
  """
  paths: set[pathlib.Path] = set()
  for pattern in patterns:
    paths.update(map(pathlib.Path, glob.glob(pattern) or [pattern]))
  finished = {path for path in paths if (path / run_directory.SUMMARY).exists()}
  if not finished:
    found = ", ".join(map(str, sorted(paths))) or "nothing"
    needed = f"hold a finished run ({run_directory.SUMMARY})"
    raise errors.FieldError("runs", needed, found)
  if unfinished := sorted(path.name for path in paths - finished):
    print(f"not finished, left out: {', '.join(unfinished)}", file=sys.stderr)
  return pd.DataFrame([_create_row(path) for path in sorted(finished)])


def _create_row(path: pathlib.Path) -> dict[str, Any]:
  run = finished_run.FinishedRun.read(path)
  summary = run.summary
  settings = run.spec.settings()
  ledger = run.chain.ledger
  compared = dict(settings)
  if compared["sampling_seed"] is not None:
    # Runs that were given one have another epsilon; whichever it was.
    compared["sampling_seed"] = "given"
  # With more measured of it, a run is the same.
  compared.pop("metrics", None)
  noise = ledger.noise
  validation = summary["evaluation"]["validation"]
  test = summary["evaluation"]["test"]
  recall = float(summary["recall_at_far"][_RATE])
  untrained = float(summary["recall_at_far_untrained"][_RATE])
  metrics = (test.get("metrics") or {}).items()
  return {
    "path": path,
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
    "noise_multiplier": noise.multiplier,
    "mechanism": settings["aggregator"] if noise.multiplier else "no noise",
    "summary": summary,
    "ledger": ledger,
    "settings": settings,
    "setting": _without(compared, ["seed"]),
    "curve": _without(compared, _VARYING),
  }


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> str:
  others = {n: value for n, value in settings.items() if n not in names}
  return json.dumps(others, sort_keys=True)


def either(texts: Iterable[str]) -> str:
  """Returns different texts with "or" between them."""
  return " or ".join(dict.fromkeys(texts))


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
    run: The simulation, with noise: a row of what `find` returns.
    num_users: Population to extrapolate to.
    cohort_factor: Multiplies the users of a round and the noise multiplier.
    delta: In (0, 1).

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
  """Groups runs to curves, by their names in order.

  Args:
    runs: Runs as `find` returns them.
    extrapolated: Epsilon by cohort factor or number of users [none]; called
      once for each measurement, with one of its runs.

  Returns:
    A curve for each setting with noise; runs without noise are points of the
    curves of their algorithm.

  Raises:
    errors.FieldError: If runs are of several tasks, none has noise, an
      algorithm has several settings without noise, of which none is the one to
      compare with, or the curves are too many to tell apart.
  """
  check_one_task("runs", runs.task)
  is_noisy = runs.noise_multiplier > 0
  if not is_noisy.any():
    raise errors.FieldError(
      "runs", "include some with noise", f"{len(runs)} without"
    )
  noiseless = {}
  for algorithm, same in runs[~is_noisy].groupby("algorithm"):
    settings = same.drop_duplicates("setting")
    if len(settings) > 1:
      raise errors.FieldError(
        "runs",
        f"include at most one setting of {algorithm} without noise",
        f"several: {', '.join(map(str, settings.path))}",
      )
    noiseless[algorithm] = [figures.Measurement(tuple(same.recall), math.inf)]
  deltas = [ledger.delta for ledger in runs[is_noisy].ledger]
  groups = runs[is_noisy].groupby(["algorithm", "mechanism", "curve", deltas])
  if len(groups) > figures.MAX_CURVES:
    raise errors.FieldError(
      "runs",
      f"differ in at most {figures.MAX_CURVES} settings beside their noise",
      len(groups),
    )
  names = _names([same.iloc[0] for _, same in groups])
  curves = {}
  for name, (key, same) in zip(names, groups, strict=True):
    algorithm = key[0]
    curves[name] = []
    for _, level in same.groupby("noise_multiplier"):
      # A run that was killed has paid twice for the rounds it lost.
      epsilon = level.epsilon.max()
      run = level.iloc[0]
      measured = figures.Measurement(
        tuple(level.recall),
        epsilon,
        extrapolated(run),
        run.ledger.participation.num_users,
      )
      curves[name].append(measured)
    curves[name] += noiseless.get(algorithm, [])
  return dict(sorted(curves.items()))


def _names(curves: Sequence[Any]) -> list[str]:
  """Algorithm, mechanism, delta if it differs, and what else tells apart."""
  names = pd.Series([f"{run.algorithm}, {run.mechanism}" for run in curves])
  deltas = pd.Series([run.ledger.delta for run in curves])
  if deltas.nunique() > 1:
    names += deltas.map(", δ = {:.2g}".format)
  settings = pd.DataFrame([run.settings for run in curves], dtype=object)
  settings = settings[sorted(settings.columns.difference(_VARYING))]
  settings = settings.where(settings.notna(), None)
  for name in names.unique():
    alike = names.index[names == name]
    for flag, values in settings.loc[alike].items():
      if values.map(json.dumps).nunique() > 1:
        names[alike] += [f"\n{flag}={value}" for value in values]
  return list(names)
