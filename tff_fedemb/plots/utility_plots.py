"""Pictures of measured utility against the epsilon of a larger population.

In the manner of figure 4 of Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy". The utility is measured, the
epsilon accounted for more users than took part: an extrapolation, marked as
one, beside what the runs themselves cost.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import os
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import ticker

from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots

_EXTRAPOLATED = "Extrapolated: recall measured, ε accounted"
_AS_RUN = "As run: honest ε"


@dataclasses.dataclass(frozen=True)
class UtilityMeasurement(figures.Measurement):
  """Recalls of runs, at what they and larger ones cost.

  Attributes:
    extrapolated: Epsilon of the larger population, by cohort factor.
  """

  extrapolated: Mapping[float, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class UtilityCurve:
  """Runs of one algorithm and mechanism at several levels of noise.

  Attributes:
    name: For the legend.
    algorithm: The algorithm's name.
    measurements: One for each level of noise.
    noiseless: The same algorithm without noise, if it was run.
  """

  name: str
  algorithm: str
  measurements: tuple[UtilityMeasurement, ...]
  noiseless: figures.Measurement | None = None


def plot_utility_by_epsilon(
  path: str | os.PathLike[str],
  curves: Sequence[UtilityCurve],
  *,
  false_accept_rate: float,
  caption: str,
  untrained: float | None = None,
) -> None:
  """Writes measured recall against the epsilon of a larger population.

  On the left the extrapolation, a line for each curve and cohort factor; on the
  right, at the same heights, the runs at the epsilon that they themselves cost.
  If a curve has a run without noise, a second row shows by how much the recall
  is below that one. Bars are standard deviations over seeds.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`, of no more cohort factors.
    false_accept_rate: At which the recalls were measured.
    caption: What was extrapolated to, printed below the axes.
    untrained: Recall before training, drawn as a level.

  Raises:
    errors.FieldError: If there are too many curves or cohort factors, or none.
  """
  measurements = [m for curve in curves for m in curve.measurements]
  factors = sorted({f for m in measurements for f in m.extrapolated})
  figures.check_count("curves", len(curves))
  figures.check_count("cohort factors", len(factors))
  has_noiseless = any(curve.noiseless for curve in curves)
  num_rows = 2 if has_noiseless else 1
  figure, panels = figures.create_figure(
    10,
    1.8 + 3.4 * num_rows,
    (num_rows, 2),
    sharex="col",
    sharey="row",
    width_ratios=(2.2, 1),
  )
  levels = _levels(curves, untrained)
  extrapolated = [e for m in measurements for e in m.extrapolated.values()]
  as_run = [m.epsilon for m in measurements]
  columns: tuple[tuple[str, Sequence[float | None], list[float], int], ...] = (
    (_EXTRAPOLATED, factors, extrapolated, 7),
    (_AS_RUN, [None], as_run, 4),
  )
  for column, (title, shown_factors, epsilons, num_ticks) in enumerate(columns):
    top, bottom = panels[0, column], panels[-1, column]
    for axes in panels[:, column]:
      for index, curve in enumerate(curves):
        _draw_utility(
          axes, curve, index, factors=shown_factors, is_drop=axes is not top
        )
      figures.decorate(
        axes,
        title=title if axes is top else "",
        x_label="ε" if axes is bottom else "",
        y_label="",
      )
      figures.set_epsilons(axes, axes.xaxis, epsilons, num_ticks=num_ticks)
    for recall, style in levels:
      top.axhline(recall, **style)
  panels[0, 0].set_ylabel(f"recall at FAR {false_accept_rate:g}", fontsize=11)
  panels[0, 0].yaxis.set_major_formatter(ticker.PercentFormatter(1.0, 0))
  panels[0, 0].set_ylim(bottom=0)
  if has_noiseless:
    panels[1, 0].set_ylabel(
      "recall below that without\nnoise (percentage points)", fontsize=11
    )
  keys = {
    "runs": [
      figures.create_key(
        f"{curve.name}\n({figures.count_seeds(curve.measurements)})",
        linestyle="",
        **_marker(index),
      )
      for index, curve in enumerate(curves)
    ],
    "cohort and noise": [
      figures.create_key(
        f"{factor:,g} times",
        color=figures.GREY,
        linestyle=figures.STYLES[index],
        linewidth=1.6,
      )
      for index, factor in enumerate(factors)
    ],
  }
  if levels:
    keys["recall"] = [figures.create_key(**style) for _, style in levels]
  figures.set_legend(figure, keys)
  figures.set_statement(figure, caption, width=125)
  figures.write(figure, path)


def _marker(index: int) -> dict[str, Any]:
  return {
    "color": figures.COLORS[index],
    "marker": figures.MARKERS[index],
    "markersize": 6,
  }


def _draw_utility(
  axes: mpl_axes.Axes,
  curve: UtilityCurve,
  index: int,
  *,
  factors: Sequence[float | None],
  is_drop: bool,
) -> None:
  """Draws one curve in one panel: a line for each factor; None is as run."""
  noiseless = curve.noiseless
  if is_drop and noiseless is None:
    return
  for factor_index, factor in enumerate(factors):
    points = []
    for measured in curve.measurements:
      epsilon = measured.epsilon
      if factor is not None:
        epsilon = measured.extrapolated.get(factor, math.inf)
      height, bar = measured.mean, measured.stdev
      if is_drop:
        # The two are independent, so their variances add up.
        height = 100 * (noiseless.mean - measured.mean)
        bar = 100 * math.hypot(noiseless.stdev, measured.stdev)
      if 0 < epsilon < math.inf:
        points.append((epsilon, height, bar))
    linestyle = "" if factor is None else figures.STYLES[factor_index]
    figures.draw_bars(
      axes, sorted(points), linestyle=linestyle, **_marker(index)
    )


def _levels(
  curves: Sequence[UtilityCurve], untrained: float | None
) -> list[tuple[float, dict[str, Any]]]:
  """Recalls without an epsilon, each with the style of its line."""
  noiseless = {
    curve.algorithm: curve.noiseless for curve in curves if curve.noiseless
  }
  black = {"color": "black", "linewidth": 0.9}
  levels: list[tuple[float, dict[str, Any]]] = []
  for index, (algorithm, measured) in enumerate(noiseless.items()):
    label = f"{algorithm},\nwithout noise"
    style = {"linestyle": figures.STYLES[index], "label": label}
    levels.append((measured.mean, black | style))
  if untrained is not None:
    grey = {"color": figures.GREY, "linestyle": ":", "linewidth": 1.5}
    levels.append((untrained, grey | {"label": training_plots.UNTRAINED}))
  return levels
