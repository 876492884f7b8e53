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
import statistics

from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
from matplotlib import lines as mpl_lines
from matplotlib import ticker

from tff_fedemb.plots import figures
from tff_fedemb.plots import privacy_plots
from tff_fedemb.plots import training_plots as plots

_EXTRAPOLATED = "Extrapolated: recall measured, ε accounted"
_AS_RUN = "As run: honest ε"


@dataclasses.dataclass(frozen=True)
class Measurement:
  """Runs that differ in nothing but their seed.

  Attributes:
    recalls: `[n]` recalls in [0, 1], one for each seed, n at least 1.
    epsilon: What the runs themselves cost; infinity without noise.
    extrapolated: Epsilon of the larger population, by cohort factor.

  Raises:
    ValueError: If there is no recall.
  """

  recalls: tuple[float, ...]
  epsilon: float
  extrapolated: Mapping[float, float] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    if not self.recalls:
      raise ValueError("recalls must be of at least one seed, found none")

  @property
  def mean(self) -> float:
    """Mean recall."""
    return statistics.mean(self.recalls)

  @property
  def stdev(self) -> float:
    """Standard deviation of the recall over seeds; 0 for a single one."""
    return statistics.stdev(self.recalls) if len(self.recalls) > 1 else 0.0


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
  measurements: tuple[Measurement, ...]
  noiseless: Measurement | None = None


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
    curves: At most `privacy_plots.MAX_CURVES`, of no more cohort factors.
    false_accept_rate: At which the recalls were measured.
    caption: What was extrapolated to, printed below the axes.
    untrained: Recall before training, drawn as a level.

  Raises:
    ValueError: If there are too many curves or cohort factors, or none.
  """
  factors = sorted(
    {f for c in curves for m in c.measurements for f in m.extrapolated}
  )
  privacy_plots.check_count("curves", len(curves))
  privacy_plots.check_count("cohort factors", len(factors))
  has_noiseless = any(curve.noiseless for curve in curves)
  num_rows = 2 if has_noiseless else 1
  figure = mpl_figure.Figure(
    figsize=(10, 1.8 + 3.4 * num_rows), layout="constrained"
  )
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  panels = figure.subplots(
    num_rows,
    2,
    squeeze=False,
    sharex="col",
    sharey="row",
    width_ratios=(2.2, 1),
  )
  measurements = [m for curve in curves for m in curve.measurements]
  columns = (
    (
      _EXTRAPOLATED,
      factors,
      [e for m in measurements for e in m.extrapolated.values()],
      7,
    ),
    (_AS_RUN, [None], [m.epsilon for m in measurements], 4),
  )
  for column, (title, shown_factors, epsilons, num_ticks) in enumerate(columns):
    for row, axes in enumerate(panels[:, column]):
      for index, curve in enumerate(curves):
        _draw_utility(
          axes, curve, index, factors=shown_factors, is_drop=row == 1
        )
      if row == 0:
        for level, style in _levels(curves, untrained):
          axes.axhline(level.mean, **style)
      figures.decorate(
        axes,
        title=title if row == 0 else "",
        x_label="ε" if row == num_rows - 1 else "",
        y_label="",
      )
      privacy_plots.set_epsilons(
        axes, axes.xaxis, epsilons, num_ticks=num_ticks
      )
  rate = f"{false_accept_rate:g}"
  panels[0, 0].set_ylabel(f"recall at FAR {rate}", fontsize=11)
  panels[0, 0].yaxis.set_major_formatter(ticker.PercentFormatter(1.0, 0))
  panels[0, 0].set_ylim(bottom=0)
  if has_noiseless:
    panels[1, 0].set_ylabel(
      "recall below that without\nnoise (percentage points)", fontsize=11
    )
  privacy_plots.set_legend(figure, _utility_keys(curves, factors, untrained))
  figures.set_statement(figure, caption, width=125)
  figures.write(figure, path)


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
      if is_drop:
        # The two are independent, so their variances add up.
        height = 100 * (noiseless.mean - measured.mean)
        bar = 100 * math.hypot(noiseless.stdev, measured.stdev)
      else:
        height, bar = measured.mean, measured.stdev
      if 0 < epsilon < math.inf:
        points.append((epsilon, height, bar))
    if points:
      epsilons, heights, bars = zip(*sorted(points), strict=True)
      axes.errorbar(
        epsilons,
        heights,
        yerr=bars if any(bars) else None,
        capsize=3,
        color=figures.COLORS[index],
        linestyle="" if factor is None else figures.STYLES[factor_index],
        linewidth=1.6,
        marker=figures.MARKERS[index],
        markersize=6,
      )


def _levels(
  curves: Sequence[UtilityCurve], untrained: float | None
) -> list[tuple[Measurement, dict[str, object]]]:
  """Recalls without an epsilon, each with the style of its line."""
  noiseless = {
    curve.algorithm: curve.noiseless for curve in curves if curve.noiseless
  }
  levels = []
  for index, (algorithm, measured) in enumerate(noiseless.items()):
    style = {
      "color": "black",
      "linestyle": figures.STYLES[index],
      "linewidth": 0.9,
      "label": f"{algorithm},\nwithout noise",
    }
    levels.append((measured, style))
  if untrained is not None:
    style = {
      "color": figures.GREY,
      "linestyle": ":",
      "linewidth": 1.5,
      "label": plots.UNTRAINED,
    }
    levels.append((Measurement((untrained,), math.inf), style))
  return levels


def _utility_keys(
  curves: Sequence[UtilityCurve],
  factors: Sequence[float],
  untrained: float | None,
) -> list[tuple[str, list[mpl_lines.Line2D]]]:
  groups = [
    (
      "runs",
      [
        privacy_plots.create_key(
          color=figures.COLORS[index],
          marker=figures.MARKERS[index],
          markersize=6,
          linestyle="",
          label=f"{curve.name}\n({_seeds(curve)})",
        )
        for index, curve in enumerate(curves)
      ],
    ),
    (
      "cohort and noise",
      [
        privacy_plots.create_key(
          color=figures.GREY,
          linestyle=figures.STYLES[index],
          linewidth=1.6,
          label=f"{factor:,g} times",
        )
        for index, factor in enumerate(factors)
      ],
    ),
  ]
  levels = _levels(curves, untrained)
  if levels:
    keys = [privacy_plots.create_key(**style) for _, style in levels]
    groups.append(("recall", keys))
  return groups


def _seeds(curve: UtilityCurve) -> str:
  counts = sorted({len(m.recalls) for m in curve.measurements})
  if counts == [1]:
    return "1 seed"
  return f"{'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds"
