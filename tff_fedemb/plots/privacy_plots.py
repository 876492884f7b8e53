"""Pictures of what privacy costs: epsilon against users and against rounds.

In the manner of figure 3 of Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy". Each curve says which of two
readings of the sensitivity it has: the user-level one, or one clip norm
(Delta = C), which protects a whole virtual client only.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import math
import os

from matplotlib import axes as mpl_axes
from matplotlib import axis as mpl_axis
from matplotlib import figure as mpl_figure
from matplotlib import lines as mpl_lines
from matplotlib import ticker
import numpy as np

from tff_fedemb.plots import figures

# Curves that colours and line styles tell apart.
MAX_CURVES = 6

_MAX_MARKERS = 8


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
          f"{name} must be {len(x)} values, one for each x, found {len(values)}"
        )


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
  keys: list[mpl_lines.Line2D] = []

  def set_axis(axes):
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=" "))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    # A little room for markers, also where there is one population only.
    low, high = min(curves[0].x) / 1.12, max(curves[0].x) * 1.12
    axes.set_xlim(low, high)
    if 1 / delta < high:
      axes.axvspan(max(1 / delta, low), high, color="#EEEEEE", zorder=0)
      keys.append(
        create_key(color="#DDDDDD", linewidth=8, label="δ too large: δ ≥ 1 / N")
      )
    if num_users is not None:
      axes.axvline(num_users, color=figures.GREY, linestyle=":", linewidth=1.2)
      keys.append(
        create_key(
          color=figures.GREY,
          linestyle=":",
          linewidth=1.2,
          label=f"N = {num_users:,}",
        )
      )

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
    set_axis=lambda axes: figures.set_rounds(axes, curves[0].x),
    keys=[],
  )


def create_key(label: str, **style: object) -> mpl_lines.Line2D:
  """Returns what stands for lines of a style in a legend."""
  return mpl_lines.Line2D([], [], label=label, **style)


def check_count(name: str, count: int) -> None:
  """Refuses more lines than colours and styles tell apart.

  Raises:
    ValueError: If there are too many, or none.
  """
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
  check_count("curves", len(curves))
  figure = mpl_figure.Figure(figsize=(8.4, 5.0), layout="constrained")
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  axes = figure.subplots()
  axes.set_yscale("log")
  for index, curve in enumerate(curves):
    color = figures.COLORS[index]
    marker = figures.MARKERS[index]
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
  figures.decorate(
    axes,
    title=title,
    x_label=x_label,
    y_label=f"ε (δ = {delta:.2g})".replace("e-0", "e-"),
  )
  set_axis(axes)
  epsilons = [
    epsilon
    for curve in curves
    for epsilon in (
      *curve.epsilons,
      *curve.tighter_epsilons,
      *curve.virtual_client_epsilons,
    )
  ]
  set_epsilons(axes, axes.yaxis, epsilons, num_ticks=9)
  set_legend(
    figure,
    [
      (
        "noise multiplier",
        [
          create_key(
            color=figures.COLORS[index],
            marker=figures.MARKERS[index] if curve.tighter_x else "",
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
  figures.set_statement(figure, caption, width=108)
  figures.write(figure, path)


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
  grey = figures.GREY
  keys = [
    create_key(color=grey, linewidth=2, label=f"user-level, {accountant}")
  ]
  if any(curve.tighter_x for curve in curves):
    keys.append(
      create_key(
        label=f"user-level, {tighter_accountant}",
        **_tighter_style(grey, "o"),
      )
    )
  if any(curve.virtual_client_epsilons for curve in curves):
    keys.append(
      create_key(
        color=grey,
        linewidth=1,
        linestyle="--",
        label=f"Δ = C, {accountant}\n(not user-level)",
      )
    )
  return keys


def set_legend(
  figure: mpl_figure.Figure,
  groups: Sequence[tuple[str, Sequence[mpl_lines.Line2D]]],
) -> None:
  """Draws a legend right of the axes, each group of keys below its heading."""
  handles = []
  for heading, keys in groups:
    if handles:
      handles.append(create_key(linestyle="", label=" "))
    handles.append(create_key(linestyle="", label=heading))
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


def set_epsilons(
  axes: mpl_axes.Axes,
  axis: mpl_axis.Axis,
  epsilons: Iterable[float],
  *,
  num_ticks: int,
) -> None:
  """Makes an axis a logarithmic one of epsilons, with round numbers.

  Args:
    axes: The panel.
    axis: Its `xaxis` or `yaxis`.
    epsilons: All to be shown; 0 and infinity have no place there.
    num_ticks: Numbers at most.
  """
  is_x = axis is axes.xaxis
  (axes.set_xscale if is_x else axes.set_yscale)("log")
  shown = [epsilon for epsilon in epsilons if 0 < epsilon < math.inf]
  low, high = (min(shown), max(shown)) if shown else (0.1, 10.0)
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
