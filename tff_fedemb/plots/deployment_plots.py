"""Pictures of devices that come and go: a week of a run, and plans for one.

What devices do in a round is drawn in the manner of figures 5 to 7 of Bonawitz
et al. 2019, "Towards Federated Learning at Scale: System Design". Time is that
of the simulation.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import ticker
import numpy as np
import pandas as pd

from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots

DAYS = "simulated days"
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
    days, shares = shown.start_hours / 24, shown.available_share
    color = figures.COLORS[2]
    axes.plot(days, shares, color=color, linewidth=1.6)
    axes.fill_between(days, 0, shares, color=color, alpha=0.15, linewidth=0)
    figures.decorate(
      axes,
      title=f"Devices available{_in_words(self.rounds)}",
      x_label=DAYS,
      y_label="share of all devices",
    )
    figures.set_rounds(axes, [0, *shown.end_hours / 24], whole=False)
    axes.set_ylim(0, 1.12 * max(shares, default=1.0) or 1.0)
    axes.yaxis.set_major_formatter(
      ticker.FuncFormatter(lambda share, _: f"{100 * share:.3g}%")
    )


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
    # From the start of a block to its end, nothing in between.
    days = blocks[["start_hours", "end_hours"]].to_numpy().ravel() / 24
    bottom = np.zeros(len(days))
    keys = []
    for column, (label, color) in _FATES.items():
      counts = blocks[column].to_numpy(float)
      top = bottom + np.stack([counts, np.zeros_like(counts)], 1).ravel()
      style: dict[str, Any] = {"color": color, "linewidth": 0}
      axes.fill_between(days, bottom, top, step="post", **style)
      share = shown[column].sum() / max(shown.selected.sum(), 1)
      keys.append(
        figures.create_key(f"{label}: {share:.1%}", color=color, linewidth=6)
      )
      bottom = top
    highest = max(shown.selected, default=1)
    abandoned = shown[shown.abandoned.astype(bool)]
    if len(abandoned):
      axes.plot(
        abandoned.start_hours / 24,
        np.full(len(abandoned), 1.06 * highest),
        **_ABANDONED,
      )
      label = f"abandoned: {len(abandoned):,} of {len(shown):,}"
      keys.append(figures.create_key(label, **_ABANDONED))
    figures.decorate(
      axes,
      title=f"Selected devices{_in_words(self.rounds)}",
      x_label=DAYS,
      y_label="devices in a round",
    )
    figures.set_rounds(axes, [0, *days], whole=False)
    # The legend goes above.
    axes.set_ylim(0, 1.45 * highest)
    axes.legend(handles=keys, **training_plots.LEGEND)


def in_days(
  panel: training_plots.RecallPanel | training_plots.EpsilonPanel,
  rounds: pd.DataFrame,
) -> Any:
  """Returns a panel over the days of a simulation in place of rounds.

  Args:
    panel: Whose rounds are numbers of rounds that are done, 0 before training.
    rounds: As in `ReportsPanel`.
  """
  released = rounds[~rounds.abandoned.astype(bool)]
  ends = np.concatenate([[0.0], released.end_hours / 24])
  return dataclasses.replace(
    panel, rounds=ends[np.asarray(panel.rounds, int)], x_label=DAYS
  )


def create_week(
  rounds: pd.DataFrame,
  recall: training_plots.RecallPanel,
  epsilon: training_plots.EpsilonPanel,
) -> list[training_plots.Panel]:
  """Returns the four panels of a run with a deployment, by rows.

  Args:
    rounds: As in `ReportsPanel`.
    recall: Over rounds that are done.
    epsilon: As recall.
  """
  return [
    AvailabilityPanel(rounds),
    in_days(recall, rounds),
    ReportsPanel(rounds),
    in_days(epsilon, rounds),
  ]


def plot_plans(
  path: str | os.PathLike[str],
  plans: pd.DataFrame,
  *,
  recommended: int | None,
  limits: Mapping[str, float],
  delta: float,
  caption: str,
) -> None:
  """Writes the epsilon of plans against the days that they take.

  Args:
    path: PNG file to write.
    plans: With columns `clients_per_round`, of which at most
      `figures.MAX_CURVES` are different, `days` and `epsilon`.
    recommended: Index of the one to mark; None for none.
    limits: The most `days` or the most `epsilon` that was asked for.
    delta: At which all epsilons hold.
    caption: What the plans have in common, printed below the axes.
  """
  figure, ((axes,),) = figures.create_figure(
    *(8.4, 5.0), statement=caption, letters=108
  )
  keys = []
  for index, (clients, some) in enumerate(plans.groupby("clients_per_round")):
    style = figures.style_of(index, linestyle="", markersize=6)
    axes.plot(some.days, some.epsilon, alpha=0.8, **style)
    keys.append(figures.create_key(f"{clients:,} a round", **style))
  groups: dict[str, Sequence[Any]] = {"report goal": keys}
  marks = []
  line = {"color": figures.GREY, "linestyle": ":", "linewidth": 1.4}
  for name, limit in limits.items():
    (axes.axvline if name == "days" else axes.axhline)(limit, **line)
    marks.append(figures.create_key(f"{name} wanted: {limit:g}", **line))
  if recommended is not None:
    ring: dict[str, Any] = {"marker": "o", "markersize": 15, "linestyle": ""}
    ring |= {"markerfacecolor": "none", "markeredgecolor": "black"}
    best = plans.loc[recommended]
    axes.plot(best.days, best.epsilon, **ring)
    marks.append(figures.create_key("recommended", **ring | {"markersize": 9}))
  if marks:
    groups["how to read it"] = marks
  figures.decorate(
    axes,
    title="Plans: what they cost, and how long they take",
    x_label="simulated days to the last round",
    y_label=figures.epsilon_label(delta),
  )
  for name, axis in (("days", axes.xaxis), ("epsilon", axes.yaxis)):
    shown = [*plans[name], *([limits[name]] if name in limits else [])]
    figures.set_epsilons(axes, axis, shown)
  figures.set_legend(figure, groups)
  figures.write(figure, path)
