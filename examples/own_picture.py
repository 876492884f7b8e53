"""Draws what no program draws, from finished runs: recall over their classes.

Runs on other numbers of users of task symbols are on as many classes:
  python -m examples.own_picture classes.png runs/symbols/*
"""

from collections.abc import Sequence
import sys

from matplotlib import pyplot as plt

from tff_fedemb.report import measured_runs

_NAMES = {
  "fedavg": "DP-FedAvg",
  "fedemb": "DP-FedEmb as published",
  "centralized": "centralized, no privacy",
}


def main(argv: Sequence[str]) -> None:
  """Draws a line for each algorithm, and a point for each run."""
  _, output_png, *run_dirs = argv
  runs = measured_runs.find(run_dirs)
  # Characters that are turned four ways are as many classes.
  turned = runs.settings.map(lambda flags: flags.get("turned_classes", False))
  users = [ledger.participation.num_users for ledger in runs.ledger]
  runs["classes"] = users * (1 + 3 * turned.astype(int))
  figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
  for algorithm, same in runs.groupby("algorithm"):
    mean = same.groupby("classes").recall.mean()
    (line,) = axes.plot(mean.index, mean, label=_NAMES.get(algorithm))
    axes.plot(same.classes, same.recall, "o", color=line.get_color())
  axes.set(
    xscale="log",
    xlabel="training classes",
    ylabel=f"test recall at FAR {measured_runs.FALSE_ACCEPT_RATE:g}",
  )
  axes.set_xticks(sorted(runs.classes.unique()), minor=False)
  axes.xaxis.set_major_formatter("{x:,.0f}")
  axes.xaxis.set_minor_locator(plt.NullLocator())
  axes.grid(alpha=0.3)
  axes.legend(title="points: seeds")
  figure.savefig(output_png, dpi=110)


if __name__ == "__main__":
  main(sys.argv)
