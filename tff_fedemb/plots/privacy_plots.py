"""Pictures of the cost of privacy: epsilon against users and against rounds.

They follow figure 3 of Xu et al. 2023, "Learning to Generate Image Embeddings
with User-level Differential Privacy". A curve has one of two readings of the
sensitivity: the user-level one, or one clip norm (Delta = C), which only
protects a whole virtual client. Two more pictures are here: an audit shows the
claimed epsilon and the lower bounds of attacks, and a comparison of mechanisms
shows the noise of each at the same epsilon.
"""

from collections.abc import Mapping, Sequence
import itertools
import math
import os
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import lines as mpl_lines
import numpy as np
import pandas as pd

from tff_fedemb.plots import figures

_MAX_MARKERS = 8
# Largest error that is shown, relative to the least.
_MOST_SHOWN = 5.0
# Styles of lines by reading: lines of two curves coincide if both the noise and
# the sensitivity are doubled.
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
  accountant: str = "RDP",
  tighter_accountant: str | None = None,
  num_users: int | None = None,
) -> None:
  """Writes epsilon against the number of users or of rounds.

  The axes of epsilon and of users are logarithmic. Populations for which delta
  is too large (delta >= 1 / N) are shaded.

  Args:
    path: PNG file to write, in a directory that exists.
    points: With columns `noise_multiplier`, of which there are at most
      `figures.MAX_CURVES`; `reading`, 'user_level', 'tighter' (the same by a
      tighter accountant) or 'virtual_client' (Delta = C); `x`, users or rounds,
      ascending; and `epsilon`, where infinity is left out.
    by: Meaning of x: 'users' or 'rounds'.
    delta: Delta of all epsilons, in (0, 1).
    caption: Text below the axes: properties that all curves share.
    accountant: Name of the accountant of all readings but 'tighter'.
    tighter_accountant: Name of the accountant of 'tighter'; None if no point
      has that reading.
    num_users: Population to mark if x is users; None for no mark.

  Raises:
    KeyError: If `by` is another word.

  Examples:
    >>> points = pd.DataFrame(
    ...   {
    ...     "noise_multiplier": [1.0, 1.0],
    ...     "reading": ["user_level", "user_level"],
    ...     "x": [10_000, 100_000],
    ...     "epsilon": [9.0, 1.5],
    ...   }
    ... )
    >>> privacy_plots.plot_epsilon(
    ...   "epsilon.png", points, by="users", delta=1e-6, caption="60 rounds."
    ... )
  """
  figure, ((axes,),) = figures.create_figure(
    8.4, 5.0, statement=caption, letters=108
  )
  noise = _draw_curves(axes, points)
  figures.decorate(
    axes,
    title=f"Privacy against the number of {by}",
    x_label={"users": figures.USERS, "rounds": "rounds, T"}[by],
    y_label=figures.epsilon_label(delta),
  )
  labels = {
    "user_level": f"user-level, {accountant}",
    "tighter": f"user-level, {tighter_accountant}",
    "virtual_client": f"Δ = C, {accountant}\n(not user-level)",
  }
  readings = set(points.reading)
  keys: list[Any] = []
  for reading, label in labels.items():
    if reading in readings:
      marker = "o" if reading == "tighter" else ""
      style = {"color": figures.GREY, "marker": marker} | _STYLES[reading]
      keys.append(figures.create_key(label, **style))
  if by == "users":
    keys += _set_users(axes, points.x, delta=delta, num_users=num_users)
  else:
    figures.set_rounds(axes)
  figures.set_logarithmic(axes.yaxis, points.epsilon)
  figures.set_legend(
    figure, {"noise multiplier": noise, "how to read it": keys}
  )
  figures.write(figure, path)


def plot_measured_by_users(
  path: str | os.PathLike[str],
  curves: Mapping[str, Sequence[figures.Measurement]],
  *,
  caption: str,
) -> None:
  """Writes the epsilon of runs over their number of users, with their recall.

  A thin line shows the epsilons that `extrapolated` has for other numbers of
  users; a marker shows the run itself.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: Measurements by the name for the legend; `extrapolated` has epsilons
      by number of users, and `num_users` is above 0.
    caption: Text below the axes.

  Examples:
    >>> run = figures.Measurement(
    ...   (0.2,), epsilon=2.0, extrapolated={100_000: 0.9}, num_users=10_000
    ... )
    >>> privacy_plots.plot_measured_by_users(
    ...   "measured.png", {"DP-FedEmb": [run]}, caption="60 rounds."
    ... )
  """
  figure, ((axes,),) = figures.create_figure(
    8.4, 5.0, statement=caption, letters=108
  )
  figures.decorate(
    axes,
    title="Measured: runs with so many users",
    x_label=figures.USERS,
    y_label="ε",
  )
  users: list[float] = []
  epsilons: list[float] = []
  keys = []
  for index, (name, points) in enumerate(curves.items()):
    style = figures.style_of(index, markersize=9)
    key_style = figures.style_of(index, markersize=9, linestyle="")
    keys.append(figures.create_key(name, **key_style))
    for point in points:
      others = sorted(point.extrapolated)
      line = [point.extrapolated[num_users] for num_users in others]
      axes.plot(others, line, color=style["color"], linewidth=1)
      axes.plot([point.num_users], [point.epsilon], **style)
      axes.annotate(
        f"recall {point.mean:.3f}",
        (point.num_users, point.epsilon),
        xytext=(9, 5),
        textcoords="offset points",
      )
      users += [point.num_users, *others]
      epsilons += [point.epsilon, *line]
  figures.set_users(axes, users)
  figures.set_logarithmic(axes.yaxis, epsilons)
  measured = itertools.chain.from_iterable(curves.values())
  heading = f"runs ({figures.count_seeds(measured)})"
  figures.set_legend(figure, {heading: keys})
  figures.write(figure, path)


def _draw_curves(
  axes: mpl_axes.Axes,
  points: pd.DataFrame,
) -> list[mpl_lines.Line2D]:
  """Draws the curves of all noise multipliers; returns their keys.

  `points` are those of `plot_epsilon`. A reading of one point gets a dash.
  """
  keys = []
  curves = points.groupby("noise_multiplier", sort=False)
  for index, (multiplier, curve) in enumerate(curves):
    color = figures.COLORS[index]
    marker = figures.MARKERS[index]
    lines = dict(iter(curve.groupby("reading")))
    for reading, style in _STYLES.items():
      if reading in lines:
        line = lines[reading]
        if reading == "tighter":
          every = math.ceil(len(line) / _MAX_MARKERS)
          style = style | {"marker": marker, "markevery": every}
        elif len(line) == 1:
          style = style | {"marker": "_", "markersize": 14}
        shown = figures.only_drawable(line.epsilon)
        axes.plot(line.x, shown, color=color, **style)
    label = f"z = {multiplier:g}"
    if (curve.epsilon == math.inf).all():
      label += ": ε = ∞"
    key = figures.create_key(
      label,
      color=color,
      marker=marker if "tighter" in lines else "",
      markerfacecolor="white",
      markersize=5,
      linewidth=2,
    )
    keys.append(key)
  return keys


def _set_users(
  axes: mpl_axes.Axes,
  x: Sequence[float],
  *,
  delta: float,
  num_users: int | None,
) -> list[Any]:
  """Makes the horizontal axis one of users; returns the keys of its marks.

  Marks are the shaded range of N with delta >= 1 / N, and `num_users`.
  """
  figures.set_users(axes, x)
  low, high = axes.get_xlim()
  keys: list[Any] = []
  if 1 / delta < high:
    label = "δ too large: δ ≥ 1 / N"
    start = max(1 / delta, low)
    keys.append(axes.axvspan(start, high, color="#EEE", zorder=0, label=label))
  if num_users is not None:
    label = f"N = {num_users:,}"
    mark = axes.axvline(
      num_users, color=figures.GREY, linestyle=":", label=label
    )
    keys.append(mark)
  return keys


def plot_audit(
  path: str | os.PathLike[str],
  rounds: Sequence[int],
  claimed: Sequence[float],
  lower_bounds: Mapping[str, Sequence[float]],
  *,
  rates: Mapping[str, Sequence[float]],
  false_positive_rates: Sequence[float],
  delta: float,
  caption: str,
) -> None:
  """Writes the claimed epsilon and the lower bounds of some attacks.

  A second panel has the true positive rates that the claim allows any attack,
  and those of the attacks that were run.

  Args:
    path: PNG file to write, in a directory that exists.
    rounds: `[n]` numbers of rounds, ascending.
    claimed: `[n]` epsilons; infinite ones are left out.
    lower_bounds: `[n]` lower bounds of epsilon by attack, 0 or more.
    rates: `[m]` true positive rates in [0, 1] by attack; the first are those
      that the claim allows.
    false_positive_rates: `[m]` false positive rates of the same tests. Both
      axes are logarithmic and end just below 0.001.
    delta: Delta of all epsilons.
    caption: Text below the axes: assumptions.

  Examples:
    >>> privacy_plots.plot_audit(
    ...   "audit.png",
    ...   rounds=[10, 20],
    ...   claimed=[1.4, 2.0],
    ...   lower_bounds={"canaries": [0.1, 0.3]},
    ...   rates={"allowed": [0.01, 0.5], "canaries": [0.002, 0.2]},
    ...   false_positive_rates=[0.001, 0.1],
    ...   delta=1e-5,
    ...   caption="1,000 canaries.",
    ... )
  """
  figure, ((axes, roc),) = figures.create_figure(
    11.0, 4.6, (1, 2), statement=caption, letters=140
  )
  finite = [math.nan if value == math.inf else value for value in claimed]
  label = "claimed" if any(map(math.isfinite, finite)) else "claimed: ε = ∞"
  keys = axes.plot(
    rounds, finite, label=label, color="black", marker="*", linewidth=2
  )
  for index, (name, values) in enumerate(lower_bounds.items()):
    label = f"at least, by {name.replace('_', ' ')}"
    keys += axes.plot(rounds, values, label=label, **figures.style_of(index))
  figures.decorate(
    axes,
    title="Epsilon: claimed, and found by attacks",
    x_label="round",
    y_label=figures.epsilon_label(delta),
    keys=keys,
  )
  highest = axes.dataLim.y1 or 1.0
  axes.set_ylim(-0.04 * highest, 1.04 * highest)
  figures.set_rounds(axes)
  _draw_rates(roc, rates, false_positive_rates)
  figures.write(figure, path)


def _draw_rates(
  axes: mpl_axes.Axes,
  rates: Mapping[str, Sequence[float]],
  false_positive_rates: Sequence[float],
) -> None:
  """Draws a logarithmic ROC; the first rates, in black, are the claim's."""
  keys = []
  # Attacks have the colours of the other panel.
  for index, (name, true_positive_rates) in enumerate(rates.items(), -1):
    style = figures.style_of(index, marker="")
    if index < 0:
      style |= {"color": "black", "linestyle": "-", "linewidth": 2}
    keys += axes.plot(
      false_positive_rates,
      figures.only_drawable(true_positive_rates),
      label=name.replace("_", " "),
      **style,
    )
  figures.decorate(
    axes,
    title="Members found at false alarms",
    x_label="false positive rate",
    y_label="true positive rate",
    keys=keys,
  )
  for axis in (axes.xaxis, axes.yaxis):
    figures.set_logarithmic(axis, (1e-3, 1.0))
    figures.set_percent(axis)


def plot_errors(
  path: str | os.PathLike[str],
  errors_by_label: Mapping[str, Sequence[float]],
  epsilons: Sequence[float],
  *,
  sizes_by_label: Mapping[str, Sequence[int]],
  target_epsilon: float,
  delta: float,
  caption: str,
) -> None:
  """Writes the noise of mechanisms, relative to the least, against epsilon.

  A mechanism whose error is always above five times the least is only in the
  legend.

  Args:
    path: PNG file to write, in a directory that exists.
    errors_by_label: `[n]` errors of each of at most `figures.MAX_CURVES`
      mechanisms, positive.
    epsilons: `[n]`, ascending, positive.
    sizes_by_label: `[n]` numbers of bands to print beside a curve, for some of
      the mechanisms.
    target_epsilon: The epsilon to mark with a vertical line.
    delta: Delta of all epsilons.
    caption: Text below the axes: properties that all curves share.

  Examples:
    >>> privacy_plots.plot_errors(
    ...   "errors.png",
    ...   {"independent": [8.0, 4.0], "16 bands": [5.0, 2.0]},
    ...   epsilons=[1.0, 2.0],
    ...   sizes_by_label={},
    ...   target_epsilon=2.0,
    ...   delta=1e-5,
    ...   caption="800 rounds.",
    ... )
  """
  figure, ((axes,),) = figures.create_figure(
    9.2, 5.4, statement=caption, letters=118
  )
  least = np.min(list(errors_by_label.values()), axis=0)
  keys = []
  highest = 1.2
  for index, (label, errors) in enumerate(errors_by_label.items()):
    ratios = np.asarray(errors) / least
    if min(ratios) > _MOST_SHOWN:
      text = f"{label}\n(above {min(ratios):.2g} times)"
      keys.append(figures.create_key(text, linestyle=""))
      continue
    highest = max(highest, max(ratios))
    style = figures.style_of(index, linewidth=2, zorder=3)
    keys += axes.plot(epsilons, ratios, label=label, **style)
    sizes = sizes_by_label.get(label, ())
    for epsilon, ratio, size in zip(epsilons, ratios, sizes, strict=False):
      axes.annotate(
        str(size),
        (epsilon, ratio),
        xytext=(0, -16),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color=style["color"],
        bbox={"color": "white", "pad": 1},
      )
  target = axes.axvline(
    target_epsilon,
    color=figures.GREY,
    linestyle=":",
    zorder=0,
    label=f"target: ε = {target_epsilon:g}",
  )
  marks = [target]
  if sizes_by_label:
    marks.append(figures.create_key("numbers: best bands", linestyle=""))
  figures.decorate(
    axes,
    title="Noise of the models at equal privacy",
    x_label=figures.epsilon_label(delta),
    y_label="noise / least noise",
  )
  figures.set_logarithmic(axes.xaxis, list(epsilons) + [target_epsilon])
  figures.set_logarithmic(axes.yaxis, (1, min(highest, _MOST_SHOWN)))
  figures.set_legend(figure, {"mechanism": keys, "how to read it": marks})
  figures.write(figure, path)
