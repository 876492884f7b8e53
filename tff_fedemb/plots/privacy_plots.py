"""Pictures of what privacy costs: epsilon against users and against rounds.

In the manner of figure 3 of Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy". A curve has one of two
readings of the sensitivity: the user-level one, or one clip norm (Delta = C),
which protects a whole virtual client only.
"""

from collections.abc import Sequence
import math
import os
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import lines as mpl_lines
from matplotlib import ticker
import pandas as pd

from tff_fedemb.plots import figures

_MAX_MARKERS = 8
# Lines by reading. With twice the noise and twice the sensitivity, those of
# two curves coincide.
_STYLES: dict[str, dict[str, Any]] = {
  "user_level": {"linewidth": 2},
  "tighter": {
    "linewidth": 1,
    "linestyle": ":",
    "markersize": 5,
    "markerfacecolor": "white",
  },
  "virtual_client": {"linewidth": 1, "linestyle": "--", "zorder": 3},
}


def plot_epsilon(
  path: str | os.PathLike[str],
  points: pd.DataFrame,
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
    points: With columns `noise_multiplier`, of which there are at most
      `figures.MAX_CURVES`; `reading`, 'user_level' (by RDP), 'tighter' (the
      same by a tighter accountant) or 'virtual_client' (Delta = C, by RDP);
      `x`, users or rounds, ascending; and `epsilon`.
    by: What their x are: 'users' or 'rounds'.
    delta: At which all epsilons hold.
    caption: What the curves have in common, in words, printed below the axes.
    tighter_accountant: Its name.
    num_users: A population to mark.

  Raises:
    errors.FieldError: If there are too many curves, or none.
  """
  curves = points.groupby("noise_multiplier", sort=False)
  figures.check_count("curves", curves.ngroups)
  figure, ((axes,),) = figures.create_figure(8.4, 5.0)
  axes.set_yscale("log")
  noise = []
  for index, (multiplier, curve) in enumerate(curves):
    color, marker = figures.COLORS[index], figures.MARKERS[index]
    lines = dict(iter(curve.groupby("reading")))
    for reading, style in _STYLES.items():
      if reading in lines:
        line = lines[reading]
        if reading == "tighter":
          every = math.ceil(len(line) / _MAX_MARKERS)
          style = style | {"marker": marker, "markevery": every}
        axes.plot(
          line.x, figures.only_drawable(line.epsilon), color=color, **style
        )
    noise.append(
      figures.create_key(
        f"z = {multiplier:g}",
        color=color,
        marker=marker if "tighter" in lines else "",
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
  labels = {
    "user_level": "user-level, RDP",
    "tighter": f"user-level, {tighter_accountant}",
    "virtual_client": "Δ = C, RDP\n(not user-level)",
  }
  keys = [
    figures.create_key(
      label,
      color=figures.GREY,
      marker="o" if reading == "tighter" else "",
      **_STYLES[reading],
    )
    for reading, label in labels.items()
    if reading in set(points.reading)
  ]
  if by == "users":
    keys += _set_users(axes, points.x, delta=delta, num_users=num_users)
  else:
    figures.set_rounds(axes, points.x)
  figures.set_epsilons(axes, axes.yaxis, points.epsilon)
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
