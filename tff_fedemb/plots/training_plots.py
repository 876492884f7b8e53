"""Pictures of a run: loss, recall over rounds, ROC and epsilon, as PNG."""

from collections.abc import Mapping
from collections.abc import Sequence
import os
import textwrap
from typing import Any

from matplotlib import figure as mpl_figure
from matplotlib import lines
from matplotlib import ticker
import numpy as np

from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures

UNTRAINED = "untrained"
TRAINING_NOTE = "training metrics are not covered by the privacy guarantee"

_MARKED_RATE = 1e-3
_LOWEST_RATE = 1e-4
_FEW_POINTS = 25
_LEGEND = {
  "fontsize": 9,
  "frameon": False,
  "loc": "upper left",
  "borderaxespad": 0.0,
  "ncols": 2,
}


def plot_roc(
  path: str | os.PathLike[str],
  curves: Mapping[str, verification.VerificationResult],
) -> None:
  """Writes the ROC curves, with FAR = 0.001 marked.

  Args:
    path: PNG file to write, in a directory that exists.
    curves: Results by name; the one named `UNTRAINED` is drawn in grey.
  """
  figure, axes = figures.create_figure()
  _draw_roc(axes, curves)
  figures.write(figure, path)


def plot_recall(
  path: str | os.PathLike[str],
  rounds: Sequence[int],
  recall_by_far: Mapping[float, Sequence[float]],
  *,
  untrained: Mapping[float, float] | None = None,
) -> None:
  """Writes recall over training rounds, one line for each false accept rate.

  Args:
    path: PNG file to write, in a directory that exists.
    rounds: `[n]` rounds of evaluation.
    recall_by_far: `[n]` recalls in [0, 1] by false accept rate.
    untrained: Recall before training by false accept rate, drawn as a level.

  Raises:
    ValueError: If a series is not as long as `rounds`.
  """
  figure, axes = figures.create_figure()
  _draw_recall(axes, rounds, recall_by_far, untrained)
  figures.write(figure, path)


def plot_loss(
  path: str | os.PathLike[str],
  rounds: Sequence[int],
  losses: Sequence[float],
  *,
  note: str = TRAINING_NOTE,
) -> None:
  """Writes the training loss over rounds; values that are not finite are gaps.

  Args:
    path: PNG file to write, in a directory that exists.
    rounds: `[n]` rounds.
    losses: `[n]` mean losses of the round's clients.
    note: Line below the title.

  Raises:
    ValueError: If `losses` is not as long as `rounds`.
  """
  figure, axes = figures.create_figure()
  _draw_loss(axes, rounds, losses, note)
  figures.write(figure, path)


def plot_epsilon(
  path: str | os.PathLike[str],
  rounds: Sequence[int],
  curves: Mapping[str, Sequence[float]],
  *,
  delta: float,
  statement: str,
) -> None:
  """Writes the privacy spent over rounds on a logarithmic axis.

  Args:
    path: PNG file to write, in a directory that exists.
    rounds: `[n]` rounds.
    curves: `[n]` epsilons by name. Infinite ones are said in words.
    delta: The delta that all of them hold at.
    statement: What is protected and against whom, printed below the axes.

  Raises:
    ValueError: If a curve is not as long as `rounds`.
  """
  figure, axes = figures.create_figure(height=4.6)
  _draw_epsilon(axes, rounds, curves, delta)
  figures.set_statement(figure, statement, width=88)
  figures.write(figure, path)


def plot_overview(
  path: str | os.PathLike[str],
  *,
  rounds: Sequence[int],
  losses: Sequence[float],
  recall_rounds: Sequence[int],
  recall_by_far: Mapping[float, Sequence[float]],
  roc_curves: Mapping[str, verification.VerificationResult],
  epsilon_rounds: Sequence[int],
  epsilon_curves: Mapping[str, Sequence[float]],
  delta: float,
  statement: str,
  title: str = "",
  untrained: Mapping[float, float] | None = None,
  note: str = TRAINING_NOTE,
) -> None:
  """Writes loss, recall, ROC and epsilon of one run in a single picture.

  Args:
    path: PNG file to write, in a directory that exists.
    rounds: `[n]` rounds of `losses`.
    losses: As for `plot_loss`.
    recall_rounds: `[m]` rounds of `recall_by_far`.
    recall_by_far: As for `plot_recall`.
    roc_curves: As for `plot_roc`.
    epsilon_rounds: `[k]` rounds of `epsilon_curves`.
    epsilon_curves: As for `plot_epsilon`.
    delta: As for `plot_epsilon`.
    statement: As for `plot_epsilon`.
    title: Heading of the picture.
    untrained: As for `plot_recall`.
    note: As for `plot_loss`.

  Raises:
    ValueError: If a series is not as long as its rounds.
  """
  figure = mpl_figure.Figure(figsize=(11, 8), layout="constrained")
  figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)
  panels = figure.subplots(2, 2)
  _draw_loss(panels[0, 0], rounds, losses, note)
  _draw_recall(panels[0, 1], recall_rounds, recall_by_far, untrained)
  _draw_roc(panels[1, 0], roc_curves)
  _draw_epsilon(panels[1, 1], epsilon_rounds, epsilon_curves, delta)
  if title:
    figure.suptitle(title, fontsize=15, fontweight="bold")
  figures.set_statement(figure, statement, width=150)
  figures.write(figure, path)


def _say(axes, text, *, y=0.5) -> None:
  axes.text(
    0.5,
    y,
    text,
    transform=axes.transAxes,
    ha="center",
    va="center",
    fontsize=11,
    color=figures.GREY,
    bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8},
  )


def _style(index: int, num_points: int) -> dict[str, Any]:
  few = num_points <= _FEW_POINTS
  return {
    "color": figures.COLORS[index % len(figures.COLORS)],
    "linestyle": figures.STYLES[index % len(figures.STYLES)],
    "marker": figures.MARKERS[index % len(figures.MARKERS)] if few else "",
    "markersize": 5,
    "linewidth": 2,
  }


def _series(name, rounds, values) -> tuple[np.ndarray, np.ndarray]:
  rounds = np.asarray(rounds, float)
  values = np.asarray(values, float)
  if values.shape != rounds.shape:
    raise ValueError(
      f"{name} must be {len(rounds)} values, one for each round, found "
      f"{list(values.shape)}"
    )
  return rounds, values


def _set_recalls(axes) -> None:
  # Curves fill the panel from corner to corner: the legend goes above them.
  axes.set_ylim(-0.02, 1.3)
  axes.set_yticks(np.linspace(0, 1, 6))
  axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))


def _draw_loss(axes, rounds, losses, note) -> None:
  rounds, losses = _series("losses", rounds, losses)
  finite = np.isfinite(losses)
  style = _style(0, len(rounds)) | {"linewidth": 1.3}
  axes.plot(rounds, np.where(finite, losses, np.nan), **style)
  figures.decorate(
    axes, title="Training loss", x_label="round", y_label="mean client loss"
  )
  figures.set_rounds(axes, rounds)
  if not len(rounds):
    _say(axes, "no rounds yet")
  elif not np.all(finite):
    missing = len(losses) - int(np.sum(finite))
    _say(axes, f"not finite in {missing:,} of {len(losses):,} rounds", y=0.9)
  if note:
    axes.text(
      1.0,
      0.99,
      textwrap.fill(note, 40),
      transform=axes.transAxes,
      ha="right",
      va="top",
      fontsize=9,
      style="italic",
      color=figures.GREY,
    )


def _draw_recall(axes, rounds, recall_by_far, untrained) -> None:
  untrained = dict(untrained or {})
  handles = []
  # The loosest rate lies highest: the legend then reads like the lines.
  for index, far in enumerate(sorted(recall_by_far, reverse=True)):
    label = f"FAR {verification.format_false_accept_rate(far)}"
    x, recalls = _series(label, rounds, recall_by_far[far])
    finite = recalls[np.isfinite(recalls)]
    if len(finite):
      label += f": {finite[-1]:.1%}"
    style = _style(index, len(x))
    handles += axes.plot(x, recalls, label=label, **style)
    if far in untrained:
      axes.axhline(
        untrained[far], color=style["color"], linestyle=":", linewidth=1.3
      )
  if any(far in recall_by_far for far in untrained):
    handles.append(
      lines.Line2D([], [], color=figures.GREY, linestyle=":", label=UNTRAINED)
    )
  figures.decorate(
    axes,
    title="Recall on held-out classes",
    x_label="round",
    y_label="recall (same-class pairs accepted)",
  )
  _set_recalls(axes)
  figures.set_rounds(axes, rounds)
  if handles:
    axes.legend(handles=handles, **_LEGEND)
  if not len(rounds) or not recall_by_far:
    _say(axes, "no evaluation yet")


def _draw_roc(axes, curves) -> None:
  axes.plot(
    [_MARKED_RATE] * 2,
    [-0.02, 1.0],
    color=figures.GREY,
    linewidth=1.0,
    linestyle=":",
  )
  chance = np.geomspace(_LOWEST_RATE, 1.0, 100)
  axes.plot(chance, chance, color="#AAAAAA", linewidth=1.0, label="chance")
  index = 0
  is_marked = False
  for name, result in curves.items():
    style = _style(index, num_points=_FEW_POINTS + 1)
    if name == UNTRAINED:
      style |= {"color": figures.GREY, "linestyle": "--"}
    else:
      index += 1
    label = name
    if _MARKED_RATE in result.recall_at_far:
      recall = result.recall_at_far[_MARKED_RATE]
      label += f": {recall:.1%}"
      is_marked = True
      axes.plot(_MARKED_RATE, recall, marker="o", color=style["color"])
    # A logarithmic axis has no 0: the recall there lasts up to the first FAR.
    rates = np.maximum(result.roc.false_accept_rates, _LOWEST_RATE / 10)
    axes.plot(
      rates, result.roc.recalls, drawstyle="steps-post", label=label, **style
    )
  figures.decorate(
    axes,
    title="ROC over all pairs of held-out images",
    x_label="false accept rate (different-class pairs accepted)",
    y_label="recall (same-class pairs accepted)",
  )
  axes.set_xscale("log")
  axes.set_xlim(_LOWEST_RATE, 1.0)
  axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
  _set_recalls(axes)
  handles, labels = axes.get_legend_handles_labels()
  axes.legend(
    handles[1:] + handles[:1],
    labels[1:] + labels[:1],
    title=f"recall at FAR {_MARKED_RATE:g}" if is_marked else None,
    title_fontsize=9,
    alignment="left",
    **_LEGEND,
  )
  if not curves:
    _say(axes, "no evaluation yet")


def _draw_epsilon(axes, rounds, curves, delta) -> None:
  axes.set_yscale("log")
  infinite = []
  for index, (name, values) in enumerate(curves.items()):
    x, epsilons = _series(name, rounds, values)
    # Zero, before the first round, has no place on a logarithmic axis.
    shown = np.isfinite(epsilons) & (epsilons > 0)
    num_infinite = int(np.sum(np.isinf(epsilons)))
    label = name
    if num_infinite:
      share = f" in {num_infinite:,} of {len(x):,} rounds"
      infinite.append(f"{name}: ε = ∞{share if np.any(shown) else ''}")
    elif np.any(shown):
      label += f": ε = {epsilons[shown][-1]:.3g}"
    if np.any(shown):
      epsilons = np.where(shown, epsilons, np.nan)
      axes.plot(x, epsilons, label=label, **_style(index, len(x)))
  figures.decorate(
    axes,
    title="Privacy spent",
    x_label="round",
    y_label=f"ε (δ = {delta:.2g} unless named)".replace("e-0", "e-"),
  )
  figures.set_rounds(axes, rounds)
  has_lines = bool(axes.get_legend_handles_labels()[0])
  if has_lines:
    _set_epsilon_axis(axes)
    axes.legend(fontsize=9, framealpha=0.85, loc="best")
  else:
    axes.set_ylim(0.1, 100)
    axes.set_yticks([])
    axes.set_yticks([], minor=True)
  if infinite:
    _say(axes, "\n".join(infinite), y=0.9 if has_lines else 0.5)
  elif not has_lines:
    _say(axes, "no rounds yet")


def _set_epsilon_axis(axes) -> None:
  low, high = axes.dataLim.intervaly
  # Room for the legend below or between, and for what is said above.
  axes.set_ylim(low / 4, high * 4)
  # Less than two decades would show one power of ten, or none.
  if high / low < 100:
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
  axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
