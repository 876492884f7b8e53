"""A picture of how recall moves when single settings of a run change."""

from collections.abc import Mapping
import os
import textwrap

from tff_fedemb.plots import figures

# Of a line of what was changed.
_NAME_LETTERS = 44


def plot_changes(
  path: str | os.PathLike[str],
  baseline: figures.Measurement,
  changes: Mapping[str, figures.Measurement],
  *,
  utility: str,
  caption: str,
) -> None:
  """Writes a row for each change, beside a line for the baseline.

  Args:
    path: PNG file to write.
    baseline: The unchanged run: a line, and a band of one standard deviation
      over its seeds to either side.
    changes: The result of each change, by its name, from top to bottom; at
      least one.
    utility: What the values are, shares in [0, 1], for the axis.
    caption: What all have in common, printed below the axis.
  """
  names = [textwrap.fill(name, _NAME_LETTERS) for name in changes]
  lines = 1 + max(name.count("\n") for name in names)
  figure, ((axes,),) = figures.create_figure(
    *(8.4, 1.8 + (0.14 + 0.16 * lines) * len(names)),
    statement=caption,
    letters=96,
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
  figures.set_shares(axes.xaxis, [axes])
  axes.set_yticks(range(len(names)), names)
  axes.set_ylim(len(changes) - 0.5, -0.5)
  figures.write(figure, path)
