"""Pictures of utility against epsilon, with bars of deviations over seeds.

What was measured at the epsilon that it cost is drawn in the manner of Mehta et
al. 2022, "Differentially Private Image Classification from Features" (arXiv
2211.13403): without noise epsilon is infinite, which has a place of its own
behind a gap in the axis.

What is extrapolated is drawn in the manner of figure 4 of Xu et al. 2023,
"Learning to Generate Image Embeddings with User-level Differential Privacy":
recall is measured, and epsilon is accounted for more users than took part,
marked as such, beside what the runs themselves cost.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import lines as mpl_lines
from matplotlib import ticker
import numpy as np

from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots

# Of the width of the axis: between curves at one epsilon, and between ticks.
_DODGE = 0.004
_TICK_DISTANCE = 0.09
_LEVEL_STYLE = {"color": figures.GREY, "linestyle": ":", "linewidth": 1.5}
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
class Curve:
  """One method, or one setting of runs, at several epsilons.

  Attributes:
    name: For the legend.
    points: One for each epsilon, at least one, in any order.
  """

  name: str
  points: tuple[figures.Measurement, ...]

  def at(self, *, is_noiseless: bool) -> list[figures.Measurement]:
    """Returns the points with or without noise by ascending epsilon."""
    points = [p for p in self.points if math.isinf(p.epsilon) == is_noiseless]
    return sorted(points, key=lambda point: point.epsilon)


def plot_measured_by_epsilon(
  path: str | os.PathLike[str],
  curves: Sequence[Curve],
  *,
  delta: float | None,
  caption: str,
  title: str = "Accuracy against epsilon",
  utility: str = "test accuracy",
  level: tuple[str, float] | None = None,
  repetition: str = "seed",
) -> None:
  """Writes mean utility against epsilon, bars standard deviations over seeds.

  Points of one epsilon are drawn side by side, so that no bar hides another.

  Args:
    path: PNG file to write.
    curves: At most `figures.MAX_CURVES`.
    delta: At which all epsilons hold; `None` if they have several, which the
      names of the curves tell, or there is noise nowhere.
    caption: What all curves have in common, printed below the axes.
    title: Of the picture.
    utility: What the values are, for the vertical axis.
    level: Name and utility of what has no epsilon, for comparison.
    repetition: What a point has several values of, in one word that takes
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
    statement=caption,
    letters=108,
    padding={"wspace": 0.0},
    sharey=True,
    width_ratios=widths,
  )
  for axes in panels:
    figures.decorate(axes, title="", x_label="", y_label="")
    if level:
      axes.axhline(level[1], **_LEVEL_STYLE)
  if finite:
    _draw_finite(panels[0], curves, finite)
    panels[0].set_xlabel(figures.epsilon_label(delta), fontsize=11)
  if finite != epsilons:
    _draw_noiseless(panels[-1], curves)
  if has_both:
    _break_axis(*panels)
  panels[0].set_title(title, fontsize=12, loc="left", fontweight="bold")
  panels[0].set_ylabel(utility, fontsize=11)
  figures.set_shares(panels[0].yaxis, panels)
  count = figures.count_seeds(points, repetition)
  keys = {
    f"method ({count})": [
      figures.create_key(curve.name, linewidth=1.6, **figures.style_of(index))
      for index, curve in enumerate(curves)
    ]
  }
  if level:
    keys["for comparison"] = [figures.create_key(level[0], **_LEVEL_STYLE)]
  figures.set_legend(figure, keys)
  figures.write(figure, path)


def _draw_finite(
  axes: mpl_axes.Axes, curves: Sequence[Curve], epsilons: list[float]
) -> None:
  figures.set_logarithmic(axes.xaxis, epsilons)
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
    figures.draw_bars(axes, points, **figures.style_of(index))


def _draw_noiseless(axes: mpl_axes.Axes, curves: Sequence[Curve]) -> None:
  for index, curve in enumerate(curves):
    points = [
      (index, point.mean, point.stdev) for point in curve.at(is_noiseless=True)
    ]
    figures.draw_bars(axes, points, **figures.style_of(index))
  axes.set_xlim(-1.0, len(curves))
  axes.set_xticks([(len(curves) - 1) / 2], ["no noise"])
  axes.grid(False, axis="x")


def _break_axis(left: mpl_axes.Axes, right: mpl_axes.Axes) -> None:
  """Shows that the axis of the right panel does not go on where left's ends."""
  right.spines["left"].set_visible(False)
  right.tick_params(axis="y", length=0)
  for axes, end in ((left, 1), (right, 0)):
    axes.plot([end], [0], transform=axes.transAxes, **_BREAK_STYLE)


def plot_extrapolated_by_epsilon(
  path: str | os.PathLike[str],
  curves: Sequence[Curve],
  *,
  false_accept_rate: float,
  caption: str,
  levels: Mapping[str, float],
) -> None:
  """Writes measured recall against the epsilon of a larger population.

  On the left the extrapolation, a line for each curve and cohort factor; on the
  right, at the same heights, the runs at the epsilon that they themselves cost.
  If a curve has a point without noise, a second row shows by how much the
  recall is below that one.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`, of no more cohort factors.
    false_accept_rate: At which the recalls were measured.
    caption: What was extrapolated to, printed below the axes.
    levels: Recalls without an epsilon by name, `training_plots.UNTRAINED` last.

  Raises:
    errors.FieldError: If there are too many curves or cohort factors, or none.
  """
  points = [p for curve in curves for p in curve.at(is_noiseless=False)]
  factors = sorted({factor for p in points for factor in p.extrapolated})
  figures.check_count("curves", len(curves))
  figures.check_count("cohort factors", len(factors))
  num_rows = 1 + any(curve.at(is_noiseless=True) for curve in curves)
  figure, panels = figures.create_figure(
    *(10, 1.8 + 3.4 * num_rows, (num_rows, 2)),
    statement=caption,
    letters=125,
    sharex="col",
    sharey="row",
    width_ratios=(2.2, 1),
  )
  extrapolated = [e for p in points for e in p.extrapolated.values()]
  _draw_column(panels[:, 0], curves, factors, extrapolated, num_ticks=7)
  _draw_column(
    panels[:, 1], curves, [None], [p.epsilon for p in points], num_ticks=4
  )
  titles = "Extrapolated: recall measured, ε accounted", "As run: honest ε"
  for axes, title in zip(panels[0], titles, strict=True):
    axes.set_title(title, fontsize=12, loc="left", fontweight="bold")
  level_keys = _draw_levels(panels[0], levels)
  panels[0, 0].set_ylabel(f"recall at FAR {false_accept_rate:g}", fontsize=11)
  figures.set_shares(panels[0, 0].yaxis, panels[0], from_zero=True)
  if num_rows > 1:
    panels[1, 0].set_ylabel(
      "recall below that without\nnoise (percentage points)", fontsize=11
    )
  grey = {"color": figures.GREY, "linewidth": 1.6}
  keys = {
    "runs": [
      figures.create_key(
        f"{curve.name}\n({figures.count_seeds(curve.at(is_noiseless=False))})",
        **figures.style_of(index, linestyle="", markersize=6),
      )
      for index, curve in enumerate(curves)
    ],
    "cohort and noise": [
      figures.create_key(f"{factor:,g} times", linestyle=style, **grey)
      for factor, style in zip(factors, figures.STYLES, strict=False)
    ],
  }
  if level_keys:
    keys["recall"] = level_keys
  figures.set_legend(figure, keys)
  figures.write(figure, path)


def _draw_levels(
  panels: Sequence[mpl_axes.Axes], levels: Mapping[str, float]
) -> list[mpl_lines.Line2D]:
  """Draws recalls without an epsilon, and returns what the legend has."""
  keys = []
  for (name, level), linestyle in zip(
    levels.items(), figures.STYLES, strict=False
  ):
    style: dict[str, Any] = _LEVEL_STYLE
    if name != training_plots.UNTRAINED:
      style = {"color": "black", "linewidth": 0.9, "linestyle": linestyle}
    for axes in panels:
      axes.axhline(level, **style)
    keys.append(figures.create_key(name, **style))
  return keys


def _draw_column(
  panels: np.ndarray,
  curves: Sequence[Curve],
  factors: Sequence[float | None],
  epsilons: Sequence[float],
  *,
  num_ticks: int,
) -> None:
  """Draws recalls and, in a second panel, drops; a factor of None is as run."""
  for axes in panels:
    for index, curve in enumerate(curves):
      for linestyle, factor in zip(figures.STYLES, factors, strict=False):
        points = _points(curve, factor, is_drop=axes is not panels[0])
        style = figures.style_of(index, markersize=6)
        style["linestyle"] = "" if factor is None else linestyle
        figures.draw_bars(axes, points, **style)
    x_label = "ε" if axes is panels[-1] else ""
    figures.decorate(axes, title="", x_label=x_label, y_label="")
    figures.set_logarithmic(axes.xaxis, epsilons, num_ticks=num_ticks)


def _points(
  curve: Curve, factor: float | None, *, is_drop: bool
) -> list[tuple[float, float, float]]:
  """Epsilons, heights and bars of a curve, those that have a place."""
  noiseless = curve.at(is_noiseless=True)
  points = []
  for measured in curve.at(is_noiseless=False):
    epsilon, height, bar = measured.epsilon, measured.mean, measured.stdev
    if factor is not None:
      epsilon = measured.extrapolated.get(factor, math.inf)
    if is_drop and noiseless:
      # The two are independent, so their variances add up.
      height = 100 * (noiseless[0].mean - height)
      bar = 100 * math.hypot(noiseless[0].stdev, bar)
    if 0 < epsilon < math.inf and (noiseless or not is_drop):
      points.append((epsilon, height, bar))
  return sorted(points)
