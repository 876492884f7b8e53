"""Colours, axes, legends, captions and files of all pictures.

Figures are drawn without pyplot, so that importing this module changes neither
the backend nor the settings of a program that draws its own plots. Colours are
those of Okabe and Ito (2008), which colour-blind people can tell apart; lines
differ in style and marker as well.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import io
import math
import os
import statistics
import textwrap
from typing import Any

import matplotlib
from matplotlib import axes as mpl_axes
from matplotlib import axis as mpl_axis
from matplotlib import figure as mpl_figure
from matplotlib import layout_engine
from matplotlib import lines as mpl_lines
from matplotlib import ticker
from matplotlib import typing as mpl_typing
from matplotlib.backends import backend_agg
import numpy as np

from tff_fedemb import errors

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES: tuple[mpl_typing.LineStyleType, ...] = (
  "-",
  "--",
  "-.",
  (0, (5, 1, 1, 1, 1, 1)),
  ":",
  (0, (8, 2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#666666"
# Label of an axis of numbers of users.
USERS = "users in the population, N"
# Largest number of curves that colours and line styles tell apart.
MAX_CURVES = 6
_FEW_POINTS = 25
# Labels with fewer letters fit beside each other in two columns.
_COLUMN_LETTERS = 28

_Axis = mpl_axis.XAxis | mpl_axis.YAxis


@dataclasses.dataclass(frozen=True)
class Measurement:
  """Measurements of runs that differ in nothing but their seed.

  Attributes:
    values: `[n]` accuracies or recalls in [0, 1], one for each seed, n at
      least 1.
    epsilon: Epsilon of each run; infinity without noise.
    extrapolated: Epsilon by cohort factor, or by number of users; the function
      that draws it says which of the two.
    num_users: Number of users of the runs; 0 if it is not shown.
  """

  values: tuple[float, ...]
  epsilon: float
  extrapolated: Mapping[float, float] = dataclasses.field(default_factory=dict)
  num_users: int = 0

  @property
  def mean(self) -> float:
    """Mean over seeds, in [0, 1]."""
    return statistics.fmean(self.values)

  @property
  def stdev(self) -> float:
    """Standard deviation (n - 1) over seeds; 0 for a single one."""
    return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def count_seeds(
  measurements: Iterable[Measurement],
  repetition: str = "seed",
) -> str:
  """Returns how many values there are, for example '1 seed' or '3-5 seeds'.

  Args:
    measurements: At least one.
    repetition: Noun for a value; its plural ends in s.

  Returns:
    The smallest and the largest number, once if they are equal, and the noun.
  """
  counts = {len(measured.values) for measured in measurements}
  least, most = min(counts), max(counts)
  number = f"{least}" if least == most else f"{least}-{most}"
  plural = "" if most == 1 else "s"
  return f"{number} {repetition}{plural}"


def check_count(name: str, count: int) -> None:
  """Checks that curves can be told apart by their colours and styles.

  Args:
    name: Name in the error, of what is drawn.
    count: Number of curves.

  Raises:
    errors.FieldError: If it is not in [1, `MAX_CURVES`].
  """
  if not 1 <= count <= MAX_CURVES:
    raise errors.FieldError(name, f"be 1 to {MAX_CURVES}", count)


def style_of(index: int, num_points: int = 1, **changes: Any) -> dict[str, Any]:
  """Returns the style of the curve of an index.

  Args:
    index: Index of the curve, from 0; styles repeat after `MAX_CURVES`.
    num_points: Number of its points. Above 25, markers would overlap and are
      left out.
    **changes: Properties that replace those of the style.

  Returns:
    Keyword arguments of `Axes.plot`: colour, line style and marker.
  """
  index %= MAX_CURVES
  style = {
    "color": COLORS[index],
    "linestyle": STYLES[index],
    "marker": MARKERS[index] if num_points <= _FEW_POINTS else "",
    "markersize": 5,
  }
  return style | changes


def create_figure(
  width: float,
  height: float,
  shape: tuple[int, int] = (1, 1),
  *,
  statement: str = "",
  letters: int = 88,
  **options: Any,
) -> tuple[mpl_figure.Figure, np.ndarray]:
  """Creates a figure with a grid of panels.

  Args:
    width: Width of the figure in inches.
    height: Height of the figure in inches.
    shape: Rows and columns of panels.
    statement: Text below the panels, which is wrapped; dollar signs stay as
      they are.
    letters: Maximum number of letters in a line of this text.
    **options: Options of `Figure.subplots`.

  Returns:
    The figure, and its axes as an array `[rows, columns]`.
  """
  layout = layout_engine.ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
  figure = mpl_figure.Figure(figsize=(width, height), layout=layout)
  # Dollar signs would start a formula.
  text = textwrap.fill(statement, letters).replace("$", r"\$")
  if text:
    figure.supxlabel(text, fontsize=9, color=GREY)
  # `decorate` needs a canvas to measure letters.
  backend_agg.FigureCanvasAgg(figure)
  rows, columns = shape
  return figure, figure.subplots(rows, columns, squeeze=False, **options)


def write(figure: mpl_figure.Figure, path: str | os.PathLike[str]) -> None:
  """Writes a figure as PNG of 150 dots per inch; equal data give equal bytes.

  Args:
    figure: The figure.
    path: PNG file to write, in a directory that exists.
  """
  # Without the version of Matplotlib, the file depends on the data alone.
  figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def to_svg(figure: mpl_figure.Figure) -> str:
  """Returns a figure as SVG, with letters as shapes, so it needs no font.

  Args:
    figure: The figure.

  Returns:
    The text of the SVG file, without date; identifiers do not vary by run.
  """
  buffer = io.StringIO()
  # A fixed salt keeps identifiers the same from run to run.
  with matplotlib.rc_context({"svg.hashsalt": "tff_fedemb"}):
    figure.savefig(
      buffer, format="svg", metadata={"Date": None, "Creator": None}
    )
  return buffer.getvalue()


def decorate(
  axes: mpl_axes.Axes,
  *,
  title: str,
  x_label: str,
  y_label: str,
  keys: Sequence[Any] = (),
  note: str | None = None,
) -> None:
  """Gives a panel its title, its labels, a grid and a legend.

  The legend is between title and panel, where it hides no line. Its height is
  measured, so call this once all keys are known.

  Args:
    axes: The panel, of a figure of `create_figure`.
    title: Its title.
    x_label: Label of the horizontal axis.
    y_label: Label of the vertical axis.
    keys: Artists with labels, in the order of the legend.
    note: Text above the legend; None for none.
  """
  pad = 6.0
  if keys or note:
    is_narrow = all(len(key.get_label()) < _COLUMN_LETTERS for key in keys)
    legend = axes.legend(
      handles=keys,
      title=note,
      title_fontsize=9,
      fontsize=9,
      ncols=2 if is_narrow else 1,
      alignment="left",
      frameon=False,
      loc="lower left",
      bbox_to_anchor=(0, 1),
      borderaxespad=0.0,
    )
    pixels = legend.get_window_extent().height
    pad += 72 * pixels / axes.figure.dpi
  axes.set_title(title, fontsize=12, loc="left", fontweight="bold", pad=pad)
  axes.set_xlabel(x_label, fontsize=11)
  axes.set_ylabel(y_label, fontsize=11)
  axes.tick_params(labelsize=10)
  axes.grid(True, color="#DDDDDD", linewidth=0.7)
  axes.set_axisbelow(True)
  axes.spines[["top", "right"]].set_visible(False)


def set_rounds(axes: mpl_axes.Axes, *, whole: bool = True) -> None:
  """Makes the horizontal axis one of rounds, or of time.

  Args:
    axes: The panel, in which everything is drawn.
    whole: Whether ticks are at whole numbers only. If not, the axis is one of
      time and begins at 0.
  """
  locator = ticker.MaxNLocator(
    nbins=7, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1
  )
  axes.xaxis.set_major_locator(locator)
  axes.margins(x=0.03)
  if not whole:
    axes.set_xlim(left=-0.03 * axes.get_xlim()[1])


def set_shares(axis: _Axis, *, from_zero: bool = False) -> None:
  """Makes an axis one of shares in percent, with room for whole points.

  The limits fit the data and stay within 0 and 1, apart from a margin of 5 %.

  Args:
    axis: The `xaxis` or `yaxis` of a panel in which everything is drawn.
    from_zero: Whether to show 0 in any case.
  """
  low, high = axis.get_view_interval()
  # Bars may end below 0 or above 1. Matplotlib's margins are 5 %.
  margin = 0.05 * (high - low) / 1.1
  low = 0.0 if from_zero else max(low + margin, 0.0)
  high = min(high - margin, 1.0)
  margin = 0.05 * (high - low)
  axis.axes.set(**{f"{axis.axis_name}lim": (low - margin, high + margin)})
  set_percent(axis)


def set_percent(axis: mpl_axis.Axis) -> None:
  """Labels the shares of an axis in percent: 0.5 becomes 50%.

  Args:
    axis: The axis; a label has all digits of its share.
  """
  axis.set_major_formatter(lambda share, _: f"{100 * share:.10g}%")


def set_rates(axes: mpl_axes.Axes) -> None:
  """Makes a panel one of shares in percent over a logarithmic axis.

  Args:
    axes: The panel; the vertical axis shows all of [0, 1].
  """
  axes.set(xscale="log", ylim=(-0.03, 1.03))
  set_percent(axes.yaxis)


def epsilon_label(delta: float | None) -> str:
  """Returns the label of an axis of epsilons at a delta.

  Args:
    delta: Delta of all epsilons; None to leave it out.

  Returns:
    For example "ε (δ = 1e-7)".
  """
  if delta is None:
    return "ε"
  return f"ε (δ = {delta:.2g})".replace("e-0", "e-")


def only_drawable(epsilons: Sequence[float] | np.ndarray) -> np.ndarray:
  """Returns epsilons with NaN for those that a logarithmic axis cannot show.

  Args:
    epsilons: `[n]`; 0, negative, infinite and NaN values are replaced.

  Returns:
    float64 `[n]`; Matplotlib leaves a gap at each NaN.
  """
  values = np.asarray(epsilons, float)
  return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def set_logarithmic(
  axis: _Axis,
  values: Iterable[float],
  *,
  num_ticks: int = 9,
  margin: float | None = None,
  formatter: ticker.Formatter | str | None = None,
) -> None:
  """Makes an axis a logarithmic one with round numbers.

  Args:
    axis: The `xaxis` or `yaxis` of a panel.
    values: Values to be shown; 0 and infinity are left out. Without any, the
      axis is from 0.1 to 10, before the margin.
    num_ticks: Maximum number of ticks.
    margin: Factor between the outermost values and the ends; None for a small
      one that grows with the range.
    formatter: Formatter of the numbers; None for that of epsilons.
  """
  shown = [value for value in values if 0 < value < math.inf]
  low, high = (min(shown), max(shown)) if shown else (0.1, 10.0)
  if margin is None:
    # The larger factor leaves room for two ticks around a single value.
    margin = max((high / low) ** 0.06, 2.5 if high == low else 1.15)
  low = low / margin
  high = high * margin
  name = axis.axis_name
  axis.axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
  axis.set_major_locator(_choose_locator(low, high, num_ticks))
  axis.set_minor_locator(ticker.NullLocator())
  axis.set_major_formatter(formatter or _format_epsilon)


def set_users(axes: mpl_axes.Axes, users: Iterable[float]) -> None:
  """Makes the horizontal axis a logarithmic one of numbers of users.

  Args:
    axes: The panel.
    users: The numbers to be shown, positive; ticks read such as "10 M".
  """
  set_logarithmic(
    axes.xaxis, users, margin=1.12, formatter=ticker.EngFormatter(sep=" ")
  )


def _choose_locator(low: float, high: float, num_ticks: int) -> ticker.Locator:
  """The most round numbers for which an axis has room.

  Tries 1, 2, 5 per decade, then 1, 3, then 1; falls back to evenly spaced ticks
  if the axis has fewer than three of these.
  """
  for subs in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
    locator = ticker.LogLocator(subs=subs, numticks=num_ticks)
    ticks = np.asarray(locator.tick_values(low, high))
    if 3 <= np.sum((low <= ticks) & (ticks <= high)) <= num_ticks:
      return locator
  return ticker.MaxNLocator(num_ticks - 1)


def _format_epsilon(epsilon: float, _=None) -> str:
  """Formats an epsilon in three digits, as a power of ten if large or tiny."""
  if 1e-3 <= epsilon < 1e5:
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:g}"
  # Three digits, as above: neighbours on a short axis differ.
  mantissa, exponent = f"{epsilon:.2e}".split("e")
  return f"{float(mantissa):g}e{int(exponent)}"


def draw_bars(
  axes: mpl_axes.Axes,
  points: Sequence[tuple[float, float, float]],
  **style: Any,
) -> None:
  """Draws points with error bars, unless none deviates.

  Args:
    axes: The panel.
    points: x, mean and standard deviation of each; nothing is drawn without
      any.
    **style: Keyword arguments of `Axes.errorbar`, such as from `style_of`.
  """
  if not points:
    return
  x, means, deviations = zip(*points, strict=True)
  bars = deviations if any(deviations) else None
  axes.errorbar(x, means, yerr=bars, capsize=3, linewidth=1.6, **style)


def create_key(label: str, **style: Any) -> mpl_lines.Line2D:
  """Returns the legend entry for lines of a style, in no panel.

  Args:
    label: Text of the entry.
    **style: Properties of `Line2D`.
  """
  return mpl_lines.Line2D([], [], label=label, **style)


def set_legend(
  figure: mpl_figure.Figure,
  groups: Mapping[str, Sequence[Any]],
) -> None:
  """Draws a legend to the right of the axes, with headings in bold.

  Args:
    figure: The figure.
    groups: Keys by their heading; groups without keys are left out.
  """
  handles = []
  for heading, keys in groups.items():
    if keys:
      if handles:
        handles.append(create_key(" ", linestyle=""))
      handles.append(create_key(heading, linestyle=""))
      handles += keys
  legend = figure.legend(
    handles=handles,
    loc="outside right upper",
    fontsize=9,
    frameon=False,
    handlelength=2.6,
    labelspacing=0.4,
  )
  for text in legend.get_texts():
    if text.get_text() in groups:
      text.set_fontweight("bold")
