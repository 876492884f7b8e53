"""Finished runs as rows of a table, and as points of utility against epsilon.

Runs that differ in nothing but their seeds are one measurement; those that
differ in noise_multiplier besides are one curve. The utility is what was
measured; the epsilon is the run's own, and that of a larger population with a
larger cohort and more noise, computed from the ledger of what happened in it.
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
from tff_fedemb.evaluation import verification
from tff_fedemb.privacy import extrapolation
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import run_directory
from tff_fedemb.report import run_files

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.plots import figures
  from tff_fedemb.plots import utility_plots

FALSE_ACCEPT_RATE = 1e-3

_RATE = verification.format_false_accept_rate(FALSE_ACCEPT_RATE)
# Runs of one curve may differ in these.
_VARYING = (
  "seed",
  "noise_multiplier",
  "extrapolated_num_users",
  "extrapolated_cohort_factor",
  "extrapolated_delta",
)


def load(paths: Iterable[pathlib.Path]) -> pd.DataFrame:
  """Reads finished runs.

  Args:
    paths: Their directories.

  Returns:
    A row for each run, in their order:

    path: Its directory.
    task, algorithm, rounds: As in its summary.
    recall, recall_untrained: At `FALSE_ACCEPT_RATE`, after and before training.
    recall_pretrained: Recall of the pretrained backbone, if there was one.
    recall_validation: Recall of the validation split after training.
    num_images: Number of test images.
    metrics: Other metrics by name; none unless they were measured.
    epsilon, delta, zcdp: Cost of the run itself; zcdp (rho) only if sampling
      does not amplify.
    extrapolated: Epsilons of a larger population, user-level and the authors',
      if the run had noise.
    extrapolated_delta, extrapolated_zcdp: Delta and rho of the former,
      likewise.
    ledger: Ledger of its rounds.
    settings: Values of all its flags.
    setting: JSON text of all settings but the seed; equal settings have equal
      texts.
    curve: JSON text of all settings but seed and noise.

  Raises:
    errors.DataError: If a directory has no finished run.
  """
  return pd.DataFrame([run_files.read(path, _create_row) for path in paths])


def _create_row(run: run_files.Run) -> dict[str, Any]:
  summary, chain = run.summary, chain_lib.Chain(run.path)
  if not chain.found or summary["chain"] != chain.head:
    raise ValueError(f"{run_directory.SUMMARY} is not that of the rounds")
  compared = dict(run.settings)
  if compared["sampling_seed"] is not None:
    # Runs that were given one have another epsilon; whichever it was.
    compared["sampling_seed"] = "given"
  # With more measured of it, a run is the same.
  compared.pop("metrics", None)
  privacy = summary["privacy"]
  extrapolated = summary.get("privacy_extrapolated") or {}
  evaluation = summary["evaluation"]
  return {
    "path": run.path,
    "task": str(summary["task"]),
    "algorithm": str(summary["algorithm"]),
    "rounds": summary["rounds"],
    "recall": float(summary["recall_at_far"][_RATE]),
    "recall_untrained": float(summary["recall_at_far_untrained"][_RATE]),
    "recall_pretrained": summary.get("recall_at_far_pretrained", {}).get(_RATE),
    "recall_validation": evaluation["validation"]["recall_at_far"][_RATE],
    "num_images": evaluation["test"]["num_images"],
    "metrics": evaluation["test"].get("metrics") or {},
    "epsilon": float(privacy["epsilon"]),
    "delta": privacy["delta"],
    "zcdp": privacy["zcdp"],
    "extrapolated": [
      float(extrapolated[name]["epsilon"])
      for name in ("user_level", "authors")
      if extrapolated
    ],
    "extrapolated_delta": extrapolated.get("delta"),
    "extrapolated_zcdp": extrapolated.get("zcdp"),
    "ledger": chain.ledger,
    "settings": run.settings,
    "setting": _without(compared, ["seed"]),
    "curve": _without(compared, _VARYING),
  }


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> str:
  others = {n: value for n, value in settings.items() if n not in names}
  return json.dumps(others, sort_keys=True)


def find(patterns: Sequence[str]) -> pd.DataFrame:
  """Reads the finished runs among directories; says which ones are not.

  Args:
    patterns: Directories, or patterns of such as a shell has.

  Returns:
    The runs by path, as `load`, with their `mechanism` (its name or 'no noise')
    and `noise_multiplier`.

  Raises:
    errors.FieldError: If a pattern matches nothing, nothing is finished, or the
      runs are of several tasks.
    errors.DataError: If a file is not that of a run.
  """
  paths: set[pathlib.Path] = set()
  for pattern in patterns:
    found = {p for p in map(pathlib.Path, glob.glob(pattern)) if p.is_dir()}
    if not found:
      raise errors.FieldError(
        "runs", "be directories of runs", f"none for {pattern!r}"
      )
    paths |= found
  finished = [
    path for path in sorted(paths) if (path / run_directory.SUMMARY).exists()
  ]
  if not finished:
    raise errors.FieldError(
      "runs",
      f"hold a finished run ({run_directory.SUMMARY})",
      f"none in {len(paths)} directories",
    )
  runs = load(finished)
  run_files.check_one_task("runs", runs.task)
  noises = [ledger.noise for ledger in runs.ledger]
  runs["noise_multiplier"] = [noise.multiplier for noise in noises]
  runs["mechanism"] = [
    settings["aggregator"] if noise.multiplier else "no noise"
    for settings, noise in zip(runs.settings, noises, strict=True)
  ]
  unfinished = sorted(paths - set(finished))
  if unfinished:
    names = ", ".join(path.name for path in unfinished)
    print(f"not finished, left out: {names}", file=sys.stderr)
  return runs


def either(texts: Iterable[str]) -> str:
  """Returns different texts with "or" between them."""
  return " or ".join(dict.fromkeys(texts))


def extrapolate(
  run: Any, *, num_users: int, cohort_factor: float, delta: float
) -> float:
  """Returns the user-level epsilon of a run in a larger population.

  Privacy:
    As `extrapolation.extrapolate`.

  Args:
    run: The simulation, with noise: a row of what `find` returns.
    num_users: Population to extrapolate to.
    cohort_factor: Multiplies the users of a round and the noise multiplier.
    delta: In (0, 1).

  Raises:
    errors.FieldError: As `extrapolation.extrapolate`; names the run.
  """
  try:
    return extrapolation.extrapolate(
      rounds=run.ledger.rounds,
      noise_multiplier=run.ledger.noise.multiplier,
      participation=run.ledger.participation,
      strategy=run.ledger.noise.strategy,
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
) -> list[utility_plots.Curve]:
  """Groups runs to curves, in the order of their names.

  Args:
    runs: Runs as `find` returns them.
    extrapolated: Epsilon by cohort factor [none]; called once for each
      measurement, with one of its runs.

  Returns:
    A curve for each setting with noise; runs without noise are points of the
    curves of their algorithm.

  Raises:
    errors.FieldError: If no run has noise, an algorithm has several settings
      without noise, of which none is the one to compare with, or the curves are
      too many to tell apart.
  """
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
    noiseless[algorithm] = figures.Measurement(tuple(same.recall), math.inf)
  deltas = [ledger.delta for ledger in runs[is_noisy].ledger]
  groups = runs[is_noisy].groupby(["algorithm", "mechanism", "curve", deltas])
  if len(groups) > figures.MAX_CURVES:
    raise errors.FieldError(
      "runs",
      f"differ in at most {figures.MAX_CURVES} settings beside their noise",
      len(groups),
    )
  names = _names([same.iloc[0] for _, same in groups])
  curves = []
  for name, ((algorithm, *_), same) in zip(names, groups, strict=True):
    points = [
      figures.Measurement(
        tuple(level.recall),
        # A run that was killed has paid twice for the rounds it lost.
        level.epsilon.max(),
        extrapolated(level.iloc[0]),
      )
      for _, level in same.groupby("noise_multiplier")
    ]
    points += [noiseless[algorithm]] if algorithm in noiseless else []
    curves.append(utility_plots.Curve(name, tuple(points)))
  return sorted(curves, key=lambda curve: curve.name)


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
