"""Pictures of a run: loss, recall over rounds, ROC, epsilon, similarities.

Each is a panel, which can be drawn alone or with others in an overview.
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
from typing import Any

from matplotlib import axes as mpl_axes
import numpy as np

from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures

UNTRAINED = "untrained"
ROUND = "round"
_RECALL = "recall (same-class\npairs accepted)"
TRAINING_NOTE = "training metrics are not covered by the privacy guarantee"

_MARKED_RATE = 1e-3
_LOWEST_RATE = 1e-4
_FEW_POINTS = 25
_NUM_BINS = 60


class Panel(abc.ABC):
  """A panel of a picture, and a statement to print below the picture."""

  statement: str = ""

  @abc.abstractmethod
  def draw(self, axes: mpl_axes.Axes) -> None:
    """Draws it."""


def draw_svg(panel: Panel) -> str:
  """Returns the picture of one panel, without statement."""
  height = 3.3
  figure, ((axes,),) = figures.create_figure(5.2, height)
  panel.draw(axes)
  if axes.get_legend() is not None:
    # The figure is higher by the height of the legend.
    height += axes.get_legend().get_window_extent().height / figure.dpi
  figure.set_figheight(height)
  return figures.to_svg(figure)


def plot_overview(
  path: str | os.PathLike[str], four: Sequence[Panel], *, title: str
) -> None:
  """Writes four panels, by rows, and a heading to a single PNG file."""
  figure, panels = figures.create_figure(
    *(11, 8, (2, 2)),
    statement=" ".join(panel.statement for panel in four).strip(),
    letters=150,
  )
  for panel, axes in zip(four, panels.flat, strict=True):
    panel.draw(axes)
  figure.suptitle(title, fontsize=15, fontweight="bold")
  figures.write(figure, path)


@dataclasses.dataclass(frozen=True)
class LossPanel(Panel):
  """The training loss over rounds; values that are not finite are gaps.

  Attributes:
    rounds: `[n]` rounds.
    losses: `[n]` mean losses of the round's clients.
  """

  rounds: Sequence[int]
  losses: Sequence[float]

  def draw(self, axes: mpl_axes.Axes) -> None:
    rounds, losses = self.rounds, np.asarray(self.losses, float)
    finite = np.isfinite(losses)
    note = TRAINING_NOTE
    if not np.all(finite):
      missing = len(losses) - int(np.sum(finite))
      note += f"\nnot finite in {missing:,} of {len(losses):,} rounds"
    style = style_of(0, len(rounds)) | {"linewidth": 1.3}
    axes.plot(rounds, np.where(finite, losses, np.nan), **style)
    figures.decorate(
      axes,
      title="Training loss",
      x_label=ROUND,
      y_label="mean client loss",
      note=note,
    )
    figures.set_rounds(axes)
    # Without a factor above the axis, where the note stands.
    axes.yaxis.set_major_formatter("{x:g}")


@dataclasses.dataclass(frozen=True)
class RecallPanel(Panel):
  """Recall of validation images, one line for each false accept rate.

  Attributes:
    rounds: `[n]` rounds of evaluation, or when they were.
    recall_by_far: `[n]` recalls in [0, 1] by false accept rate.
    untrained: Recall before training by each of these rates, drawn as levels.
    x_label: `ROUND`, or what else `rounds` are, such as days.
  """

  rounds: Sequence[int]
  recall_by_far: Mapping[float, Sequence[float]]
  untrained: Mapping[float, float]
  x_label: str = ROUND

  def draw(self, axes: mpl_axes.Axes) -> None:
    keys = []
    # The loosest rate lies highest: the legend then reads like the lines.
    for index, far in enumerate(sorted(self.recall_by_far, reverse=True)):
      label = f"FAR {verification.format_false_accept_rate(far)}"
      recalls = np.asarray(self.recall_by_far[far], float)
      if len(recalls):
        label += f": {recalls[-1]:.1%}"
      style = style_of(index, len(recalls))
      keys += axes.plot(self.rounds, recalls, label=label, **style)
      level = {"color": style["color"], "linestyle": ":", "linewidth": 1.3}
      axes.axhline(self.untrained[far], **level)
    keys.append(
      figures.create_key(UNTRAINED, color=figures.GREY, linestyle=":")
    )
    figures.decorate(
      axes,
      title="Recall on validation images",
      x_label=self.x_label,
      y_label=_RECALL,
      keys=keys,
    )
    figures.set_shares(axes.yaxis, from_zero=True)
    figures.set_rounds(axes, whole=self.x_label == ROUND)
    if not len(self.rounds):
      _say(axes, "no evaluation yet")


@dataclasses.dataclass(frozen=True)
class RocPanel(Panel):
  """ROC curves, with FAR = 0.001 marked.

  Attributes:
    curves: Results by name, with the recall at that rate; the one named
      `UNTRAINED`, the last one if there is one, is drawn in grey.
  """

  curves: Mapping[str, verification.VerificationResult]

  def draw(self, axes: mpl_axes.Axes) -> None:
    axes.axvline(_MARKED_RATE, color=figures.GREY, linestyle=":", linewidth=1.0)
    rates = np.geomspace(_LOWEST_RATE, 1.0, 100)
    keys = []
    chance = axes.plot(
      rates, rates, color="#AAAAAA", linewidth=1.0, label="chance"
    )
    for index, (name, result) in enumerate(self.curves.items()):
      style = style_of(index, _FEW_POINTS + 1)
      if name == UNTRAINED:
        style |= {"color": figures.GREY, "linestyle": "--"}
      recall = result.recall_at_far[_MARKED_RATE]
      label = f"{name}: {recall:.1%}"
      axes.plot(_MARKED_RATE, recall, marker="o", color=style["color"])
      # A logarithmic axis has no 0: the recall there lasts up to the first FAR.
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


@dataclasses.dataclass(frozen=True)
class EpsilonPanel(Panel):
  """The privacy spent over rounds on a logarithmic axis.

  Attributes:
    rounds: `[n]` rounds, or when they ended.
    curves: `[n]` epsilons by name, n at least 1. The legend has the last ones.
    delta: The delta that all of them hold at.
    statement: Unit, neighbouring relation and sampling, for an overview.
    x_label: As in `RecallPanel`.
  """

  rounds: Sequence[int]
  curves: Mapping[str, Sequence[float]]
  delta: float
  statement: str
  x_label: str = ROUND

  def draw(self, axes: mpl_axes.Axes) -> None:
    keys, drawn = [], []
    for index, (name, epsilons) in enumerate(self.curves.items()):
      # Zero and infinity have no place on a logarithmic axis.
      shown = figures.only_drawable(epsilons)
      style = style_of(index, len(shown))
      last = "∞" if epsilons[-1] == math.inf else f"{epsilons[-1]:.3g}"
      label = f"{name}: ε = {last}"
      finite = shown[np.isfinite(shown)].tolist()
      if finite:
        keys += axes.plot(self.rounds, shown, label=label, **style)
        drawn += finite
      else:
        keys.append(figures.create_key(label, linestyle=""))
    figures.decorate(
      axes,
      title="Privacy spent",
      x_label=self.x_label,
      y_label=figures.epsilon_label(self.delta, " unless named"),
      keys=keys if drawn else (),
    )
    figures.set_rounds(axes, whole=self.x_label == ROUND)
    figures.set_logarithmic(axes.yaxis, drawn)
    if not drawn:
      axes.set_yticks([])
      _say(axes, "\n".join(str(key.get_label()) for key in keys))


@dataclasses.dataclass(frozen=True)
class SimilarityPanel(Panel):
  """Shares of pairs by similarity, with the thresholds of some rates.

  Attributes:
    same: Similarities of pairs of one class, `[p]` in [-1, 1].
    different: Similarities of pairs of two classes, `[m]`.
    thresholds: Similarity from which on a pair is accepted, by false accept
      rate.
  """

  same: np.ndarray
  different: np.ndarray
  thresholds: Mapping[float, float]

  def draw(self, axes: mpl_axes.Axes) -> None:
    both = np.concatenate([self.same, self.different])
    bins = np.linspace(np.min(both, initial=0.99), 1.0, _NUM_BINS + 1)
    groups = {"same class": self.same, "different classes": self.different}
    keys = []
    for index, (name, values) in enumerate(groups.items()):
      shares = np.histogram(values, bins)[0] / max(len(values), 1)
      # The outlines differ in style as well, for print without colours.
      style: dict[str, Any] = {"color": figures.COLORS[index]}
      axes.stairs(shares, bins, fill=True, alpha=0.3, **style)
      style |= {"linestyle": figures.STYLES[index], "linewidth": 1.8}
      keys.append(axes.stairs(shares, bins, label=name, **style))
    figures.decorate(
      axes,
      title="How alike two images look to the model",
      x_label="cosine similarity of two images",
      y_label="share of pairs",
      keys=keys,
    )
    # Thresholds lie anywhere, those of few pairs beyond all similarities too.
    ends = [bins[0], 1.0, *self.thresholds.values()]
    margin = 0.02 * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    top = 1.3 * axes.dataLim.y1
    axes.set_ylim(0, top)
    figures.set_percent(axes.yaxis)
    self._draw_thresholds(axes, top)

  def _draw_thresholds(self, axes: mpl_axes.Axes, top: float) -> None:
    rates = sorted(self.thresholds, reverse=True)
    middle = sum(axes.get_xlim()) / 2
    for step, rate in enumerate(rates):
      threshold = self.thresholds[rate]
      axes.axvline(threshold, color=figures.GREY, linestyle=":", linewidth=1.3)
      # One above the other: thresholds may lie close together.
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


def _say(axes, text) -> None:
  style = {"ha": "center", "va": "center", "color": figures.GREY}
  axes.text(0.5, 0.5, text, fontsize=11, transform=axes.transAxes, **style)


def style_of(index: int, num_points: int) -> dict[str, Any]:
  """Returns `figures.style_of`, with markers only where they keep apart."""
  changes = {} if num_points <= _FEW_POINTS else {"marker": ""}
  return figures.style_of(index, linewidth=2, **changes)
