"""Prints a table of finished runs, mean and deviation over seeds.

  python -m binaries.tabulate runs/fedemb_seed1 runs/fedemb_seed2 ...

Runs that differ in nothing but --seed share a row.
"""

import collections
from collections.abc import Sequence
import json
import pathlib
import statistics
import sys

from tff_fedemb.program import run_directory

_RATE = "0.001"
_COLUMNS = (
  "task",
  "algorithm",
  "mechanism",
  "participation",
  "noise multiplier",
  "clip norm",
  "rounds",
  f"recall at FAR {_RATE}",
  "untrained",
  "seeds",
  "epsilon (this run)",
  "epsilon (extrapolated; Delta = C)",
)


def _read(run_dir: pathlib.Path) -> tuple[str, dict, dict]:
  settings = json.loads((run_dir / run_directory.SETTINGS).read_text())
  summary = json.loads((run_dir / run_directory.SUMMARY).read_text())
  alike = json.dumps(
    {k: v for k, v in settings.items() if k != "seed"}, sort_keys=True
  )
  return alike, settings, summary


def _spread(values: Sequence[float]) -> str:
  if len(values) == 1:
    return f"{values[0]:.4f}"
  return f"{statistics.mean(values):.4f} +- {statistics.stdev(values):.4f}"


def _number(value: float | str) -> str:
  return f"{float(value):.3g}"


def _name_algorithm(summary: dict, settings: dict) -> str:
  """The algorithm, and what else tells a model's start and size apart."""
  name = summary["algorithm"]
  if settings.get("trainable"):
    name += f", trains {settings['trainable']}"
  if settings.get("pretrained_backbone"):
    recall = summary["recall_at_far_pretrained"][_RATE]
    name += f", pretrained ({recall:.4f})"
  return name


def tabulate(run_dirs: Sequence[pathlib.Path]) -> str:
  """Makes a Markdown table of runs.

  Args:
    run_dirs: Directories of finished runs.

  Returns:
    The table, one row per setting in the order of the directories.

  Raises:
    OSError: If a directory has no finished run.
  """
  groups = collections.OrderedDict()
  for run_dir in run_dirs:
    alike, settings, summary = _read(run_dir)
    groups.setdefault(alike, []).append((settings, summary))
  lines = [
    "| " + " | ".join(_COLUMNS) + " |",
    "|" + "---|" * len(_COLUMNS),
  ]
  for runs in groups.values():
    settings, summary = runs[0]
    extrapolated = summary["privacy_extrapolated"]
    cost = "-"
    if extrapolated:
      cost = (
        f"{_number(extrapolated['user_level']['epsilon'])};"
        f" {_number(extrapolated['authors']['epsilon'])}"
      )
    cells = (
      summary["task"],
      _name_algorithm(summary, settings),
      settings.get("aggregator", "-"),
      settings.get("participation", "-"),
      settings.get("noise_multiplier", 0.0),
      settings.get("clip_norm", "-"),
      summary["rounds"],
      _spread([s["recall_at_far"][_RATE] for _, s in runs]),
      _spread([s["recall_at_far_untrained"][_RATE] for _, s in runs]),
      len(runs),
      _number(summary["privacy"]["epsilon"]),
      cost,
    )
    lines.append("| " + " | ".join(map(str, cells)) + " |")
  return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
  """Prints the table of the directories on the command line."""
  if not arguments or arguments[0].startswith("-"):
    print(__doc__.strip())
    return int(not arguments)
  try:
    print(tabulate([pathlib.Path(argument) for argument in arguments]))
  except OSError as error:
    print(
      f"error: arguments must be directories of finished runs, found"
      f" {error.filename}: {error.strerror}.",
      file=sys.stderr,
    )
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
