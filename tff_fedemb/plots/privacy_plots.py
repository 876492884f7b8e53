"""Pictures of what privacy costs: epsilon against users and against rounds.

In the manner of figure 3 of Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy". Each curve says which of two
readings of the sensitivity it has: the user-level one, or one clip norm
(Delta = C), which protects a whole virtual client only.
"""

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
    epsilons: `[n]` user-level epsilons by RDP.
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


def plot_epsilon(
  path: str | os.PathLike[str],
  curves: Sequence[EpsilonCurve],
  *,
  by: str,
  delta: float,
  caption: str,
  tighter_accountant: str | None = None,
  num_users: int | None = None,
) -> None:
  """Writes epsilon against the number of users or of rounds.

  Epsilon is logarithmic, and so are users. Populations that delta is too large
  for (delta >= 1 / N) are shaded.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: At most `figures.MAX_CURVES`.
    by: What their x are: 'users' or 'rounds'.
    delta: At which all epsilons hold.
    caption: What the curves have in common, in words, printed below the axes.
    tighter_accountant: Name of whose epsilons the markers are; lines are RDP's.
    num_users: A population to mark.

  Raises:
    errors.FieldError: If there are too many curves, or none.
  """
  figures.check_count("curves", len(curves))
  figure, panels = figures.create_figure(8.4, 5.0)
  axes = panels[0, 0]
  axes.set_yscale("log")
  epsilons: list[float] = []
  noise = []
  for index, curve in enumerate(curves):
    color, marker = figures.COLORS[index], figures.MARKERS[index]
    _draw(axes, curve, color, marker)
    epsilons += (*curve.epsilons, *curve.tighter_epsilons)
    epsilons += curve.virtual_client_epsilons
    noise.append(
      figures.create_key(
        f"z = {curve.noise_multiplier:g}",
        color=color,
        marker=marker if curve.tighter_x else "",
        markerfacecolor="white",
        markersize=5,
        linewidth=2,
      )
    )
  figures.decorate(
    axes,
    title=f"Privacy against the number of {by}",
    x_label={"users": "users in the population, N", "rounds": "rounds, T"}[by],
    y_label=figures.epsilon_label(delta),
  )
  keys = _reading_keys(curves, tighter_accountant)
  if by == "users":
    keys += _set_users(axes, curves[0].x, delta=delta, num_users=num_users)
  else:
    figures.set_rounds(axes, curves[0].x)
  figures.set_epsilons(axes, axes.yaxis, epsilons)
  figures.set_legend(
    figure, {"noise multiplier": noise, "how to read it": keys}
  )
  figures.set_statement(figure, caption, width=108)
  figures.write(figure, path)


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
    style: dict[str, Any] = {"color": figures.GREY, "linestyle": ":"}
    style["linewidth"] = 1.2
    axes.axvline(num_users, **style)
    keys.append(figures.create_key(f"N = {num_users:,}", **style))
  return keys


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
  curves: Sequence[EpsilonCurve], tighter_accountant: str | None
) -> list[mpl_lines.Line2D]:
  key = functools.partial(figures.create_key, color=figures.GREY)
  keys = [key("user-level, RDP", linewidth=2)]
  if any(curve.tighter_x for curve in curves):
    label = f"user-level, {tighter_accountant}"
    keys.append(key(label, marker="o", **_TIGHTER_STYLE))
  if any(curve.virtual_client_epsilons for curve in curves):
    keys.append(key("Δ = C, RDP\n(not user-level)", **_VIRTUAL_STYLE))
  return keys
