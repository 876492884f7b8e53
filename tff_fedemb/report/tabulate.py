"""Finished runs as a table, and as a picture.

The picture shows recall against measured epsilon or, with a baseline, how much
each change of its settings moves recall. Runs that differ in nothing but seed
are one row, and one point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import json
import math
import os
import pathlib
import sys
from typing import Any

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.records import output_files
from tff_fedemb.report import measured_runs

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.plots import figures
  from tff_fedemb.plots import training_plots
  from tff_fedemb.plots import utility_plots


@dataclasses.dataclass(frozen=True, kw_only=True)
class TabulateConfig(config_lib.Config):
  """Outputs from runs beside the table.

  Attributes:
    output_png: File for a picture of recall.
    x_axis: Horizontal axis of the picture: "epsilon", the runs' own, or
      "num_users", with a curve for each algorithm and head.
    baseline: Directory of the unchanged baseline run: the table then begins
      with what each run changed, and the picture shows recall by change.
    overwrite: Whether to replace a file that exists.
  """

  output_png: str | None = None
  x_axis: str = config_lib.field("epsilon", choices=("epsilon", "num_users"))
  baseline: str | None = None
  overwrite: bool = False


def execute(config: TabulateConfig, run_dirs: Sequence[str]) -> None:
  """Prints the table of runs, and draws them if that is asked for.

  Raises:
    errors.FieldError: If the options contradict each other, no run is finished,
      the picture cannot be written, or the runs cannot be compared in one.
    errors.DataError: If a directory is not that of a run.
  """
  if config.baseline is not None and config.x_axis != "epsilon":
    raise errors.FieldError(
      "x_axis", "not be set beside baseline", config.x_axis
    )
  outputs = {"output_png": config.output_png}
  output_files.check(outputs, overwrite=config.overwrite)
  if config.baseline is None:
    runs = measured_runs.find(run_dirs)
  else:
    runs = measured_runs.find([config.baseline] + list(run_dirs))
    runs = compare(runs, pathlib.Path(config.baseline))
  progress.say(tabulate(runs))
  if runs.num_images.nunique() > 1:
    print(
      f"warning: recalls are of {_counts(runs)} test images, and cannot be"
      " compared across these",
      file=sys.stderr,
    )
  if config.output_png is not None:
    draw = draw_epsilons
    if config.x_axis == "num_users":
      draw = draw_users
    if config.baseline is not None:
      draw = draw_changes
    output_files.write(
      {"output_png": (config.output_png, lambda path: draw(path, runs))}
    )


def compare(runs: pd.DataFrame, baseline: pathlib.Path) -> pd.DataFrame:
  """Compares the settings of runs with those of one of them.

  Args:
    runs: Runs as `measured_runs.find` returns them.
    baseline: Directory of one of them.

  Returns:
    The runs with another column `change`, those of the baseline's setting
    first, where it is the empty text.

  Raises:
    errors.FieldError: If the baseline is not finished.
  """
  found = runs[runs.path == baseline]
  if found.empty:
    raise errors.FieldError(
      "baseline", "be the directory of a finished run", f"{baseline}"
    )
  base = json.loads(found.iloc[0].setting)
  changes = [_name_change(json.loads(other), base) for other in runs.setting]
  order = pd.Series(changes, runs.index).ne("").sort_values(kind="stable")
  return runs.assign(change=changes).loc[order.index]


def _name_change(
  settings: Mapping[str, Any],
  baseline: Mapping[str, Any],
) -> str:
  changes = []
  for name in sorted(settings.keys() | baseline.keys()):
    if settings.get(name) != baseline.get(name):
      # The last part of a path is enough.
      value = str(settings.get(name)).rsplit("/", maxsplit=1)[-1]
      changes.append(f"{name}={value}")
  return ", ".join(changes)


def draw_changes(path: str | os.PathLike[str], runs: pd.DataFrame) -> None:
  """Draws recall by changed settings.

  Args:
    path: PNG file to write.
    runs: Runs as `compare` returns them.

  Raises:
    errors.FieldError: If nothing was changed.
  """
  measured = {
    change: figures.Measurement(tuple(same.recall), math.inf)
    for change, same in runs.groupby("change", sort=False)
  }
  baseline = measured.pop("")
  if not measured:
    raise errors.FieldError(
      "runs", "change something of the baseline, to be drawn", "no change"
    )
  several = (
    " and band: the unchanged baseline, mean and standard deviation over"
    if len(baseline.values) > 1
    else ": the unchanged baseline,"
  )
  utility_plots.plot_changes(
    path,
    baseline,
    measured,
    utility=measured_runs.RECALL,
    caption=(
      f"Task {runs.task.iloc[0]}. Line{several}"
      f" {figures.count_seeds([baseline])}. Points and bars: means and standard"
      " deviations over seeds; blue is better, red is worse."
    ),
  )


def draw_epsilons(path: str | os.PathLike[str], runs: pd.DataFrame) -> None:
  """Draws recall over the runs' own epsilon.

  Args:
    path: PNG file to write.
    runs: Runs as `measured_runs.find` returns them.

  Raises:
    errors.FieldError: As `measured_runs.create_curves`.
  """
  curves = measured_runs.create_curves(runs)
  deltas = {
    run.ledger.delta for run in runs.itertuples() if run.noise_multiplier
  }
  utility_plots.plot_measured_by_epsilon(
    path,
    {"Recall over measured epsilon": curves},
    delta=deltas.pop() if len(deltas) == 1 else None,
    caption=_caption(runs),
    utility=measured_runs.RECALL,
    level=(training_plots.UNTRAINED, runs.recall_untrained.mean()),
  )


def draw_users(path: str | os.PathLike[str], runs: pd.DataFrame) -> None:
  """Draws recall over the number of users, a curve by algorithm and head.

  Args:
    path: PNG file to write.
    runs: Runs as `measured_runs.find` returns them.

  Raises:
    errors.FieldError: If runs are of several tasks, or an algorithm has several
      settings at one number of users.
  """
  measured_runs.check_one_task("runs", runs.task)
  users = [ledger.participation.num_users for ledger in runs.ledger]
  heads = [settings.get("head", "none") for settings in runs.settings]
  runs = runs.assign(num_users=users, head=heads).sort_values("num_users")
  groups = runs.groupby(["algorithm", "head", "num_users"])
  curves: dict[str, list[figures.Measurement]] = {}
  for (algorithm, head, num_users), same in groups:
    if same.setting.nunique() > 1:
      raise errors.FieldError(
        "runs",
        f"have one setting of {algorithm} with {num_users:,} users",
        f"several: {', '.join(map(str, same.path))}",
      )
    measured = figures.Measurement(
      tuple(same.recall), same.epsilon.max(), num_users=num_users
    )
    curves.setdefault(f"{algorithm}, {head} head", []).append(measured)
  figures.check_count("runs", len(curves))
  least, most = (
    f"{end:.3g}" for end in (runs.epsilon.min(), runs.epsilon.max())
  )
  epsilons = least if least == most else f"{least} to {most}"
  utility_plots.plot_measured_by_users(
    path,
    curves,
    caption=f"{_caption(runs)} ε is {epsilons} here.",
    utility=measured_runs.RECALL,
    level=(training_plots.UNTRAINED, runs.recall_untrained.mean()),
  )


def _caption(runs: pd.DataFrame) -> str:
  claims = [ledger.participation for ledger in runs.ledger]
  users = measured_runs.either(f"{claim.num_users:,}" for claim in claims)
  cohorts = measured_runs.either(claim.cohort_in_words for claim in claims)
  ways = measured_runs.either(claim.name for claim in claims)
  rounds = measured_runs.either(f"{number:,}" for number in runs.rounds)
  return (
    f"Task {runs.task.iloc[0]}: {users} users, {cohorts} a round"
    f" (participation {ways}), {rounds} rounds. ε is what each run itself has"
    " cost, user-level, accounted for by its own ledger; nothing is"
    " extrapolated. Bars: standard deviation over seeds."
  )


def _counts(runs: pd.DataFrame) -> str:
  return measured_runs.either(f"{x:,}" for x in sorted(runs.num_images))


def _figures(*values: Any) -> str:
  """Figures of one quantity in one cell, or that there are none."""
  known = [float(x) for x in values if x is not None]
  return "; ".join(f"{x:.3g}" for x in known) or "-"


def _line(cells: Iterable[object]) -> str:
  """A row of a table in Markdown."""
  return f"| {' | '.join(map(str, cells))} |"


def _spread(values: pd.Series) -> str:
  if values.isna().any():
    return "-"
  if len(values) == 1:
    return f"{values.iloc[0]:.4f}"
  return f"{values.mean():.4f} +- {values.std():.4f}"


def tabulate(runs: pd.DataFrame) -> str:
  """Makes a Markdown table of runs.

  Args:
    runs: Runs as `measured_runs.find` or `compare` returns them.

  Returns:
    The table, one row per setting in the order of the runs.
  """
  rows = []
  runs = runs.assign(run=measured_runs.name_paths(list(runs.path)))
  measured = pd.DataFrame(list(runs.measured), runs.index)
  for _, same in runs.groupby("setting", sort=False):
    run = same.iloc[0]
    privacy = run.summary["privacy"]
    larger = run.summary.get("privacy_extrapolated") or {}
    readings = []
    if larger:
      readings.append(larger["user_level"]["epsilon"])
      readings.append(larger["authors"]["epsilon"])
    rows.append(
      ({"change": run.change or "none"} if "change" in run else {})
      | {
        "run": ", ".join(same.run),
        "task": run.task,
        "algorithm": run.algorithm,
        "mechanism": run.settings.get("aggregator", "-"),
        "participation": run.settings.get("participation", "-"),
        "noise multiplier": run.settings.get("noise_multiplier", 0.0),
        "clip norm": run.settings.get("clip_norm", "-"),
        "rounds": run.rounds,
      }
      | {name: _spread(measured.loc[same.index, name]) for name in measured}
      | {
        "test images": _counts(same),
        "seeds": len(same),
        "epsilon (this run)": _figures(run.epsilon),
        "delta": _figures(privacy["delta"]),
        "zCDP": _figures(privacy["zcdp"]),
        "epsilon (extrapolated; Delta = C)": _figures(*readings),
        "delta (extrapolated)": _figures(larger.get("delta")),
        "zCDP (extrapolated)": _figures(larger.get("zcdp")),
      }
    )
  lines = [_line(rows[0]), "|---" * len(rows[0]) + "|"]
  lines += [_line(row.values()) for row in rows]
  return "\n".join(lines)
