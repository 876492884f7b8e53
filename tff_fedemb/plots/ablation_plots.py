"""A picture of what changing single settings of a run gives and takes."""

from collections.abc import Mapping
import os

from tff_fedemb.plots import figures


def plot_changes(
  path: str | os.PathLike[str],
  baseline: figures.Measurement,
  changes: Mapping[str, figures.Measurement],
  *,
  utility: str,
  caption: str,
) -> None:
  """Writes a row for each change, beside a line for what was changed.

  Args:
    path: PNG file to write.
    baseline: What nothing was changed of: a line, and a band of one standard
      deviation over its seeds to either side.
    changes: What came of each change, by its name, from top to bottom.
    utility: What the values are, for the axis.
    caption: What all have in common, printed below the axis.
  """
  figure, ((axes,),) = figures.create_figure(
    8.4, 1.8 + 0.3 * len(changes), statement=caption, letters=96
  )
  figures.decorate(
    axes, title="One change at a time", x_label=utility, y_label=""
  )
  axes.axvline(baseline.mean, color=figures.GREY, linewidth=1.5)
  axes.axvspan(
    baseline.mean - baseline.stdev,
    baseline.mean + baseline.stdev,
    color=figures.GREY,
    alpha=0.2,
    linewidth=0,
  )
  for row, measured in enumerate(changes.values()):
    is_better = measured.mean >= baseline.mean
    axes.errorbar(
      measured.mean,
      row,
      xerr=measured.stdev or None,
      marker="o",
      color=figures.COLORS[0 if is_better else 1],
      capsize=3,
    )
  axes.set_yticks(range(len(changes)), list(changes))
  axes.set_ylim(len(changes) - 0.5, -0.5)
  figures.write(figure, path)
