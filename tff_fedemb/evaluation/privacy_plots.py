"""Pictures of what privacy costs: epsilon against users, rounds and utility.

In the manner of figures 3 and 4 of Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy". Each picture says which of
two readings of the sensitivity a curve has: the user-level one, or one clip
norm (Delta = C), which protects a whole virtual client only. Measured utility
next to an epsilon that is accounted for a larger population is marked as the
extrapolation that it is.
"""

from collections.abc import Callable
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
import numpy as np

from tff_fedemb.evaluation import plots

# Curves that colours and line styles tell apart.
MAX_CURVES = 6

_MAX_MARKERS = 8

_EXTRAPOLATED = "Extrapolated: recall measured, ε accounted"
_AS_RUN = "As run: honest ε"


@dataclasses.dataclass(frozen=True)
class EpsilonCurve:
  """Epsilon along an axis at one noise multiplier.

  Attributes:
    noise_multiplier: Positive.
    x: `[n]` numbers of users or of rounds, ascending.
    epsilons: `[n]` user-level epsilons by the accountant that serves always.
    tighter_x: `[m]` those of `x` where a tighter accountant was asked.
    tighter_epsilons: `[m]` user-level epsilons by the tighter accountant.
    virtual_client_epsilons: `[n]` epsilons of the Delta = C reading; empty
      where it is the user-level one.

  Raises:
    ValueError: If a series is not as long as its axis.
  """

  noise_multiplier: float
  x: tuple[float, ...]
  epsilons: tuple[float, ...]
  tighter_x: tuple[float, ...] = ()
  tighter_epsilons: tuple[float, ...] = ()
  virtual_client_epsilons: tuple[float, ...] = ()

  def __post_init__(self):
    for name, x, may_be_empty in (
      ("epsilons", self.x, False),
      ("tighter_epsilons", self.tighter_x, False),
      ("virtual_client_epsilons", self.x, True),
    ):
      values = getattr(self, name)
      if len(values) != len(x) and (values or not may_be_empty):
        raise ValueError(
          f"{name} must be {len(x)} values, one for each x, found "
          f"{len(values)}"
        )


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
    measurements: One for each level of noise.
    noiseless: The same algorithm without noise, if it was run.
  """

  name: str
  measurements: tuple[Measurement, ...]
  noiseless: Measurement | None = None


def plot_epsilon_by_users(
  path: str | os.PathLike[str],
  curves: Sequence[EpsilonCurve],
  *,
  delta: float,
  caption: str,
  accountant: str = "RDP",
  tighter_accountant: str | None = None,
  num_users: int | None = None,
) -> None:
  """Writes epsilon against the number of users, both axes logarithmic.

  Populations that delta is too large for (delta >= 1 / N) are shaded.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `MAX_CURVES`, whose x are numbers of users.
    delta: At which all epsilons hold.
    caption: What all curves have in common, printed below the axes.
    accountant: Name of whose epsilons the lines are.
    tighter_accountant: Name of whose epsilons the markers are.
    num_users: A population to mark.

  Raises:
    ValueError: If there are too many curves, or none.
  """

  def set_axis(axes):
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=" "))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    low, high = min(curves[0].x), max(curves[0].x)
    # A little room for markers; some, too, where there is one population only.
    axes.set_xlim(low / 1.12, high * 1.12)
    if 1 / delta <= high:
      left = max(1 / delta, low / 1.12)
      axes.axvspan(left, high * 1.12, color="#EEEEEE", zorder=0)
      keys.append(
        mpl_lines.Line2D(
          [], [], color="#DDDDDD", linewidth=8, label="δ too large: δ ≥ 1 / N"
        )
      )
    if num_users is not None:
      axes.axvline(num_users, color=plots._GREY, linestyle=":", linewidth=1.2)
      keys.append(
        mpl_lines.Line2D(
          [],
          [],
          color=plots._GREY,
          linestyle=":",
          linewidth=1.2,
          label=f"N = {num_users:,}",
        )
      )

  keys: list[mpl_lines.Line2D] = []
  _plot_epsilon(
    path,
    curves,
    title="Privacy against the number of users",
    x_label="users in the population, N",
    delta=delta,
    caption=caption,
    accountant=accountant,
    tighter_accountant=tighter_accountant,
    set_axis=set_axis,
    keys=keys,
  )


def plot_epsilon_by_rounds(
  path: str | os.PathLike[str],
  curves: Sequence[EpsilonCurve],
  *,
  delta: float,
  caption: str,
  accountant: str = "RDP",
  tighter_accountant: str | None = None,
) -> None:
  """Writes epsilon against the number of rounds, epsilon logarithmic.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `MAX_CURVES`, whose x are numbers of rounds.
    delta: At which all epsilons hold.
    caption: As for `plot_epsilon_by_users`.
    accountant: As for `plot_epsilon_by_users`.
    tighter_accountant: As for `plot_epsilon_by_users`.

  Raises:
    ValueError: If there are too many curves, or none.
  """
  _plot_epsilon(
    path,
    curves,
    title="Privacy against the number of rounds",
    x_label="rounds, T",
    delta=delta,
    caption=caption,
    accountant=accountant,
    tighter_accountant=tighter_accountant,
    set_axis=lambda axes: plots._set_rounds(axes, curves[0].x),
    keys=[],
  )


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
    curves: At most `MAX_CURVES`, of at most so many cohort factors.
    false_accept_rate: At which the recalls were measured.
    caption: What was extrapolated to, printed below the axes.
    untrained: Recall before training, drawn as a level.

  Raises:
    ValueError: If there are too many curves or cohort factors, or none.
  """
  factors = sorted(
    {f for c in curves for m in c.measurements for f in m.extrapolated}
  )
  _check_count("curves", len(curves))
  _check_count("cohort factors", len(factors))
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
  for column, title in enumerate((_EXTRAPOLATED, _AS_RUN)):
    for row, axes in enumerate(panels[:, column]):
      is_extrapolated = column == 0
      for index, curve in enumerate(curves):
        _draw_utility(
          axes,
          curve,
          plots._style(index, num_points=0),
          marker=plots._MARKERS[index],
          factors=factors if is_extrapolated else None,
          is_drop=row == 1,
        )
      if row == 0 and untrained is not None:
        axes.axhline(untrained, color=plots._GREY, linestyle=":")
      plots._decorate(
        axes,
        title=title if row == 0 else "",
        x_label="ε" if row == num_rows - 1 else "",
        y_label="",
      )
      _set_epsilons(axes, axes.xaxis, num_ticks=7 if is_extrapolated else 4)
  rate = f"{false_accept_rate:g}"
  panels[0, 0].set_ylabel(f"recall at FAR {rate}", fontsize=11)
  panels[0, 0].yaxis.set_major_formatter(ticker.PercentFormatter(1.0, 0))
  panels[0, 0].set_ylim(bottom=0)
  if has_noiseless:
    panels[1, 0].set_ylabel(
      "recall below that without\nnoise (percentage points)", fontsize=11
    )
  _set_legend(figure, _utility_keys(curves, factors, untrained))
  plots._set_statement(figure, caption, width=125)
  plots._write(figure, path)


def _check_count(name: str, count: int) -> None:
  if not 1 <= count <= MAX_CURVES:
    raise ValueError(f"{name} must be 1 to {MAX_CURVES}, found {count}")


def _plot_epsilon(
  path: str | os.PathLike[str],
  curves: Sequence[EpsilonCurve],
  *,
  title: str,
  x_label: str,
  delta: float,
  caption: str,
  accountant: str,
  tighter_accountant: str | None,
  set_axis: Callable[[mpl_axes.Axes], None],
  keys: list[mpl_lines.Line2D],
) -> None:
  _check_count("curves", len(curves))
  figure = mpl_figure.Figure(figsize=(8.4, 5.0), layout="constrained")
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  axes = figure.subplots()
  axes.set_yscale("log")
  for index, curve in enumerate(curves):
    color = plots._COLORS[index]
    marker = plots._MARKERS[index]
    axes.plot(curve.x, _shown(curve.epsilons), color=color, linewidth=2)
    if curve.virtual_client_epsilons:
      axes.plot(
        curve.x,
        _shown(curve.virtual_client_epsilons),
        color=color,
        linewidth=1,
        linestyle="--",
        # With twice the noise and twice the sensitivity, curves coincide.
        zorder=3,
      )
    if curve.tighter_x:
      axes.plot(
        curve.tighter_x,
        _shown(curve.tighter_epsilons),
        **_tighter_style(color, marker),
        markevery=math.ceil(len(curve.tighter_x) / _MAX_MARKERS),
      )
  plots._decorate(
    axes,
    title=title,
    x_label=x_label,
    y_label=f"ε (δ = {delta:.2g})".replace("e-0", "e-"),
  )
  set_axis(axes)
  _set_epsilons(axes, axes.yaxis, num_ticks=9)
  if not any(np.any(np.isfinite(_shown(c.epsilons))) for c in curves):
    plots._say(axes, "no finite epsilon")
  _set_legend(
    figure,
    [
      (
        "noise multiplier",
        [
          mpl_lines.Line2D(
            [],
            [],
            color=plots._COLORS[index],
            marker=plots._MARKERS[index] if curve.tighter_x else "",
            markerfacecolor="white",
            markersize=5,
            linewidth=2,
            label=f"z = {curve.noise_multiplier:g}",
          )
          for index, curve in enumerate(curves)
        ],
      ),
      (
        "how to read it",
        [
          *_reading_keys(curves, accountant, tighter_accountant),
          *keys,
        ],
      ),
    ],
  )
  plots._set_statement(figure, caption, width=108)
  plots._write(figure, path)


def _tighter_style(color: str, marker: str) -> dict[str, object]:
  return {
    "color": color,
    "linewidth": 1,
    "linestyle": ":",
    "marker": marker,
    "markersize": 5,
    "markerfacecolor": "white",
  }


def _reading_keys(
  curves: Sequence[EpsilonCurve],
  accountant: str,
  tighter_accountant: str | None,
) -> list[mpl_lines.Line2D]:
  grey = plots._GREY
  keys = [
    mpl_lines.Line2D(
      [], [], color=grey, linewidth=2, label=f"user-level, {accountant}"
    )
  ]
  if any(curve.tighter_x for curve in curves):
    keys.append(
      mpl_lines.Line2D(
        [],
        [],
        label=f"user-level, {tighter_accountant}",
        **_tighter_style(grey, "o"),
      )
    )
  if any(curve.virtual_client_epsilons for curve in curves):
    keys.append(
      mpl_lines.Line2D(
        [],
        [],
        color=grey,
        linewidth=1,
        linestyle="--",
        label=f"Δ = C, {accountant}\n(not user-level)",
      )
    )
  return keys


def _set_legend(
  figure: mpl_figure.Figure,
  groups: Sequence[tuple[str, Sequence[mpl_lines.Line2D]]],
) -> None:
  """Draws one legend, right of the axes; each group below its heading."""
  handles = []
  for heading, keys in groups:
    if handles:
      handles.append(mpl_lines.Line2D([], [], linestyle="", label=" "))
    handles.append(mpl_lines.Line2D([], [], linestyle="", label=heading))
    handles.extend(keys)
  legend = figure.legend(
    handles=handles,
    loc="outside right upper",
    fontsize=9,
    frameon=False,
    handlelength=2.6,
  )
  headings = {heading for heading, _ in groups}
  for text in legend.get_texts():
    if text.get_text() in headings:
      text.set_fontweight("bold")


def _shown(epsilons: Sequence[float]) -> np.ndarray:
  # Neither 0 nor infinity has a place on a logarithmic axis.
  values = np.asarray(epsilons, float)
  return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _set_epsilons(axes: mpl_axes.Axes, axis, *, num_ticks: int) -> None:
  """Makes one axis a logarithmic one of epsilons, with round numbers."""
  is_x = axis is axes.xaxis
  (axes.set_xscale if is_x else axes.set_yscale)("log")
  low, high = axes.dataLim.intervalx if is_x else axes.dataLim.intervaly
  if not 0 < low <= high < math.inf:
    low, high = 0.1, 10.0
  # Around a single epsilon, too, there are two ticks.
  margin = max((high / low) ** 0.06, 2.5 if high == low else 1.15)
  (axes.set_xlim if is_x else axes.set_ylim)(low / margin, high * margin)
  # Less than two decades would show one power of ten, or none.
  subs = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
  axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=num_ticks))
  axis.set_minor_locator(ticker.NullLocator())
  axis.set_major_formatter(ticker.FuncFormatter(_format_epsilon))


def _format_epsilon(epsilon: float, _=None) -> str:
  if 1e-3 <= epsilon < 1e5:
    return f"{epsilon:g}"
  return f"{epsilon:.0e}".replace("e+0", "e").replace("e-0", "e-")


def _draw_utility(
  axes: mpl_axes.Axes,
  curve: UtilityCurve,
  style: Mapping[str, object],
  *,
  marker: str,
  factors: Sequence[float] | None,
  is_drop: bool,
) -> None:
  """Draws one curve in one panel: a line for each factor, or as it was run."""
  noiseless = curve.noiseless
  if noiseless is None and is_drop:
    return
  if noiseless is not None and not is_drop:
    axes.axhline(
      noiseless.mean, color=style["color"], linestyle="-", linewidth=0.8
    )
  for index, factor in enumerate([None] if factors is None else factors):
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
        color=style["color"],
        linestyle=plots._STYLES[index] if factors is not None else "",
        linewidth=1.6,
        marker=marker,
        markersize=6,
      )


def _utility_keys(
  curves: Sequence[UtilityCurve],
  factors: Sequence[float],
  untrained: float | None,
) -> list[tuple[str, list[mpl_lines.Line2D]]]:
  grey = plots._GREY
  levels = []
  if any(curve.noiseless for curve in curves):
    levels.append(
      mpl_lines.Line2D([], [], color=grey, linewidth=0.8, label="without noise")
    )
  if untrained is not None:
    levels.append(
      mpl_lines.Line2D(
        [], [], color=grey, linestyle=":", label=plots.UNTRAINED
      )
    )
  groups = [
    (
      "runs",
      [
        mpl_lines.Line2D(
          [],
          [],
          color=plots._COLORS[index],
          marker=plots._MARKERS[index],
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
        mpl_lines.Line2D(
          [],
          [],
          color=grey,
          linestyle=plots._STYLES[index],
          linewidth=1.6,
          label=f"× {factor:,g}",
        )
        for index, factor in enumerate(factors)
      ],
    ),
  ]
  return groups + ([("levels", levels)] if levels else [])


def _seeds(curve: UtilityCurve) -> str:
  counts = sorted({len(m.recalls) for m in curve.measurements})
  if counts == [1]:
    return "1 seed"
  return f"{'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds"
