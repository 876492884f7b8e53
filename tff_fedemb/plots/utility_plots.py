"""Pictures of utility: against epsilon, and for single changes of a run.

Bars are standard deviations over seeds.

Measurements over their epsilon are drawn as in Mehta et al. 2022,
"Differentially Private Image Classification from Features" (arXiv 2211.13403):
without noise epsilon is infinite, which has a place of its own at the end of
the axis.

Extrapolations follow figure 4 of Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy": recall is measured, and
epsilon is computed for more users than took part. The picture says so, and
shows the epsilon of the runs themselves beside it.
"""

from collections.abc import Mapping, Sequence
import itertools
import math
import os
import textwrap

from matplotlib import axes as mpl_axes
from matplotlib import lines as mpl_lines
from matplotlib import ticker

from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots

# Distances as shares of the axis' width: between curves at one epsilon, and
# between ticks. The latter is also the distance from the largest epsilon to the
# place of runs without noise.
_DODGE = 0.004
_TICK_DISTANCE = 0.1
_NO_NOISE = "no noise"
# Maximum number of letters in a line of changed settings.
_NAME_LETTERS = 44


# Measurements at several epsilons, by the name of the method or setting in the
# legend.
Curves = Mapping[str, Sequence[figures.Measurement]]


def _at(
  points: Sequence[figures.Measurement],
  *,
  is_noiseless: bool,
) -> list[figures.Measurement]:
  """Returns the points with or without noise, by ascending epsilon."""
  chosen = [p for p in points if math.isinf(p.epsilon) == is_noiseless]
  return sorted(chosen, key=lambda point: point.epsilon)


def plot_measured_by_epsilon(
  path: str | os.PathLike[str],
  panels: Mapping[str, Curves],
  *,
  delta: float | None,
  caption: str,
  utility: str,
  level: tuple[str, float] | None = None,
  repetition: str = "seed",
) -> None:
  """Writes mean utility against epsilon, with bars over seeds.

  Points of one epsilon are drawn side by side, so that no bar hides another.

  Args:
    path: PNG file to write, in a directory that exists.
    panels: Curves by the title of their panel, at most `figures.MAX_CURVES` of
      the same names in each, each of at least one point.
    delta: Delta of all epsilons; None if there are several, which the names of
      the curves must then say, or if there is no noise anywhere.
    caption: Text below the axes: properties that all curves share.
    utility: Label of the vertical axis, whose values are shares in [0, 1].
    level: Name and value of a utility without an epsilon, for comparison; None
      for none.
    repetition: Noun for the values of a point, whose plural ends in s; the
      legend counts them.

  Examples:
    >>> curve = [
    ...   figures.Measurement((0.35, 0.37), epsilon=2.0),
    ...   figures.Measurement((0.41, 0.43), epsilon=math.inf),
    ... ]
    >>> utility_plots.plot_measured_by_epsilon(
    ...   "epsilon.png",
    ...   {"Omniglot": {"DP-FedEmb": curve}},
    ...   delta=1e-6,
    ...   caption="60 rounds.",
    ...   utility="recall at FAR 0.001",
    ...   level=("untrained", 0.04),
    ... )
  """
  width, height = (8.4, 5.0) if len(panels) == 1 else (11.5, 4.2)
  figure, (row,) = figures.create_figure(
    width,
    height,
    (1, len(panels)),
    statement=caption,
    letters=round(13 * width),
    sharey=True,
  )
  points: list[figures.Measurement] = []
  for axes, (name, drawn) in zip(row, panels.items(), strict=True):
    points += itertools.chain.from_iterable(drawn.values())
    figures.decorate(
      axes,
      title=name,
      x_label=figures.epsilon_label(delta),
      y_label=utility if axes is row[0] else "",
    )
    _draw_measured(axes, drawn)
  levels = []
  if level:
    level_name, level_utility = level
    levels.append(_draw_level(row, level_name, level_utility))
  figures.set_shares(row[0].yaxis)
  keys = [
    figures.create_key(name, linewidth=1.6, **figures.style_of(index))
    for index, name in enumerate(drawn)
  ]
  heading = f"method ({figures.count_seeds(points, repetition)})"
  figures.set_legend(figure, {heading: keys, "for comparison": levels})
  figures.write(figure, path)


def _draw_measured(
  axes: mpl_axes.Axes,
  curves: Curves,
  tick_distance: float = _TICK_DISTANCE,
) -> None:
  """Draws the curves of a panel, and makes its axis one of epsilons.

  `tick_distance` is the least distance of two ticks, as a share of the axis.
  """
  points_of_all = itertools.chain.from_iterable(curves.values())
  epsilons = {point.epsilon for point in points_of_all}
  width, infinity = _set_epsilons(axes, epsilons, tick_distance)
  for index, points in enumerate(curves.values()):
    shift = math.exp(_DODGE * width * (index - (len(curves) - 1) / 2))
    for is_noiseless in (False, True):
      drawn = [
        (min(point.epsilon, infinity) * shift, point.mean, point.stdev)
        for point in _at(points, is_noiseless=is_noiseless)
      ]
      figures.draw_bars(axes, drawn, **figures.style_of(index))


def _set_epsilons(
  axes: mpl_axes.Axes,
  epsilons: set[float],
  tick_distance: float,
) -> tuple[float, float]:
  """Makes the axis one of epsilons, with a place for infinity.

  Args:
    axes: The panel.
    epsilons: Epsilons of all points; infinity for those without noise.
    tick_distance: See `_draw_measured`; also the distance from the end of the
      finite epsilons to the place of infinity.

  Returns:
    The width of the axis as a natural logarithm, and the place of infinity.
  """
  finite = sorted(epsilons - {math.inf})
  figures.set_logarithmic(axes.xaxis, finite)
  low, high = axes.get_xlim()
  width = math.log(high / low)
  ticks = finite[:1]
  for epsilon in finite:
    if math.log(epsilon / ticks[-1]) >= tick_distance * width:
      ticks.append(epsilon)
  infinity = high * math.exp(tick_distance * width)
  show = axes.xaxis.get_major_formatter()
  if math.inf in epsilons:
    ticks.append(infinity)
    left = low if finite else high
    axes.set_xlim(left, high * math.exp(2 * tick_distance * width))
    axes.axvline(high, color=figures.GREY, linewidth=0.8)
  axes.xaxis.set_major_locator(ticker.FixedLocator(ticks))
  axes.xaxis.set_major_formatter(
    lambda x, _: _NO_NOISE if x > high else show(x)
  )
  return width, infinity


def plot_measured_by_users(
  path: str | os.PathLike[str],
  curves: Curves,
  *,
  caption: str,
  utility: str,
  level: tuple[str, float],
) -> None:
  """Writes mean utility against the users in training, with bars over seeds.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`, whose measurements have their
      `num_users`.
    caption: Text below the axes: properties that all curves share.
    utility: Label of the vertical axis, whose values are shares in [0, 1].
    level: Name and utility of a model that no user trained, for comparison.

  Examples:
    >>> curve = [
    ...   figures.Measurement((0.20, 0.22), epsilon=2.0, num_users=10_000),
    ...   figures.Measurement((0.30, 0.31), epsilon=0.9, num_users=100_000),
    ... ]
    >>> utility_plots.plot_measured_by_users(
    ...   "users.png",
    ...   {"DP-FedEmb": curve},
    ...   caption="60 rounds.",
    ...   utility="recall at FAR 0.001",
    ...   level=("untrained", 0.04),
    ... )
  """
  figure, ((axes,),) = figures.create_figure(
    8.4, 5.0, statement=caption, letters=109
  )
  figures.decorate(
    axes,
    title="Measured: recall over the users in training",
    x_label=figures.USERS,
    y_label=utility,
  )
  keys = []
  for index, (name, points) in enumerate(curves.items()):
    style = figures.style_of(index)
    keys.append(figures.create_key(name, linewidth=1.6, **style))
    drawn = [(point.num_users, point.mean, point.stdev) for point in points]
    figures.draw_bars(axes, sorted(drawn), **style)
  points = list(itertools.chain.from_iterable(curves.values()))
  figures.set_users(axes, [point.num_users for point in points])
  compared = _draw_level([axes], *level)
  figures.set_shares(axes.yaxis)
  heading = f"algorithm ({figures.count_seeds(points)})"
  figures.set_legend(figure, {heading: keys, "for comparison": [compared]})
  figures.write(figure, path)


def plot_extrapolated_by_epsilon(
  path: str | os.PathLike[str],
  curves: Curves,
  *,
  false_accept_rate: float,
  caption: str,
  untrained: float,
) -> None:
  """Writes measured recall against the epsilon of a larger population.

  The left panel is the extrapolation, with a line for each curve and cohort
  factor: recall stays as measured, while cohort and noise are multiplied by the
  factor. The right panel has the runs at their own epsilon, at the same
  heights.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`, each with at least one noisy point.
      `extrapolated` has epsilons by cohort factor, the same at most
      `figures.MAX_CURVES` factors everywhere.
    false_accept_rate: False accept rate of the recalls.
    caption: Text below the axes: the population of the extrapolation.
    untrained: Recall before training, in [0, 1].

  Examples:
    A cohort 64 times as large, with 64 times the noise, costs epsilon 3.

    >>> run = figures.Measurement((0.7, 0.71), 5e4, extrapolated={64: 3.0})
    >>> utility_plots.plot_extrapolated_by_epsilon(
    ...   "extrapolated.png",
    ...   {"DP-FedEmb": [run]},
    ...   false_accept_rate=1e-3,
    ...   caption="10 million users.",
    ...   untrained=0.1,
    ... )
  """
  noisy = {}
  for name, points in curves.items():
    noisy[name] = _at(points, is_noiseless=False)
  first_points = next(iter(noisy.values()))
  factors = sorted(first_points[0].extrapolated)
  figure, ((left, right),) = figures.create_figure(
    10,
    5.8,
    (1, 2),
    statement=caption,
    letters=125,
    sharey="row",
    width_ratios=(1.8, 1),
  )
  figures.decorate(
    left,
    title="Extrapolated: recall measured, ε accounted",
    x_label="ε",
    y_label=f"recall at FAR {false_accept_rate:g}",
  )
  shown = []
  runs = []
  for index, (name, points) in enumerate(noisy.items()):
    label = f"{name}\n({figures.count_seeds(points)})"
    style = figures.style_of(index, linestyle="")
    runs.append(figures.create_key(label, **style))
    for linestyle, factor in zip(figures.STYLES, factors, strict=False):
      drawn = sorted((p.extrapolated[factor], p.mean, p.stdev) for p in points)
      style = figures.style_of(index, linestyle=linestyle)
      figures.draw_bars(left, drawn, **style)
      shown += [epsilon for epsilon, _, _ in drawn]
  figures.set_logarithmic(left.xaxis, shown, num_ticks=7)
  figures.decorate(right, title="As run: honest ε", x_label="ε", y_label="")
  _draw_measured(right, curves, tick_distance=0.25)
  level = _draw_level((left, right), training_plots.UNTRAINED, untrained)
  figures.set_shares(left.yaxis, from_zero=True)
  cohorts = []
  for factor, linestyle in zip(factors, figures.STYLES, strict=False):
    key = figures.create_key(
      f"{factor:,g} times",
      linestyle=linestyle,
      color=figures.GREY,
      linewidth=1.6,
    )
    cohorts.append(key)
  keys = {"runs": runs, "cohort and noise": cohorts, "recall": [level]}
  figures.set_legend(figure, keys)
  figures.write(figure, path)


def _draw_level(
  panels: Sequence[mpl_axes.Axes],
  name: str,
  level: float,
) -> mpl_lines.Line2D:
  """Draws a utility without an epsilon across all panels; returns its key."""
  for axes in panels:
    line = axes.axhline(level, color=figures.GREY, linestyle=":", label=name)
  return line


def plot_changes(
  path: str | os.PathLike[str],
  baseline: figures.Measurement,
  changes: Mapping[str, figures.Measurement],
  *,
  utility: str,
  caption: str,
) -> None:
  """Writes a row for each change, beside a line for the baseline.

  Changes that are at least as good as the baseline are blue, others orange.

  Args:
    path: PNG file to write, in a directory that exists.
    baseline: The unchanged run: a line, and a band of one standard deviation
      over its seeds on each side.
    changes: Result of each change by the name of the change, from top to
      bottom; at least one.
    utility: Label of the axis; values are shares in [0, 1].
    caption: Text below the axis: properties that all runs share.

  Examples:
    >>> utility_plots.plot_changes(
    ...   "changes.png",
    ...   figures.Measurement((0.40, 0.42), epsilon=2.0),
    ...   {"twice the rounds": figures.Measurement((0.44, 0.45), epsilon=2.9)},
    ...   utility="recall at FAR 0.001",
    ...   caption="Two seeds.",
    ... )
  """
  names = [textwrap.fill(name, _NAME_LETTERS) for name in changes]
  lines = 1 + max(name.count("\n") for name in names)
  figure, ((axes,),) = figures.create_figure(
    8.4,
    1.8 + (0.14 + 0.16 * lines) * len(names),
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
  figures.set_shares(axes.xaxis)
  axes.set_yticks(range(len(names)), names)
  axes.set_ylim(len(changes) - 0.5, -0.5)
  figures.write(figure, path)
