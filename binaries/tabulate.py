"""Prints a table of finished runs, mean and deviation over seeds.

  python -m binaries.tabulate runs/fedemb_seed1 runs/fedemb_seed2 ...

Runs that differ in nothing but --seed share a row.
"""

from collections.abc import Sequence
import pathlib
import sys

import pandas as pd

from experiments import measured_runs
from tff_fedemb import errors


def _spread(values: pd.Series) -> str:
  if len(values) == 1:
    return f"{values.iloc[0]:.4f}"
  return f"{values.mean():.4f} +- {values.std():.4f}"


def _name_algorithm(run: pd.Series) -> str:
  """The algorithm, and what else tells a model's start and size apart."""
  name = run.algorithm
  if run.settings.get("trainable"):
    name += f", trains {run.settings['trainable']}"
  if run.settings.get("pretrained_backbone"):
    name += f", pretrained ({run.recall_pretrained:.4f})"
  return name


def tabulate(run_dirs: Sequence[pathlib.Path]) -> str:
  """Makes a Markdown table of runs.

  Args:
    run_dirs: Directories of finished runs.

  Returns:
    The table, one row per setting in the order of the directories.

  Raises:
    errors.DataError: If a directory has no finished run.
  """
  rows = []
  runs = measured_runs.load(run_dirs)
  for _, same in runs.groupby("setting", sort=False):
    run = same.iloc[0]
    costs = [f"{epsilon:.3g}" for epsilon in run.extrapolated or ()]
    recall = f"recall at FAR {measured_runs.FALSE_ACCEPT_RATE:g}"
    rows.append(
      {
        "task": run.task,
        "algorithm": _name_algorithm(run),
        "mechanism": run.settings.get("aggregator", "-"),
        "participation": run.settings.get("participation", "-"),
        "noise multiplier": run.settings.get("noise_multiplier", 0.0),
        "clip norm": run.settings.get("clip_norm", "-"),
        "rounds": run.rounds,
        recall: _spread(same.recall),
        "untrained": _spread(same.recall_untrained),
        "seeds": len(same),
        "epsilon (this run)": f"{run.epsilon:.3g}",
        "epsilon (extrapolated; Delta = C)": "; ".join(costs) or "-",
      }
    )
  lines = [" | ".join(map(str, row.values())) for row in rows]
  lines = [f"| {line} |" for line in (" | ".join(rows[0]), *lines)]
  lines.insert(1, "|---" * len(rows[0]) + "|")
  return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
  """Prints the table of the directories on the command line."""
  if not arguments or arguments[0].startswith("-"):
    print(__doc__.strip())
    return int(not arguments)
  try:
    print(tabulate([pathlib.Path(argument) for argument in arguments]))
  except errors.DataError as error:
    print(f"error: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
