"""Pictures of devices that come and go: a week of a run.

Pictures of devices in a round follow figures 5 to 7 of Bonawitz et al. 2019,
"Towards Federated Learning at Scale: System Design". Time is that of the
simulation.
"""

import dataclasses
from typing import Any

from matplotlib import axes as mpl_axes
import numpy as np
import pandas as pd

from tff_fedemb import progress
from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots

HOURS_OF_WEEK = 7 * 24.0

# The fates of selected devices, by column, from the bottom up.
_FATES = {
  "reported": ("reported", figures.COLORS[0]),
  "aborted": ("not needed", figures.COLORS[5]),
  "late": ("late", figures.COLORS[4]),
  "interrupted": ("interrupted", figures.COLORS[3]),
  "dropped": ("dropped out", figures.COLORS[1]),
}
# Rounds of a week that can be told apart; more are drawn as means of several.
_MAX_BLOCKS = 168


def _clock(rounds: pd.DataFrame) -> tuple[float, str]:
  """Hours of the unit of an axis of these rounds, and the axis's name."""
  unit_hours, name = progress.choose_unit(rounds.end_hours.max())
  return unit_hours, f"simulated {name}"


@dataclasses.dataclass(frozen=True)
class _WeekPanel(training_plots.Panel):
  """Something about the first week of a run."""

  rounds: pd.DataFrame

  def _decorate(self, axes: mpl_axes.Axes, title: str, **options: Any) -> None:
    _, x_label = _clock(self.rounds)
    is_whole = len(self._first_week) == len(self.rounds)
    title += "" if is_whole else ", first week"
    figures.decorate(axes, title=title, x_label=x_label, **options)
    figures.set_rounds(axes, whole=False)

  @property
  def _first_week(self) -> pd.DataFrame:
    return self.rounds[self.rounds.start_hours < HOURS_OF_WEEK]


@dataclasses.dataclass(frozen=True)
class AvailabilityPanel(_WeekPanel):
  """The share of devices that are there, over the first week.

  Attributes:
    rounds: A row a round, abandoned ones too, with columns `start_hours` and
      `end_hours` of the simulated clock, and `available_share` in [0, 1].
  """

  def draw(self, axes: mpl_axes.Axes) -> None:
    shown = self._first_week
    times = shown.start_hours / _clock(self.rounds)[0]
    style = training_plots.style_of(2, len(shown)) | {"linestyle": "-"}
    axes.plot(times, shown.available_share, **style)
    fill = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
    axes.fill_between(times, 0, shown.available_share, **fill)
    self._decorate(axes, "Devices available", y_label="share of all devices")
    figures.set_shares(axes.yaxis, from_zero=True)


@dataclasses.dataclass(frozen=True)
class ReportsPanel(_WeekPanel):
  """Fates of the devices of each round, over the first week.

  Attributes:
    rounds: As in `AvailabilityPanel`, with columns `abandoned` and `selected`,
      and the numbers of devices that `reported`, or were `aborted`, `late`,
      `interrupted` or `dropped`.
  """

  def draw(self, axes: mpl_axes.Axes) -> None:
    shown, fates = self._first_week, [*_FATES]
    unit_hours, _ = _clock(self.rounds)
    # Means of neighbouring rounds, so many that they can be told apart.
    group = np.arange(len(shown)) // -(-len(shown) // _MAX_BLOCKS)
    blocks = shown.groupby(group)
    # Counts are level from the start of a block to its end, then drop to 0.
    starts, ends = blocks.start_hours.first(), blocks.end_hours.last()
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
    keys = [
      figures.create_key(f"{label}: {shares[x]:.1%}", color=color, linewidth=6)
      for x, (label, color) in _FATES.items()
    ]
    highest = max(shown.selected)
    abandoned = shown.start_hours[shown.abandoned.astype(bool)] / unit_hours
    if len(abandoned):
      label = f"abandoned: {len(abandoned):,} of {len(shown):,}"
      heights = np.full(len(abandoned), 1.06 * highest)
      keys += axes.plot(abandoned, heights, "kx", markersize=5, label=label)
    self._decorate(
      axes, "Selected devices", y_label="devices in a round", keys=keys
    )
    axes.set_ylim(0, 1.12 * highest)


def over_time(
  panel: training_plots.RecallPanel | training_plots.EpsilonPanel,
  rounds: pd.DataFrame,
) -> Any:
  """Returns a panel over the time of a simulation in place of rounds.

  Args:
    panel: Panel over numbers of finished rounds, 0 before training.
    rounds: As in `ReportsPanel`.
  """
  released = rounds[~rounds.abandoned.astype(bool)]
  unit_hours, x_label = _clock(rounds)
  ends = np.concatenate([[0.0], released.end_hours / unit_hours])
  return dataclasses.replace(
    panel, rounds=ends[np.asarray(panel.rounds, int)], x_label=x_label
  )
