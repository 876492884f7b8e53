"""Pictures of what privacy costs: epsilon against users and against rounds.

In the manner of figure 3 of Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy". Each curve says which of two
readings of the sensitivity it has: the user-level one, or one clip norm
(Delta = C), which protects a whole virtual client only.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math
import os
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import lines as mpl_lines
from matplotlib import ticker

from tff_fedemb.plots import figures

_MAX_MARKERS = 8
# With twice the noise and twice the sensitivity, curves coincide.
_VIRTUAL_STYLE = {"linewidth": 1, "linestyle": "--", "zorder": 3}
_TIGHTER_STYLE = {
  "linewidth": 1,
  "linestyle": ":",
  "markersize": 5,
  "markerfacecolor": "white",
}


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
  """

  noise_multiplier: float
  x: tuple[float, ...]
  epsilons: tuple[float, ...]
  tighter_x: tuple[float, ...] = ()
  tighter_epsilons: tuple[float, ...] = ()
  virtual_client_epsilons: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Reading:
  """What a picture's curves have in common.

  Attributes:
    delta: At which all epsilons hold.
    accountant: Name of whose epsilons the lines are.
    tighter_accountant: Name of whose epsilons the markers are.
  """

  delta: float
  accountant: str = "RDP"
  tighter_accountant: str | None = None


def plot_epsilon_by_users(
  path: str | os.PathLike[str],
  curves: Sequence[EpsilonCurve],
  reading: Reading,
  *,
  caption: str,
  num_users: int | None = None,
) -> None:
  """Writes epsilon against the number of users, both axes logarithmic.

  Populations that delta is too large for (delta >= 1 / N) are shaded.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`, whose x are numbers of users.
    reading: What they have in common.
    caption: The same in words, printed below the axes.
    num_users: A population to mark.

  Raises:
    errors.FieldError: If there are too many curves, or none.
  """
  _plot_epsilon(
    path,
    curves,
    reading,
    title="Privacy against the number of users",
    x_label="users in the population, N",
    caption=caption,
    set_axis=functools.partial(
      _set_users, delta=reading.delta, num_users=num_users
    ),
  )


def plot_epsilon_by_rounds(
  path: str | os.PathLike[str],
  curves: Sequence[EpsilonCurve],
  reading: Reading,
  *,
  caption: str,
) -> None:
  """Writes epsilon against the number of rounds, epsilon logarithmic.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`, whose x are numbers of rounds.
    reading: What they have in common.
    caption: The same in words, printed below the axes.

  Raises:
    errors.FieldError: If there are too many curves, or none.
  """

  def set_rounds(axes, x):
    figures.set_rounds(axes, x)
    return []

  _plot_epsilon(
    path,
    curves,
    reading,
    title="Privacy against the number of rounds",
    x_label="rounds, T",
    caption=caption,
    set_axis=set_rounds,
  )


def _set_users(
  axes: mpl_axes.Axes,
  x: Sequence[float],
  *,
  delta: float,
  num_users: int | None,
) -> list[mpl_lines.Line2D]:
  """Makes the horizontal axis one of users; returns keys of what it marks."""
  axes.set_xscale("log")
  axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=" "))
  axes.xaxis.set_minor_formatter(ticker.NullFormatter())
  # A little room for markers, also where there is one population only.
  low, high = min(x) / 1.12, max(x) * 1.12
  axes.set_xlim(low, high)
  keys = []
  if 1 / delta < high:
    axes.axvspan(max(1 / delta, low), high, color="#EEEEEE", zorder=0)
    keys.append(
      figures.create_key("δ too large: δ ≥ 1 / N", color="#DDDDDD", linewidth=8)
    )
  if num_users is not None:
    style = {"color": figures.GREY, "linestyle": ":"}
    axes.axvline(num_users, linewidth=1.2, **style)
    key = figures.create_key(f"N = {num_users:,}", linewidth=1.2, **style)
    keys.append(key)
  return keys


def _plot_epsilon(
  path: str | os.PathLike[str],
  curves: Sequence[EpsilonCurve],
  reading: Reading,
  *,
  title: str,
  x_label: str,
  caption: str,
  set_axis: Callable[[mpl_axes.Axes, Sequence[float]], list[mpl_lines.Line2D]],
) -> None:
  figures.check_count("curves", len(curves))
  figure, panels = figures.create_figure(8.4, 5.0)
  axes = panels[0, 0]
  axes.set_yscale("log")
  epsilons: list[float] = []
  for index, curve in enumerate(curves):
    _draw(axes, curve, figures.COLORS[index], figures.MARKERS[index])
    epsilons += (*curve.epsilons, *curve.tighter_epsilons)
    epsilons += curve.virtual_client_epsilons
  figures.decorate(
    axes,
    title=title,
    x_label=x_label,
    y_label=figures.epsilon_label(reading.delta),
  )
  keys = set_axis(axes, curves[0].x)
  figures.set_epsilons(axes, axes.yaxis, epsilons)
  noise = [
    figures.create_key(
      f"z = {curve.noise_multiplier:g}",
      color=figures.COLORS[index],
      marker=figures.MARKERS[index] if curve.tighter_x else "",
      markerfacecolor="white",
      markersize=5,
      linewidth=2,
    )
    for index, curve in enumerate(curves)
  ]
  figures.set_legend(
    figure,
    {
      "noise multiplier": noise,
      "how to read it": [*_reading_keys(curves, reading), *keys],
    },
  )
  figures.set_statement(figure, caption, width=108)
  figures.write(figure, path)


def _draw(
  axes: mpl_axes.Axes, curve: EpsilonCurve, color: str, marker: str
) -> None:
  def draw(x, epsilons, **style: Any):
    axes.plot(x, figures.only_drawable(epsilons), color=color, **style)

  draw(curve.x, curve.epsilons, linewidth=2)
  if curve.virtual_client_epsilons:
    draw(curve.x, curve.virtual_client_epsilons, **_VIRTUAL_STYLE)
  if curve.tighter_x:
    draw(
      curve.tighter_x,
      curve.tighter_epsilons,
      marker=marker,
      markevery=math.ceil(len(curve.tighter_x) / _MAX_MARKERS),
      **_TIGHTER_STYLE,
    )


def _reading_keys(
  curves: Sequence[EpsilonCurve], reading: Reading
) -> list[mpl_lines.Line2D]:
  key = functools.partial(figures.create_key, color=figures.GREY)
  keys = [key(f"user-level, {reading.accountant}", linewidth=2)]
  if any(curve.tighter_x for curve in curves):
    label = f"user-level, {reading.tighter_accountant}"
    keys.append(key(label, marker="o", **_TIGHTER_STYLE))
  if any(curve.virtual_client_epsilons for curve in curves):
    label = f"Δ = C, {reading.accountant}\n(not user-level)"
    keys.append(key(label, **_VIRTUAL_STYLE))
  return keys
