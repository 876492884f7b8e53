"""What a tuning tells its reader."""

from collections.abc import Mapping
import pathlib
from typing import Any

from experiments import tuning_run


def to_table(report: Mapping[str, Any], output_dir: pathlib.Path) -> str:
  """Makes a report's table for readers.

  Args:
    report: What `tuning_run.TuningRun.run` returned.
    output_dir: Where it lies.
  """
  rows = []
  best, privacy = report["best"], report["privacy"]
  if best is not None:
    for name, value in best["hyperparameters"].items():
      shown = f"{value:.6g}" if isinstance(value, float) else value
      rows.append((f"--{name}", shown))
    for split in ("validation", "test"):
      rows.append((f"{best['metric']}, {split}", f"{best[split]:.4f}"))
    rows.append(("model", output_dir / best["saved_model"]))
  if privacy is not None:
    for words, name in (
      ("epsilon of the tuning", "epsilon"),
      ("epsilon of one trial", "epsilon_of_one_trial"),
      ("delta", "delta"),
    ):
      rows.append((words, f"{float(privacy[name]):.4g}"))
    distribution = f"{privacy['distribution']}, mean {privacy['mean_trials']:g}"
    rows.append(("number of trials", distribution))
  lines = ["| best trial | |", "|---|---|"]
  lines += [f"| {name} | {value} |" for name, value in rows] or ["| none | |"]
  if privacy is not None:
    lines += ["", privacy["statement"]]
  lines += [f"warning: {warning}" for warning in report["warnings"]]
  lines.append(
    f"Written to {output_dir}: {tuning_run.REPORT}, and {tuning_run.BEST}/"
    " if there is a model."
    " The rest of that directory tells of the other trials and must not be"
    " released."
  )
  return "\n".join(lines)
