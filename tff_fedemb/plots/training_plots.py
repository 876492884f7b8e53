"""Pictures of a run: loss, recall over rounds, ROC, epsilon, similarities.

A panel is a function that draws into axes; it is drawn alone or with others in
an overview. Pictures of devices in a round follow figures 5 to 7 of Bonawitz et
al. 2019, "Towards Federated Learning at Scale: System Design"; their time axis
has the simulated time.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import os
from typing import Any

from matplotlib import axes as mpl_axes
import numpy as np
import pandas as pd

from tff_fedemb import progress
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures

UNTRAINED = "untrained"
ROUND = "round"
_RECALL = "recall (same-class\npairs accepted)"
TRAINING_NOTE = "training metrics are not covered by the privacy guarantee"

_MARKED_RATE = 1e-3
_LOWEST_RATE = 1e-4
_NUM_BINS = 60
_HOURS_OF_WEEK = 7 * 24.0

# The fates of selected devices, by column, from the bottom up.
_FATES = {
  "reported": ("reported", figures.COLORS[0]),
  "aborted": ("not needed", figures.COLORS[5]),
  "late": ("late", figures.COLORS[4]),
  "interrupted": ("interrupted", figures.COLORS[3]),
  "dropped": ("dropped out", figures.COLORS[1]),
}
# Largest number of rounds drawn one by one; more are averaged in blocks.
_MAX_BLOCKS = 168

Panel = Callable[[mpl_axes.Axes], None]


def draw_svg(panel: Panel) -> str:
  """Draws one panel alone.

  Args:
    panel: Draws into the axes that it is given.

  Returns:
    The text of an SVG, 5.2 inches wide and 3.3 inches high, plus the height of
    the legend.

  Examples:
    >>> panel = functools.partial(
    ...   training_plots.draw_loss, rounds=[1, 2, 3], losses=[3.5, 2.8, 2.1]
    ... )
    >>> svg = training_plots.draw_svg(panel)
  """
  height = 3.3
  figure, ((axes,),) = figures.create_figure(5.2, height)
  panel(axes)
  if axes.get_legend() is not None:
    # The figure is higher by the height of the legend.
    height += axes.get_legend().get_window_extent().height / figure.dpi
  figure.set_figheight(height)
  return figures.to_svg(figure)


def plot_overview(
  path: str | os.PathLike[str],
  four: Sequence[Panel],
  *,
  title: str,
  statement: str,
) -> None:
  """Writes four panels, row by row, and a statement below them, as PNG.

  Args:
    path: PNG file to write, in a directory that exists.
    four: The panels: upper left, upper right, lower left, lower right.
    title: Title of the picture.
    statement: Text below the panels.

  Raises:
    ValueError: If there are not four panels.
  """
  figure, panels = figures.create_figure(
    11, 8, (2, 2), statement=statement, letters=150
  )
  for panel, axes in zip(four, panels.flat, strict=True):
    panel(axes)
  figure.suptitle(title, fontsize=15, fontweight="bold")
  figures.write(figure, path)


def draw_loss(
  axes: mpl_axes.Axes,
  rounds: Sequence[int],
  losses: Sequence[float],
) -> None:
  """Draws the mean loss of each round's clients, with gaps if not finite.

  Args:
    axes: The panel.
    rounds: `[n]` rounds.
    losses: `[n]` mean cross-entropies in nats.
  """
  axes.plot(rounds, losses, **figures.style_of(0, len(rounds), linewidth=1.3))
  figures.decorate(
    axes,
    title="Training loss",
    x_label=ROUND,
    y_label="mean client loss",
    note=TRAINING_NOTE,
  )
  figures.set_rounds(axes)
  # Plain numbers: a factor above the axis would cover the note.
  axes.yaxis.set_major_formatter("{x:g}")


def draw_recall(
  axes: mpl_axes.Axes,
  rounds: Sequence[float],
  recall_by_far: Mapping[float, Sequence[float]],
  untrained: Mapping[float, float],
  x_label: str = ROUND,
) -> None:
  """Draws recall of validation images, a line for each false accept rate.

  Args:
    axes: The panel.
    rounds: `[n]` rounds of evaluation, n at least 1, or their times.
    recall_by_far: `[n]` recalls in [0, 1] by false accept rate; the legend has
      the last one.
    untrained: Recall before training at each of these rates, drawn as a dotted
      level.
    x_label: `ROUND`, or the unit of `rounds` if they are times, such as days.
  """
  keys = []
  # The loosest rate lies highest: the legend then reads like the lines.
  for index, far in enumerate(sorted(recall_by_far, reverse=True)):
    recalls = np.asarray(recall_by_far[far], float)
    rate = verification.format_false_accept_rate(far)
    label = f"FAR {rate}: {recalls[-1]:.1%}"
    style = figures.style_of(index, len(recalls), linewidth=2)
    keys += axes.plot(rounds, recalls, label=label, **style)
    axes.axhline(
      untrained[far], color=style["color"], linestyle=":", linewidth=1.3
    )
  keys.append(figures.create_key(UNTRAINED, color=figures.GREY, linestyle=":"))
  figures.decorate(
    axes,
    title="Recall on validation images",
    x_label=x_label,
    y_label=_RECALL,
    keys=keys,
  )
  figures.set_shares(axes.yaxis, from_zero=True)
  figures.set_rounds(axes, whole=x_label == ROUND)


def draw_roc(
  axes: mpl_axes.Axes,
  curves: Mapping[str, verification.VerificationResult],
) -> None:
  """Draws ROC curves, with FAR = 0.001 marked.

  Args:
    axes: The panel.
    curves: Results by name, each with its ROC and the recall at FAR 0.001. The
      last one may be named `UNTRAINED`, and is then drawn in grey.

  Raises:
    KeyError: If a result lacks the recall at FAR 0.001.
  """
  axes.axvline(_MARKED_RATE, color=figures.GREY, linestyle=":", linewidth=1.0)
  rates = np.geomspace(_LOWEST_RATE, 1.0, 100)
  keys = []
  chance = axes.plot(
    rates, rates, color="#AAAAAA", linewidth=1.0, label="chance"
  )
  for index, (name, result) in enumerate(curves.items()):
    style = figures.style_of(index, marker="", linewidth=2)
    if name == UNTRAINED:
      style |= {"color": figures.GREY, "linestyle": "--"}
    recall = result.recall_at_far[_MARKED_RATE]
    label = f"{name}: {recall:.1%}"
    axes.plot(_MARKED_RATE, recall, marker="o", color=style["color"])
    # A logarithmic axis has no 0: the recall at 0 is drawn up to the first FAR.
    rates = np.maximum(result.roc.false_accept_rates, _LOWEST_RATE / 10)
    keys += axes.plot(
      rates, result.roc.recalls, drawstyle="steps-post", label=label, **style
    )
  figures.decorate(
    axes,
    title="ROC over all pairs of test images",
    x_label="false accept rate (different-class pairs accepted)",
    y_label=_RECALL,
    keys=keys + chance,
    note=f"recall at FAR {_MARKED_RATE:g}",
  )
  figures.set_rates(axes)
  axes.set_xlim(_LOWEST_RATE, 1.0)
  axes.xaxis.set_major_formatter("{x:g}")


def draw_epsilon(
  axes: mpl_axes.Axes,
  rounds: Sequence[float],
  epsilons: Sequence[float],
  delta: float,
  x_label: str = ROUND,
) -> None:
  """Draws the privacy spent over rounds on a logarithmic axis.

  Without any finite epsilon above 0, the panel says so instead of a line.

  Args:
    axes: The panel.
    rounds: `[n]` rounds, or the times when they ended.
    epsilons: `[n]` epsilons, n at least 1. The legend has the last one.
    delta: Delta of all epsilons.
    x_label: As in `draw_recall`.
  """
  # A logarithmic axis cannot show zero or infinity.
  shown = figures.only_drawable(epsilons)
  label = f"this run: ε = {epsilons[-1]:.3g}".replace("inf", "∞")
  keys = []
  if np.isfinite(shown).any():
    style = figures.style_of(0, len(shown), linewidth=2)
    keys = axes.plot(rounds, shown, label=label, **style)
  figures.decorate(
    axes,
    title="Privacy spent",
    x_label=x_label,
    y_label=figures.epsilon_label(delta),
    keys=keys,
  )
  figures.set_rounds(axes, whole=x_label == ROUND)
  figures.set_logarithmic(axes.yaxis, shown)
  if not keys:
    axes.set(xticks=[], yticks=[])
    style = {"ha": "center", "va": "center", "color": figures.GREY}
    axes.text(0.5, 0.5, label, fontsize=11, transform=axes.transAxes, **style)


def draw_similarities(
  axes: mpl_axes.Axes,
  same: np.ndarray,
  different: np.ndarray,
  thresholds: Mapping[float, float],
) -> None:
  """Draws shares of pairs by similarity, with the thresholds of some rates.

  Each histogram sums to 1, however many pairs the two kinds have.

  Args:
    axes: The panel.
    same: `[p]` similarities of pairs of one class, in [-1, 1].
    different: `[m]` similarities of pairs of two classes, in [-1, 1].
    thresholds: Least similarity of an accepted pair, by false accept rate.
  """
  both = np.concatenate([same, different])
  bins = np.linspace(np.min(both, initial=0.99), 1.0, _NUM_BINS + 1)
  groups = {"same class": same, "different classes": different}
  keys = []
  for index, (name, values) in enumerate(groups.items()):
    shares = np.histogram(values, bins)[0] / max(len(values), 1)
    color = figures.COLORS[index]
    axes.stairs(shares, bins, fill=True, alpha=0.3, color=color)
    # The outlines differ in style as well, for print without colours.
    outline = axes.stairs(
      shares,
      bins,
      label=name,
      color=color,
      linestyle=figures.STYLES[index],
      linewidth=1.8,
    )
    keys.append(outline)
  figures.decorate(
    axes,
    title="How alike two images look to the model",
    x_label="cosine similarity of two images",
    y_label="share of pairs",
    keys=keys,
  )
  # With few pairs, thresholds may lie beyond all similarities.
  ends = [bins[0], 1.0] + list(thresholds.values())
  margin = 0.02 * (max(ends) - min(ends))
  axes.set_xlim(min(ends) - margin, max(ends) + margin)
  top = 1.3 * axes.dataLim.y1
  axes.set_ylim(0, top)
  figures.set_percent(axes.yaxis)
  middle = sum(axes.get_xlim()) / 2
  for step, rate in enumerate(sorted(thresholds, reverse=True)):
    threshold = thresholds[rate]
    axes.axvline(threshold, color=figures.GREY, linestyle=":", linewidth=1.3)
    # Labels at different heights: thresholds may lie close together.
    axes.text(
      threshold,
      top * (0.81 + 0.08 * step),
      f" FAR {verification.format_false_accept_rate(rate)} ",
      ha="right" if threshold > middle else "left",
      va="center",
      fontsize=9,
      color="#333333",
      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7},
    )


def _clock(rounds: pd.DataFrame) -> tuple[float, str]:
  """Hours in the unit of these rounds' time axis, and the axis's name."""
  unit_hours, name = progress.choose_unit(rounds.end_hours.max())
  return unit_hours, f"simulated {name}"


def _first_week(rounds: pd.DataFrame) -> pd.DataFrame:
  """Returns the rounds that started in the first seven simulated days."""
  return rounds[rounds.start_hours < _HOURS_OF_WEEK]


def _decorate(
  axes: mpl_axes.Axes,
  rounds: pd.DataFrame,
  title: str,
  **options: Any,
) -> None:
  """Adds title and time axis; the title says if later weeks are left out.

  `options` are those of `figures.decorate`.
  """
  if len(_first_week(rounds)) < len(rounds):
    title += ", first week"
  _, x_label = _clock(rounds)
  figures.decorate(axes, title=title, x_label=x_label, **options)
  figures.set_rounds(axes, whole=False)


def draw_availability(axes: mpl_axes.Axes, rounds: pd.DataFrame) -> None:
  """Draws the share of available devices over the first week.

  Args:
    axes: The panel.
    rounds: A row for each round, also for abandoned ones, with columns
      `start_hours` and `end_hours` of the simulated clock, and
      `available_share` in [0, 1].
  """
  shown = _first_week(rounds)
  unit_hours, _ = _clock(rounds)
  times = shown.start_hours / unit_hours
  shares = shown.available_share
  style = figures.style_of(2, len(shown), linewidth=2, linestyle="-")
  axes.plot(times, shares, **style)
  axes.fill_between(
    times, 0, shares, color=style["color"], alpha=0.15, linewidth=0
  )
  _decorate(axes, rounds, "Devices available", y_label="share of all devices")
  figures.set_shares(axes.yaxis, from_zero=True)


def draw_reports(axes: mpl_axes.Axes, rounds: pd.DataFrame) -> None:
  """Draws the fates of the devices of each round, over the first week.

  Above 168 rounds, neighbouring rounds are averaged. The legend has the share
  of each fate in all devices that were selected.

  Args:
    axes: The panel.
    rounds: As in `draw_availability`, with columns `abandoned` and `selected`,
      and the numbers of devices that `reported`, or were `aborted`, `late`,
      `interrupted` or `dropped`.
  """
  shown = _first_week(rounds)
  fates = list(_FATES)
  unit_hours, _ = _clock(rounds)
  # Takes means of neighbouring rounds, so that the blocks can be told apart.
  group = np.arange(len(shown)) // -(-len(shown) // _MAX_BLOCKS)
  blocks = shown.groupby(group)
  # Counts are constant from the start of a block to its end, then drop to 0.
  starts = blocks.start_hours.first()
  ends = blocks.end_hours.last()
  # Rounds that take no time are thin bars.
  ends = ends.where(ends > starts, starts + 0.004 * starts.max())
  times = np.stack([starts, ends], axis=1)
  counts = np.repeat(blocks[fates].mean().to_numpy(float), 2, axis=0)
  counts[1::2] = 0
  axes.stackplot(
    times.ravel() / unit_hours,
    counts.T,
    colors=[color for _, color in _FATES.values()],
    step="post",
    linewidth=0,
  )
  shares = shown[fates].sum() / max(shown.selected.sum(), 1)
  keys = []
  for fate, (name, color) in _FATES.items():
    label = f"{name}: {shares[fate]:.1%}"
    keys.append(figures.create_key(label, color=color, linewidth=6))
  highest = max(shown.selected)
  abandoned = shown.start_hours[shown.abandoned.astype(bool)] / unit_hours
  if len(abandoned):
    label = f"abandoned: {len(abandoned):,} of {len(shown):,}"
    heights = np.full(len(abandoned), 1.06 * highest)
    keys += axes.plot(abandoned, heights, "kx", markersize=5, label=label)
  _decorate(
    axes, rounds, "Selected devices", y_label="devices in a round", keys=keys
  )
  axes.set_ylim(0, 1.12 * highest)


def over_time(
  panel: functools.partial[None],
  rounds: pd.DataFrame,
) -> functools.partial[None]:
  """Returns a panel over simulated time in place of rounds.

  Args:
    panel: `draw_recall` or `draw_epsilon` with keyword `rounds`: the number of
      finished rounds, 0 before training.
    rounds: As in `draw_reports`.

  Returns:
    The panel with the end of each round as its time, in hours or a longer unit,
    and the axis labelled so. Abandoned rounds do not count.
  """
  released = rounds[~rounds.abandoned.astype(bool)]
  unit_hours, x_label = _clock(rounds)
  ends = np.concatenate([[0.0], released.end_hours / unit_hours])
  times = ends[np.asarray(panel.keywords["rounds"], int)]
  return functools.partial(panel, rounds=times, x_label=x_label)
