"""Pictures of devices that come and go: a week of a run.

What devices do in a round is drawn in the manner of figures 5 to 7 of Bonawitz
et al. 2019, "Towards Federated Learning at Scale: System Design". Time is that
of the simulation.
"""

import dataclasses
from typing import Any

from matplotlib import axes as mpl_axes
import numpy as np
import pandas as pd

from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots

HOURS_OF_WEEK = 7 * 24.0

# What became of the selected devices, by column, from the bottom up.
_FATES = {
  "reported": ("reported", figures.COLORS[0]),
  "aborted": ("not needed", figures.COLORS[5]),
  "late": ("late", figures.COLORS[4]),
  "interrupted": ("interrupted", figures.COLORS[3]),
  "dropped": ("dropped out", figures.COLORS[1]),
}
_ABANDONED: dict[str, Any] = {
  "color": "black",
  "marker": "x",
  "linestyle": "",
  "markersize": 5,
}
# Rounds of a week that can be told apart; more are drawn as means of several.
_MAX_BLOCKS = 168


def _first_week(rounds: pd.DataFrame) -> pd.DataFrame:
  return rounds[rounds.start_hours < HOURS_OF_WEEK]


def choose_unit(hours: float) -> tuple[float, str]:
  """Hours of a unit of which a time has some, and what the unit is called."""
  for unit_hours, name in ((24.0, "days"), (1.0, "hours")):
    if hours >= 2 * unit_hours:
      return unit_hours, name
  return 1 / 60, "minutes"


def _clock(rounds: pd.DataFrame) -> tuple[float, str]:
  """Hours of the unit of an axis of these rounds, and the axis's name."""
  unit_hours, name = choose_unit(rounds.end_hours.max())
  return unit_hours, f"simulated {name}"


def _in_words(rounds: pd.DataFrame) -> str:
  """Which of the rounds are shown."""
  return "" if len(_first_week(rounds)) == len(rounds) else ", first week"


@dataclasses.dataclass(frozen=True)
class AvailabilityPanel(training_plots.Panel):
  """The share of devices that are there, over the first week.

  Attributes:
    rounds: A row a round, abandoned ones too, with columns `start_hours` and
      `end_hours` of the simulated clock, and `available_share` in [0, 1].
  """

  rounds: pd.DataFrame

  def draw(self, axes: mpl_axes.Axes) -> None:
    shown = _first_week(self.rounds)
    unit_hours, x_label = _clock(self.rounds)
    times, shares = shown.start_hours / unit_hours, shown.available_share
    style = training_plots.style_of(2, len(shown)) | {"linestyle": "-"}
    axes.plot(times, shares, **style)
    axes.fill_between(
      times, 0, shares, color=style["color"], alpha=0.15, linewidth=0
    )
    figures.decorate(
      axes,
      title=f"Devices available{_in_words(self.rounds)}",
      x_label=x_label,
      y_label="share of all devices",
    )
    figures.set_rounds(axes, shown.end_hours / unit_hours, whole=False)
    figures.set_shares(axes.yaxis, [axes], from_zero=True)


def _blocks(rounds: pd.DataFrame) -> pd.DataFrame:
  """Means of neighbouring rounds, so many that they can be told apart."""
  group = np.arange(len(rounds)) // -(-len(rounds) // _MAX_BLOCKS or 1)
  columns = {name: (name, "mean") for name in _FATES}
  return rounds.groupby(group).agg(
    start_hours=("start_hours", "first"),
    end_hours=("end_hours", "last"),
    **columns,
  )


@dataclasses.dataclass(frozen=True)
class ReportsPanel(training_plots.Panel):
  """What became of the devices of each round, over the first week.

  Attributes:
    rounds: As in `AvailabilityPanel`, with columns `abandoned` and `selected`,
      and the numbers of devices that `reported`, or were `aborted`, `late`,
      `interrupted` or `dropped`.
  """

  rounds: pd.DataFrame

  def draw(self, axes: mpl_axes.Axes) -> None:
    shown = _first_week(self.rounds)
    blocks = _blocks(shown)
    unit_hours, x_label = _clock(self.rounds)
    # From the start of a block to its end, nothing in between.
    times = blocks[["start_hours", "end_hours"]].to_numpy().ravel() / unit_hours
    bottom = np.zeros(len(times))
    keys = []
    for column, (label, color) in _FATES.items():
      counts = blocks[column].to_numpy(float)
      top = bottom + np.stack([counts, np.zeros_like(counts)], 1).ravel()
      style: dict[str, Any] = {"color": color, "linewidth": 0}
      axes.fill_between(times, bottom, top, step="post", **style)
      share = shown[column].sum() / max(shown.selected.sum(), 1)
      keys.append(
        figures.create_key(f"{label}: {share:.1%}", color=color, linewidth=6)
      )
      bottom = top
    highest = max(shown.selected, default=1)
    abandoned = shown[shown.abandoned.astype(bool)]
    if len(abandoned):
      axes.plot(
        abandoned.start_hours / unit_hours,
        np.full(len(abandoned), 1.06 * highest),
        **_ABANDONED,
      )
      label = f"abandoned: {len(abandoned):,} of {len(shown):,}"
      keys.append(figures.create_key(label, **_ABANDONED))
    figures.decorate(
      axes,
      title=f"Selected devices{_in_words(self.rounds)}",
      x_label=x_label,
      y_label="devices in a round",
      keys=keys,
    )
    figures.set_rounds(axes, times, whole=False)
    axes.set_ylim(0, 1.12 * highest)


def over_time(
  panel: training_plots.RecallPanel | training_plots.EpsilonPanel,
  rounds: pd.DataFrame,
) -> Any:
  """Returns a panel over the time of a simulation in place of rounds.

  Args:
    panel: Whose rounds are numbers of rounds that are done, 0 before training.
    rounds: As in `ReportsPanel`.
  """
  released = rounds[~rounds.abandoned.astype(bool)]
  unit_hours, x_label = _clock(rounds)
  ends = np.concatenate([[0.0], released.end_hours / unit_hours])
  return dataclasses.replace(
    panel, rounds=ends[np.asarray(panel.rounds, int)], x_label=x_label
  )
