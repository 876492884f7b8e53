"""What `plan_deployment` prints, writes and draws."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import os
import textwrap
from typing import Any

import pandas as pd

from tff_fedemb.plots import deployment_plots

# Of a row: name, title, format, width.
_COLUMNS = (
  ("clients_per_round", "reports", "{:,}", 8),
  ("over_selection", "selected", "{:.0%}", 10),
  ("deadline_minutes", "deadline", "{:g} min", 10),
  ("min_separation", "separation", "{:,}", 12),
  ("noise_multiplier", "noise", "{:.3g}", 7),
  ("reported", "reported", "{:.1%}", 10),
  ("abandoned", "abandoned", "{:.1%}", 11),
  ("rounds_a_day", "a day", "{:.0f}", 7),
  ("days", "days", "{:.3g}", 7),
  ("epsilon", "epsilon", "{:.4g}", 9),
)
# By what is to be small: the best one, and a better one.
_WORDS = {"epsilon": ("cheapest", "cheaper"), "days": ("fastest", "faster")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plans:
  """Plans that were tried, and which one is the best.

  Attributes:
    rows: Values by name, of `_COLUMNS` and is_complete: whether the plan was
      simulated to its last round.
    best: Index of the recommended one; None if none is good enough.
    limited: What was to be at most `limit`, 'days' or 'epsilon'.
    limit: So much.
    sought: What was to be small, the other of the two.
    delta: At which all epsilons hold.
    caption: What the plans have in common, in words.
  """

  rows: Sequence[Mapping[str, Any]]
  best: int | None
  limited: str
  limit: float
  sought: str
  delta: float
  caption: str

  def to_lines(self) -> Iterator[str]:
    """The table, what is recommended, and where to write it down."""
    yield "".join(f"{title:>{width}}" for _, title, _, width in _COLUMNS)
    for index, row in sorted(
      enumerate(self.rows),
      key=lambda item: (item[1]["epsilon"], item[1]["days"]),
    ):
      mark = "" if row["is_complete"] else " ~"
      if index == self.best:
        mark = " <-"
      cells = (
        f"{text.format(row[n]):>{width}}" for n, _, text, width in _COLUMNS
      )
      yield "".join(cells) + mark
    if not all(row["is_complete"] for row in self.rows):
      yield "~ extrapolated from the first days"
    yield ""
    yield textwrap.fill(self.reason, 88)
    if self.best is not None:
      row = self.rows[self.best]
      yield ""
      yield "In the deployment's file, and for run_federated:"
      yield "  server:"
      for name in ("over_selection", "deadline_minutes", "min_separation"):
        yield f"    {name}: {row[name]:g}"
      yield (
        f"  --clients_per_round={row['clients_per_round']}"
        f" --noise_multiplier={row['noise_multiplier']:g}"
      )

  @property
  def reason(self) -> str:
    """What is recommended, and why."""
    rows, limited, sought = self.rows, self.limited, self.sought
    words = {
      "days": f"{self.limit:g} days",
      "epsilon": f"epsilon {self.limit:g}",
    }
    if self.best is None:
      nearest = min(rows, key=lambda row: row[limited])
      return (
        f"None of {len(rows)} plans keeps to {words[limited]}; the nearest"
        f" {self._describe(nearest)}."
      )
    best = rows[self.best]
    fitting = sum(row[limited] <= self.limit for row in rows)
    text = (
      f"Of {len(rows)} plans {fitting} keep to {words[limited]}. The"
      f" {_WORDS[sought][0]} of them is recommended: simulated to its last"
      f" round, it {self._describe(best)}."
    )
    others = [row for row in rows if row[sought] < best[sought]]
    if others:
      other = min(others, key=lambda row: row[limited])
      text += f" The next {_WORDS[sought][1]} one {self._describe(other)}."
    return text

  def _describe(self, row: Mapping[str, Any]) -> str:
    return (
      f"costs epsilon {row['epsilon']:.4g} at delta {self.delta:g} and takes"
      f" {row['days']:.3g} simulated days, with {row['clients_per_round']:,}"
      f" reports a round, {row['over_selection']:.0%} as many devices selected,"
      f" {row['deadline_minutes']:g} min for a round at most, and"
      f" {row['min_separation']:,} rounds from one of a user's to the next"
    )

  def to_json(self) -> dict[str, Any]:
    """Returns JSON values by name."""
    return {
      "delta": self.delta,
      "plans": self.rows,
      "recommended": None if self.best is None else self.rows[self.best],
      "reason": self.reason,
      "assumed": self.caption,
    }

  def draw(self, path: str | os.PathLike[str]) -> None:
    """Writes a picture of all plans as PNG."""
    # Those that come to no end have no place.
    rows = pd.DataFrame(self.rows)
    deployment_plots.plot_plans(
      path,
      rows[rows.days < float("inf")],
      recommended=self.best,
      limits={self.limited: self.limit},
      delta=self.delta,
      caption=self.caption,
    )
