"""Picture of cosine similarities, of pairs of one class and of two."""

from collections.abc import Mapping
import dataclasses

from matplotlib import axes as mpl_axes
from matplotlib import ticker
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
    low, high = float(np.min(both, initial=1.0)), 1.0
    bins = np.linspace(min(low, 0.99), high, _NUM_BINS + 1)
    groups = {"same class": self.same, "different classes": self.different}
    for index, (name, values) in enumerate(groups.items()):
      counts, _ = np.histogram(values, bins)
      color = figures.COLORS[index]
      shares = counts / max(len(values), 1)
      axes.stairs(shares, bins, fill=True, color=color, alpha=0.3)
      # The outlines differ in style as well, for print without colours.
      axes.stairs(
        shares,
        bins,
        color=color,
        linewidth=1.8,
        linestyle=figures.STYLES[index],
        label=name,
      )
    figures.decorate(
      axes,
      title="How alike two images look to the model",
      x_label="cosine similarity of two images",
      y_label="share of pairs",
    )
    axes.set_xlim(bins[0], high)
    top = 1.5 * axes.get_ylim()[1]
    axes.set_ylim(0, top)
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    self._draw_thresholds(axes, top)
    style = {"fontsize": 9, "frameon": False, "loc": "upper left"}
    axes.legend(**style, borderaxespad=0.2)

  def _draw_thresholds(self, axes: mpl_axes.Axes, top: float) -> None:
    rates = sorted(self.thresholds, reverse=True)
    for step, rate in enumerate(rates):
      threshold = self.thresholds[rate]
      axes.axvline(threshold, color=figures.GREY, linestyle=":", linewidth=1.3)
      # One above the other: thresholds may lie close together.
      text = f"FAR {verification.format_false_accept_rate(rate)} "
      axes.text(
        threshold,
        top * (0.79 + 0.07 * step),
        text,
        ha="right",
        va="center",
        fontsize=9,
        color="#333333",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7},
      )
