"""Picture of cosine similarities, of pairs of one class and of two."""

from collections.abc import Mapping
import dataclasses

from matplotlib import axes as mpl_axes
import numpy as np

from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots

_NUM_BINS = 60


@dataclasses.dataclass(frozen=True)
class SimilarityPanel(training_plots.Panel):
  """Shares of pairs by similarity, with the thresholds of some rates.

  Attributes:
    same: Similarities of pairs of one class, `[p]` in [-1, 1].
    different: Of pairs of two classes, `[m]`.
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
      style = figures.style_of(index, linewidth=1.8)
      del style["marker"], style["markersize"]
      axes.stairs(shares, bins, fill=True, color=style["color"], alpha=0.3)
      axes.stairs(shares, bins, label=name, **style)
      keys.append(figures.create_key(name, **style))
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
