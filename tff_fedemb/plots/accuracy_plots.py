"""Pictures of a classifier's accuracy against epsilon, methods compared.

In the manner of the figures of Mehta et al. 2022, "Differentially Private Image
Classification from Features" (arXiv 2211.13403). Epsilon is logarithmic;
without noise it is infinite, which has a place of its own behind a gap.
"""

from collections.abc import Sequence
import dataclasses
import math
import os
import statistics

from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
from matplotlib import lines as mpl_lines
from matplotlib import ticker

from tff_fedemb.plots import figures
from tff_fedemb.plots import privacy_plots

# Of the width of the axis: between curves at one epsilon, and between ticks.
_DODGE = 0.004
_TICK_DISTANCE = 0.06
_NO_NOISE = "no noise"
_CHANCE_STYLE = {"color": figures.GREY, "linestyle": ":", "linewidth": 1.5}
# The stroke at the two ends of a gap in the axis.
_BREAK_MARKER = [(-0.5, -1), (0.5, 1)]


@dataclasses.dataclass(frozen=True)
class AccuracyPoint:
  """Fits that differ in nothing but their seed.

  Attributes:
    epsilon: Positive; infinity without noise.
    accuracies: `[n]` accuracies in [0, 1], one for each seed, n at least 1.

  Raises:
    ValueError: If epsilon is not positive, there is no accuracy, or one is
      outside [0, 1].
  """

  epsilon: float
  accuracies: tuple[float, ...]

  def __post_init__(self):
    if not self.epsilon > 0:
      raise ValueError(f"epsilon must be positive, found {self.epsilon!r}")
    if not self.accuracies:
      raise ValueError("accuracies must be of at least one seed, found none")
    if not all(0 <= accuracy <= 1 for accuracy in self.accuracies):
      raise ValueError(
        f"accuracies must be in [0, 1], found {self.accuracies!r}"
      )

  @property
  def mean(self) -> float:
    """Mean accuracy."""
    return statistics.fmean(self.accuracies)

  @property
  def stdev(self) -> float:
    """Standard deviation over seeds; 0 for a single one."""
    if len(self.accuracies) < 2:
      return 0.0
    return statistics.stdev(self.accuracies)


@dataclasses.dataclass(frozen=True)
class AccuracyCurve:
  """One method at several epsilons.

  Attributes:
    name: For the legend.
    points: One for each epsilon, at least one, in any order.

  Raises:
    ValueError: If there are no points.
  """

  name: str
  points: tuple[AccuracyPoint, ...]

  def __post_init__(self):
    if not self.points:
      raise ValueError(
        f"points must be at least one, found none of {self.name!r}"
      )


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
    curves: At most `privacy_plots.MAX_CURVES`.
    delta: At which all epsilons hold; `None` if there is noise nowhere.
    caption: What all curves have in common, printed below the axes.
    title: Of the picture.
    chance: Accuracy of who does not look at the features, drawn as a level.
    repetition: What a point has several accuracies of, in one word that takes
      an s; the legend counts them.

  Raises:
    ValueError: If there are too many curves, or none.
  """
  privacy_plots.check_count("curves", len(curves))
  epsilons = sorted({p.epsilon for c in curves for p in c.points})
  finite = [epsilon for epsilon in epsilons if epsilon < math.inf]
  has_both = bool(finite) and finite != epsilons
  figure = mpl_figure.Figure(figsize=(8.4, 5.0), layout="constrained")
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08, wspace=0.0)
  panels = figure.subplots(
    1,
    1 + has_both,
    squeeze=False,
    sharey=True,
    width_ratios=(5.5, 1) if has_both else (1,),
  )[0]
  for axes in panels:
    figures.decorate(axes, title="", x_label="", y_label="")
    if chance is not None:
      axes.axhline(chance, **_CHANCE_STYLE)
  if finite:
    _draw_finite(panels[0], curves, finite)
    at_delta = "" if delta is None else f" (δ = {delta:.2g})"
    panels[0].set_xlabel(f"ε{at_delta}".replace("e-0", "e-"), fontsize=11)
  if finite != epsilons:
    _draw_noiseless(panels[-1], curves)
  if has_both:
    _break_axis(*panels)
  panels[0].set_title(title, fontsize=12, loc="left", fontweight="bold")
  panels[0].set_ylabel("test accuracy", fontsize=11)
  panels[0].yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
  low, high = panels[0].get_ylim()
  panels[0].set_ylim(max(low, 0.0), min(high, 1.02))
  privacy_plots.set_legend(figure, _keys(curves, chance, repetition))
  figures.set_statement(figure, caption, width=108)
  figures.write(figure, path)


def _style(index: int) -> dict[str, object]:
  return {
    "color": figures.COLORS[index],
    "linestyle": figures.STYLES[index],
    "linewidth": 1.6,
    "marker": figures.MARKERS[index],
    "markersize": 5,
  }


def _draw_finite(
  axes: mpl_axes.Axes, curves: Sequence[AccuracyCurve], epsilons: list[float]
) -> None:
  privacy_plots.set_epsilons(axes, axes.xaxis, epsilons, num_ticks=9)
  low, high = axes.get_xlim()
  width = math.log(high / low)
  ticks = epsilons[:1]
  for epsilon in epsilons:
    if math.log(epsilon / ticks[-1]) >= _TICK_DISTANCE * width:
      ticks.append(epsilon)
  axes.xaxis.set_major_locator(ticker.FixedLocator(ticks))
  for index, curve in enumerate(curves):
    points = sorted(
      (p for p in curve.points if p.epsilon < math.inf),
      key=lambda point: point.epsilon,
    )
    shift = math.exp(_DODGE * width * (index - (len(curves) - 1) / 2))
    _draw(axes, [p.epsilon * shift for p in points], points, index)


def _draw_noiseless(
  axes: mpl_axes.Axes, curves: Sequence[AccuracyCurve]
) -> None:
  center = (len(curves) - 1) / 2
  for index, curve in enumerate(curves):
    points = [p for p in curve.points if p.epsilon == math.inf]
    _draw(axes, [index] * len(points), points, index)
  axes.set_xlim(-1.0, len(curves))
  axes.set_xticks([center], [_NO_NOISE])
  axes.grid(False, axis="x")


def _draw(
  axes: mpl_axes.Axes,
  x: Sequence[float],
  points: Sequence[AccuracyPoint],
  index: int,
) -> None:
  if not points:
    return
  bars = [point.stdev for point in points]
  axes.errorbar(
    x,
    [point.mean for point in points],
    yerr=bars if any(bars) else None,
    capsize=3,
    elinewidth=1.4,
    **_style(index),
  )


def _break_axis(left: mpl_axes.Axes, right: mpl_axes.Axes) -> None:
  """Shows that the axis of the right panel does not go on where left's ends."""
  right.spines["left"].set_visible(False)
  right.tick_params(axis="y", length=0)
  for axes, end in ((left, 1), (right, 0)):
    axes.plot(
      [end],
      [0],
      transform=axes.transAxes,
      marker=_BREAK_MARKER,
      markersize=9,
      color="black",
      linestyle="",
      markeredgewidth=1,
      clip_on=False,
    )


def _keys(
  curves: Sequence[AccuracyCurve], chance: float | None, repetition: str
) -> list[tuple[str, list[mpl_lines.Line2D]]]:
  keys = [
    privacy_plots.create_key(label=curve.name, **_style(index))
    for index, curve in enumerate(curves)
  ]
  groups = [(f"method ({_count(curves, repetition)})", keys)]
  if chance is not None:
    key = privacy_plots.create_key(label="guessing", **_CHANCE_STYLE)
    groups.append(("for comparison", [key]))
  return groups


def _count(curves: Sequence[AccuracyCurve], repetition: str) -> str:
  counts = sorted({len(p.accuracies) for c in curves for p in c.points})
  if counts == [1]:
    return f"1 {repetition}"
  ends = dict.fromkeys((counts[0], counts[-1]))
  return f"{'-'.join(map(str, ends))} {repetition}s"
