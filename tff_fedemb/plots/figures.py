"""What all pictures have in common: colours, axes, legends, captions, files.

Figures are drawn without pyplot, so that importing this module changes neither
the backend nor the settings of a program that plots for itself. Colours are
those of Okabe and Ito (2008), which the colour-blind can tell apart; lines
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
from matplotlib import lines as mpl_lines
from matplotlib import ticker
from matplotlib.backends import backend_agg
import numpy as np

from tff_fedemb import errors

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), ":", (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#666666"
# Curves that colours and line styles tell apart.
MAX_CURVES = 6


@dataclasses.dataclass(frozen=True)
class Measurement:
  """What runs have measured that differ in nothing but their seed.

  Attributes:
    values: `[n]` accuracies or recalls in [0, 1], one for each seed, n at
      least 1.
    epsilon: What each of them cost; infinity without noise.
    extrapolated: What they would cost in a larger population, by cohort factor.
  """

  values: tuple[float, ...]
  epsilon: float
  extrapolated: Mapping[float, float] = dataclasses.field(default_factory=dict)

  @property
  def mean(self) -> float:
    """Mean over seeds."""
    return statistics.fmean(self.values)

  @property
  def stdev(self) -> float:
    """Standard deviation over seeds; 0 for a single one."""
    return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def count_seeds(
  measurements: Iterable[Measurement], repetition: str = "seed"
) -> str:
  """Returns how many values there are, for example '1 seed' or '3-5 seeds'."""
  counts = sorted({len(measured.values) for measured in measurements})
  if counts == [1]:
    return f"1 {repetition}"
  ends = dict.fromkeys((counts[0], counts[-1]))
  return f"{'-'.join(map(str, ends))} {repetition}s"


def check_count(name: str, count: int) -> None:
  """Raises `errors.FieldError` if lines are too many to tell apart, or none."""
  if not 1 <= count <= MAX_CURVES:
    raise errors.FieldError(name, f"be 1 to {MAX_CURVES}", count)


def style_of(index: int, **changes: Any) -> dict[str, Any]:
  """Returns what tells the curve of an index apart, with some changes."""
  index %= MAX_CURVES
  return {
    "color": COLORS[index],
    "linestyle": STYLES[index],
    "marker": MARKERS[index],
    "markersize": 5,
  } | changes


def create_figure(
  width: float,
  height: float,
  shape: tuple[int, int] = (1, 1),
  *,
  statement: str = "",
  letters: int = 88,
  padding: Mapping[str, float] | None = None,
  **options: Any,
) -> tuple[mpl_figure.Figure, np.ndarray]:
  """Returns a figure, its size in inches, and an array of its panels.

  Args:
    width: Of the figure.
    height: Of the figure.
    shape: Rows and columns of panels.
    statement: What is printed below the panels.
    letters: Of a line of it, at most.
    padding: Around panels, where it is not 0.08 inches.
    **options: Of `Figure.subplots`.
  """
  figure = mpl_figure.Figure(figsize=(width, height), layout="constrained")
  padding = {"w_pad": 0.08, "h_pad": 0.08} | dict(padding or {})
  figure.get_layout_engine().set(**padding)
  # Dollar signs would start a formula.
  text = textwrap.fill(statement, letters).replace("$", r"\$")
  if text:
    figure.supxlabel(text, fontsize=9, color=GREY)
  return figure, figure.subplots(*shape, squeeze=False, **options)


def write(figure: mpl_figure.Figure, path: str | os.PathLike[str]) -> None:
  """Writes a figure as PNG."""
  backend_agg.FigureCanvasAgg(figure)
  # Without the version in it the file depends on the data only.
  figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def to_svg(figure: mpl_figure.Figure) -> str:
  """Returns a figure as SVG, letters as shapes: it needs no font."""
  buffer = io.StringIO()
  # Without a salt of its own each picture would have other identifiers.
  with matplotlib.rc_context({"svg.hashsalt": "tff_fedemb"}):
    figure.savefig(
      buffer, format="svg", metadata={"Date": None, "Creator": None}
    )
  return buffer.getvalue()


def decorate(
  axes: mpl_axes.Axes, *, title: str, x_label: str, y_label: str
) -> None:
  """Gives a panel its title, its labels and a grid."""
  axes.set_title(title, fontsize=12, loc="left", fontweight="bold")
  axes.set_xlabel(x_label, fontsize=11)
  axes.set_ylabel(y_label, fontsize=11)
  axes.tick_params(labelsize=10)
  axes.grid(True, color="#DDDDDD", linewidth=0.7)
  axes.set_axisbelow(True)
  axes.spines[["top", "right"]].set_visible(False)


def set_rounds(
  axes: mpl_axes.Axes,
  rounds: Sequence[float] | np.ndarray,
  *,
  whole: bool = True,
) -> None:
  """Makes the horizontal axis one of rounds, or of days if not whole."""
  steps = [1, 2, 5, 10]
  axes.xaxis.set_major_locator(
    ticker.MaxNLocator(nbins=7, steps=steps, integer=whole, min_n_ticks=1)
  )
  if len(rounds):
    low, high = min(rounds), max(rounds)
    margin = max(0.03 * (high - low), 0.5 if high == low else 0.0)
    axes.set_xlim(low - margin, high + margin)


def epsilon_label(delta: float | None, remark: str = "") -> str:
  """Returns what an axis of epsilons at a delta is called."""
  if delta is None:
    return "ε"
  return f"ε (δ = {delta:.2g}{remark})".replace("e-0", "e-")


def only_drawable(epsilons: Sequence[float] | np.ndarray) -> np.ndarray:
  """Returns epsilons with NaN for those that a logarithmic axis cannot show."""
  values = np.asarray(epsilons, float)
  return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def set_epsilons(
  axes: mpl_axes.Axes,
  axis: mpl_axis.Axis,
  epsilons: Iterable[float],
  *,
  num_ticks: int = 9,
  margin: float | None = None,
) -> None:
  """Makes an axis a logarithmic one of epsilons, with round numbers.

  Args:
    axes: The panel.
    axis: Its `xaxis` or `yaxis`.
    epsilons: All to be shown; 0 and infinity have no place there.
    num_ticks: Numbers at most.
    margin: From the outermost epsilons to the ends, a factor [little].
  """
  is_x = axis is axes.xaxis
  (axes.set_xscale if is_x else axes.set_yscale)("log")
  shown = [epsilon for epsilon in epsilons if 0 < epsilon < math.inf]
  low, high = (min(shown), max(shown)) if shown else (0.1, 10.0)
  if margin is None:
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
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:g}"
  return f"{epsilon:.0e}".replace("e+0", "e").replace("e-0", "e-")


def draw_bars(
  axes: mpl_axes.Axes,
  points: Sequence[tuple[float, float, float]],
  **style: Any,
) -> None:
  """Draws points (x, mean, deviation) and bars of the deviations, if any."""
  if not points:
    return
  x, means, deviations = zip(*points, strict=True)
  bars = deviations if any(deviations) else None
  axes.errorbar(x, means, yerr=bars, capsize=3, linewidth=1.6, **style)


def create_key(label: str, **style: Any) -> mpl_lines.Line2D:
  """Returns what stands for lines of a style in a legend."""
  return mpl_lines.Line2D([], [], label=label, **style)


def set_legend(
  figure: mpl_figure.Figure, groups: Mapping[str, Sequence[mpl_lines.Line2D]]
) -> None:
  """Draws a legend right of the axes, each group of keys below its heading."""
  handles = []
  for heading, keys in groups.items():
    if handles:
      handles.append(create_key(linestyle="", label=" "))
    handles.append(create_key(linestyle="", label=heading))
    handles.extend(keys)
  style = {"fontsize": 9, "frameon": False, "handlelength": 2.6}
  legend = figure.legend(handles=handles, loc="outside right upper", **style)
  for text in legend.get_texts():
    if text.get_text() in groups:
      text.set_fontweight("bold")
