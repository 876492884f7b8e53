"""Pictures of a classifier's accuracy against epsilon, methods compared.

In the manner of the figures of Mehta et al. 2022, "Differentially Private Image
Classification from Features" (arXiv 2211.13403). Epsilon is logarithmic;
without noise it is infinite, which has a place of its own behind a gap.
"""

from collections.abc import Sequence
import dataclasses
import math
import os
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import ticker

from tff_fedemb.plots import figures

# Of the width of the axis: between curves at one epsilon, and between ticks.
_DODGE = 0.004
_TICK_DISTANCE = 0.06
_CHANCE_STYLE = {"color": figures.GREY, "linestyle": ":", "linewidth": 1.5}
# The stroke at the two ends of a gap in the axis.
_BREAK_STYLE: dict[str, Any] = {
  "marker": [(-0.5, -1), (0.5, 1)],
  "markersize": 9,
  "markeredgewidth": 1,
  "color": "black",
  "linestyle": "",
  "clip_on": False,
}


@dataclasses.dataclass(frozen=True)
class AccuracyCurve:
  """One method at several epsilons.

  Attributes:
    name: For the legend.
    points: Accuracies, one for each epsilon, at least one, in any order.
  """

  name: str
  points: tuple[figures.Measurement, ...]

  def at(self, *, is_noiseless: bool) -> list[figures.Measurement]:
    """Returns the points with or without noise by ascending epsilon."""
    points = [p for p in self.points if math.isinf(p.epsilon) == is_noiseless]
    return sorted(points, key=lambda point: point.epsilon)


def plot_accuracy_by_epsilon(
  path: str | os.PathLike[str],
  curves: Sequence[AccuracyCurve],
  *,
  delta: float | None,
  caption: str,
  title: str = "Accuracy against epsilon",
  chance: float | None = None,
  repetition: str = "seed",
) -> None:
  """Writes mean accuracy against epsilon, bars standard deviations over seeds.

  Points of one epsilon are drawn side by side, so that no bar hides another.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`.
    delta: At which all epsilons hold; `None` if there is noise nowhere.
    caption: What all curves have in common, printed below the axes.
    title: Of the picture.
    chance: Accuracy of who does not look at the features, drawn as a level.
    repetition: What a point has several accuracies of, in one word that takes
      an s; the legend counts them.

  Raises:
    errors.FieldError: If there are too many curves, or none.
  """
  figures.check_count("curves", len(curves))
  points = [point for curve in curves for point in curve.points]
  epsilons = sorted({point.epsilon for point in points})
  finite = [epsilon for epsilon in epsilons if epsilon < math.inf]
  has_both = bool(finite) and finite != epsilons
  widths = (5.5, 1) if has_both else (1,)
  figure, ((*panels,),) = figures.create_figure(
    *(8.4, 5.0, (1, len(widths))),
    padding={"wspace": 0.0},
    sharey=True,
    width_ratios=widths,
  )
  for axes in panels:
    figures.decorate(axes, title="", x_label="", y_label="")
    if chance is not None:
      axes.axhline(chance, **_CHANCE_STYLE)
  if finite:
    _draw_finite(panels[0], curves, finite)
    panels[0].set_xlabel(figures.epsilon_label(delta), fontsize=11)
  if finite != epsilons:
    _draw_noiseless(panels[-1], curves)
  if has_both:
    _break_axis(*panels)
  panels[0].set_title(title, fontsize=12, loc="left", fontweight="bold")
  panels[0].set_ylabel("test accuracy", fontsize=11)
  panels[0].yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
  low, high = panels[0].get_ylim()
  panels[0].set_ylim(max(low, 0.0), min(high, 1.02))
  count = figures.count_seeds(points, repetition)
  keys = {
    f"method ({count})": [
      figures.create_key(curve.name, linewidth=1.6, **_style(index))
      for index, curve in enumerate(curves)
    ]
  }
  if chance is not None:
    keys["for comparison"] = [figures.create_key("guessing", **_CHANCE_STYLE)]
  figures.set_legend(figure, keys)
  figures.set_statement(figure, caption, width=108)
  figures.write(figure, path)


def _style(index: int) -> dict[str, Any]:
  return {
    "color": figures.COLORS[index],
    "linestyle": figures.STYLES[index],
    "marker": figures.MARKERS[index],
    "markersize": 5,
  }


def _draw_finite(
  axes: mpl_axes.Axes, curves: Sequence[AccuracyCurve], epsilons: list[float]
) -> None:
  figures.set_epsilons(axes, axes.xaxis, epsilons)
  low, high = axes.get_xlim()
  width = math.log(high / low)
  ticks = epsilons[:1]
  for epsilon in epsilons:
    if math.log(epsilon / ticks[-1]) >= _TICK_DISTANCE * width:
      ticks.append(epsilon)
  axes.xaxis.set_major_locator(ticker.FixedLocator(ticks))
  for index, curve in enumerate(curves):
    shift = math.exp(_DODGE * width * (index - (len(curves) - 1) / 2))
    points = [
      (point.epsilon * shift, point.mean, point.stdev)
      for point in curve.at(is_noiseless=False)
    ]
    figures.draw_bars(axes, points, **_style(index))


def _draw_noiseless(
  axes: mpl_axes.Axes, curves: Sequence[AccuracyCurve]
) -> None:
  for index, curve in enumerate(curves):
    points = [
      (index, point.mean, point.stdev) for point in curve.at(is_noiseless=True)
    ]
    figures.draw_bars(axes, points, **_style(index))
  axes.set_xlim(-1.0, len(curves))
  axes.set_xticks([(len(curves) - 1) / 2], ["no noise"])
  axes.grid(False, axis="x")


def _break_axis(left: mpl_axes.Axes, right: mpl_axes.Axes) -> None:
  """Shows that the axis of the right panel does not go on where left's ends."""
  right.spines["left"].set_visible(False)
  right.tick_params(axis="y", length=0)
  for axes, end in ((left, 1), (right, 0)):
    axes.plot([end], [0], transform=axes.transAxes, **_BREAK_STYLE)
