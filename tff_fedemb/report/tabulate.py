"""Finished runs as a table and as a picture.

The picture shows recall over epsilon or the number of users or, with a
baseline, how much each change of the settings moves recall. Runs that differ
only in their seeds are one row, and one point.
"""

from __future__ import annotations

import collections
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
  """Outputs on runs besides the table.

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
  """Prints the table of runs, and draws them if a picture is asked for.

  Recalls of different numbers of test images get a warning on standard error:
  they cannot be compared.

  Args:
    config: Outputs.
    run_dirs: Directories of runs, or patterns of them.

  Raises:
    errors.FieldError: If the options contradict each other, if no run is
      finished, if the picture cannot be written, or if the runs cannot be
      compared in one picture.
    errors.DataError: If a directory has files of something else.
  """
  is_drawn = config.output_png is not None and config.baseline is None
  if config.x_axis != "epsilon" and not is_drawn:
    raise errors.FieldError(
      "x_axis", "be set beside output_png and no baseline", config.x_axis
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
    runs: Runs as returned by `measured_runs.find`.
    baseline: Directory of one of them.

  Returns:
    The runs with another column: `change` names the settings that differ. Runs
    with the settings of the baseline come first; their `change` is "".

  Raises:
    errors.FieldError: If the baseline is not among the finished runs.
  """
  found = runs[runs.path == baseline]
  if found.empty:
    raise errors.FieldError(
      "baseline", "be the directory of a finished run", f"{baseline}"
    )
  base = json.loads(found.iloc[0].setting)
  changes = {}
  for setting in runs.setting:
    changes[setting] = _name_change(json.loads(setting), base)
  counts = collections.Counter(changes.values())
  for setting, name in changes.items():
    if counts[name] > 1:
      changes[setting] = _name_change(json.loads(setting), base, whole=True)
  compared = runs.assign(change=runs.setting.map(changes))
  return compared.sort_values("change", key=lambda x: x != "", kind="stable")


def _name_change(
  settings: Mapping[str, Any],
  baseline: Mapping[str, Any],
  *,
  whole: bool = False,
) -> str:
  """Returns the settings that differ from the baseline's, as text.

  Args:
    settings: Values by flag.
    baseline: The baseline's.
    whole: Whether paths are whole, not their last parts alone.

  Returns:
    For example "rounds=20, seed=1"; "" if nothing differs.
  """
  changes = []
  for name in sorted(settings.keys() | baseline.keys()):
    if settings.get(name) != baseline.get(name):
      value = str(settings.get(name))
      if not whole:
        # The last part of a path is enough.
        *_, value = value.split("/")
      changes.append(f"{name}={value}")
  return ", ".join(changes)


def draw_changes(path: str | os.PathLike[str], runs: pd.DataFrame) -> None:
  """Draws recall by changed settings.

  Recall is the mean over the seeds of a setting.

  Args:
    path: PNG file to write.
    runs: Runs as returned by `compare`.

  Raises:
    errors.FieldError: If all runs have the settings of the baseline.
  """
  measured = {}
  for change, same in runs.groupby("change", sort=False):
    measured[change] = figures.Measurement(tuple(same.recall), math.inf)
  baseline = measured.pop("")
  if not measured:
    raise errors.FieldError(
      "runs", "change something of the baseline, to be drawn", "no change"
    )
  several = ": the unchanged baseline,"
  if len(baseline.values) > 1:
    several = (
      " and band: the unchanged baseline, mean and standard deviation over"
    )
  utility_plots.plot_changes(
    path,
    baseline,
    measured,
    utility=measured_runs.RECALL,
    caption=(
      f"Task {runs.task.iloc[0]}. Line{several}"
      f" {figures.count_seeds([baseline])}. Points and bars: means and standard"
      " deviations over seeds; blue is better, orange is worse."
    ),
  )


def draw_epsilons(path: str | os.PathLike[str], runs: pd.DataFrame) -> None:
  """Draws recall over the runs' own epsilon.

  Args:
    path: PNG file to write.
    runs: Runs as returned by `measured_runs.find`.

  Raises:
    errors.FieldError: As `measured_runs.create_curves`.
  """
  curves = measured_runs.create_curves(runs)
  deltas = runs.delta[runs.noise_multiplier > 0].unique()
  utility_plots.plot_measured_by_epsilon(
    path,
    {"Recall over measured epsilon": curves},
    delta=deltas[0] if len(deltas) == 1 else None,
    caption=_caption(runs),
    utility=measured_runs.RECALL,
    level=(training_plots.UNTRAINED, runs.recall_untrained.mean()),
  )


def draw_users(path: str | os.PathLike[str], runs: pd.DataFrame) -> None:
  """Draws recall over the number of users, a curve by algorithm and head.

  Args:
    path: PNG file to write.
    runs: Runs as returned by `measured_runs.find`.

  Raises:
    errors.FieldError: If runs are of several tasks, if an algorithm has several
      settings at one number of users, or if there are too many curves.
  """
  measured_runs.check_one_task("runs", runs.task)
  heads = [settings.get("head", "none") for settings in runs.settings]
  groups = runs.assign(head=heads).groupby(["algorithm", "head", "num_users"])
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
  ends = [f"{runs.epsilon.min():.3g}", f"{runs.epsilon.max():.3g}"]
  epsilons = " to ".join(dict.fromkeys(ends))
  utility_plots.plot_measured_by_users(
    path,
    curves,
    caption=f"{_caption(runs)} ε is {epsilons} here.",
    utility=measured_runs.RECALL,
    level=(training_plots.UNTRAINED, runs.recall_untrained.mean()),
  )


def _caption(runs: pd.DataFrame) -> str:
  """Describes runs and their epsilon below a picture."""
  ways = measured_runs.either(x.participation.name for x in runs.ledger)
  rounds = measured_runs.either(f"{number:,}" for number in runs.rounds)
  return (
    f"Task {runs.task.iloc[0]}: {measured_runs.describe_cohorts(runs)}"
    f" (participation {ways}), {rounds} rounds. ε is what each run itself has"
    " cost, user-level, accounted for by its own ledger; nothing is"
    " extrapolated. Bars: standard deviation over seeds."
  )


def _counts(runs: pd.DataFrame) -> str:
  """Lists the numbers of test images of runs."""
  return measured_runs.either(f"{x:,}" for x in sorted(runs.num_images))


def _figures(*values: Any) -> str:
  """Returns the cell of some figures of one quantity, "-" for none.

  Args:
    *values: Numbers, or texts such as "inf"; None is left out.
  """
  known = [float(x) for x in values if x is not None]
  return "; ".join(f"{x:.3g}" for x in known) or "-"


def _line(cells: Iterable[object]) -> str:
  """Returns a row of a Markdown table."""
  return f"| {' | '.join(map(str, cells))} |"


def _spread(values: pd.Series) -> str:
  """Returns the cell of one measurement of all seeds.

  Args:
    values: A value for each seed.

  Returns:
    Mean and standard deviation; the value itself for one seed, and "-" if a run
    lacks it.
  """
  if values.isna().any():
    return "-"
  if len(values) == 1:
    return f"{values.iloc[0]:.4f}"
  return f"{values.mean():.4f} +- {values.std():.4f}"


def tabulate(runs: pd.DataFrame) -> str:
  """Makes a Markdown table of runs.

  Args:
    runs: Runs as returned by `measured_runs.find` or `compare`.

  Returns:
    The table, a row for each setting in the order of the runs.
  """
  runs = runs.assign(run=measured_runs.name_paths(list(runs.path)))
  measured = pd.DataFrame(list(runs.measured), runs.index)
  rows = []
  for _, same in runs.groupby("setting", sort=False):
    rows.append(_create_row(same, measured.loc[same.index]))
  lines = [_line(rows[0]), "|---" * len(rows[0]) + "|"]
  lines += [_line(row.values()) for row in rows]
  return "\n".join(lines)


def _create_row(same: pd.DataFrame, measured: pd.DataFrame) -> dict[str, Any]:
  """Returns the cells of a row by title, for runs that differ in their seeds.

  Args:
    same: The runs.
    measured: What was measured of each, a column for each title.

  Returns:
    Cells by title, in the order of the columns.
  """
  # A run that was killed in between pays twice: the row tells what is most.
  run = same.loc[same.epsilon.idxmax()]
  settings = run.settings
  row: dict[str, Any] = {}
  if "change" in run:
    row["change"] = run.change or "none"
  row |= {
    "run": ", ".join(same.run),
    "task": run.task,
    "algorithm": run.algorithm,
    "mechanism": settings.get("aggregator", "-"),
    "participation": settings.get("participation", "-"),
    "noise multiplier": settings.get("noise_multiplier", 0.0),
    "clip norm": settings.get("clip_norm", "-"),
    "rounds": run.rounds,
  }
  for title, values in measured.items():
    row[title] = _spread(values)
  privacy = run.summary["privacy"]
  larger = run.summary.get("privacy_extrapolated") or {}
  readings = []
  if larger:
    readings.append(larger["user_level"]["epsilon"])
    readings.append(larger["authors"]["epsilon"])
  return row | {
    "test images": _counts(same),
    "seeds": len(same),
    "epsilon (this run)": _figures(run.epsilon),
    "delta": _figures(privacy["delta"]),
    "zCDP": _figures(privacy["zcdp"]),
    "epsilon (extrapolated; Delta = C)": _figures(*readings),
    "delta (extrapolated)": _figures(larger.get("delta")),
    "zCDP (extrapolated)": _figures(larger.get("zcdp")),
  }
