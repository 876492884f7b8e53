"""Who takes part in a run under a deployment, and what became of its rounds.

The rounds of a simulation are played from the first one on, also by a program
that goes on with a run: they are the same, and deployment.csv with them.
Training sees those alone that are released.
"""

from collections.abc import Iterable, Mapping
import csv
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
import pandas as pd

from tff_fedemb import progress as progress_lib
from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.deployment import deployment as deployment_lib
from tff_fedemb.deployment import devices as devices_lib
from tff_fedemb.deployment import simulation as simulation_lib
from tff_fedemb.participation import check_ins
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib

_COLUMNS = tuple(
  field.name for field in dataclasses.fields(simulation_lib.RoundOutcome)
)
_COUNTS = ("selected", "dropped", "interrupted", "late", "aborted", "reported")
_OF_SIMULATION = (
  *("num_users", "seed", "report_goal"),
  *("min_separation", "max_participations"),
)
MEASURED = "measured after the fact: no part of the guarantee"


class DeployedRounds:
  """The cohorts of a run, from its deployment."""

  def __init__(
    self, simulation: simulation_lib.Simulation, path: str | os.PathLike[str]
  ):
    """Initialises the rounds, of which none is played yet.

    Args:
      simulation: Before its first round.
      path: Path of deployment.csv, which gets a row for each round, those that
        are abandoned too; one that is there is written anew.
    """
    self.simulation = simulation
    self._path = pathlib.Path(path)
    self._last: simulation_lib.RoundOutcome | None = None

  @property
  def num_released(self) -> int:
    """Rounds that were played and released."""
    return 0 if self._last is None else self._last.round_num + 1

  def draw(self, round_num: int) -> list[np.ndarray]:
    """Returns the clients of a round, one for each device that reported.

    Args:
      round_num: Number among the rounds that are released; not before that of
        an earlier call.
    """
    self.play(round_num + 1)
    if round_num != self._last.round_num:
      raise ValueError(f"round_num must not go back, found {round_num}.")
    slots = self._last.reported
    return [slots[i : i + 1] for i in range(slots.size)]

  def play(self, rounds: int) -> None:
    """Plays until so many rounds have been released, if they are not yet."""
    is_new = self._last is None
    with (
      open(self._path, "w" if is_new else "a", newline="") as file,
      progress_lib.create_bar(
        "Playing the deployment",
        unit="rounds",
        total=rounds,
        initial=self.num_released,
      ) as progress,
    ):
      writer = csv.writer(file, lineterminator="\n")
      if is_new:
        writer.writerow(_COLUMNS)
      while self.num_released < rounds:
        outcome = self.simulation.next_round()
        row = {name: getattr(outcome, name) for name in _COLUMNS}
        row["abandoned"] = int(outcome.abandoned)
        row["reported"] = outcome.reported.size
        writer.writerow(row.values())
        if not outcome.abandoned:
          self._last = outcome
          progress.update()

  def summarize(
    self,
    ledger: ledger_lib.Ledger,
    trace: Iterable[participation_trace.RecordedRound],
  ) -> dict[str, Any]:
    """Summarizes what came of the deployment of a run that is complete.

    Privacy:
      The epsilon under "measured" is for comparison: it takes the separation
      and the number of participations that came about for enforced ones.

    Args:
      ledger: Ledger of the run, by participation check_ins.
      trace: Rounds of its trace.

    Returns:
      JSON values by name; shares are of 1.
    """
    # A program that has had nothing to train has not played them.
    self.play(ledger.rounds)
    rows, simulation = pd.read_csv(self._path), self.simulation
    released = rows[rows.abandoned == 0]
    days = float(rows.end_hours.iloc[-1]) / 24
    sums = {name: int(rows[name].sum()) for name in _COUNTS}
    slots, counts = simulation.participations()
    classes = simulation.devices.device_class(slots)
    by_class = np.bincount(
      classes, weights=counts, minlength=len(devices_lib.CLASSES)
    )
    claim = ledger.participation
    observed = participation_check.observe(claim.num_users, trace)
    measured = check_ins.CheckIns(
      claim.num_users,
      claim.users_per_round,
      min_separation=observed.min_separation or max(ledger.rounds, 1),
      max_participations=max(observed.max_participations, 1),
    )
    began = max(sums["selected"] - sums["dropped"], 1)
    return report_lib.json_safe(
      {
        "description": simulation.deployment.description,
        "days": days,
        "rounds_a_day": len(released) / days if days else None,
        "rounds_released": len(released),
        "rounds_abandoned": len(rows) - len(released),
        **sums,
        "dropout": (sums["dropped"] + sums["interrupted"])
        / max(sums["selected"], 1),
        "session_shapes": {
          "finished": sums["reported"] / began,
          "rejected": (sums["aborted"] + sums["late"]) / began,
          "interrupted": sums["interrupted"] / began,
        },
        "bytes_down": int(rows.bytes_down.sum()),
        "bytes_up": int(rows.bytes_up.sum()),
        "devices_never_reached": simulation.num_users - slots.size,
        "participation_by_device_class": {
          name: float(share)
          for name, share in zip(
            devices_lib.CLASSES, by_class / max(counts.sum(), 1), strict=True
          )
        },
        "enforced": {
          "min_separation": claim.min_separation,
          "max_participations": claim.max_participations,
          "min_separation_hours": (
            simulation.deployment.server.min_separation_hours
          ),
        },
        "measured": {
          "note": MEASURED,
          "min_separation": observed.min_separation,
          "max_participations": observed.max_participations,
          "epsilon": dataclasses.replace(ledger, participation=measured)
          .report()
          .epsilon,
        },
        "assumption": claim.sampling,
      }
    )


def create_simulation(values: Mapping[str, Any]) -> simulation_lib.Simulation:
  """Creates the simulation that a run's deployment.json describes.

  Args:
    values: As `describe` returns them.

  Raises:
    errors.FieldError: If one is missing or out of its range.
  """
  return simulation_lib.Simulation(
    deployment_lib.parse(values["deployment"]),
    work=simulation_lib.WorkOfRound(**values["work"]),
    **{name: values[name] for name in _OF_SIMULATION},
  )


def describe(simulation: simulation_lib.Simulation) -> dict[str, Any]:
  """The contents of deployment.json: all that a run's rounds follow from."""
  return {
    "deployment": simulation.deployment.to_json(),
    "work": dataclasses.asdict(simulation.work),
    **{name: getattr(simulation, name) for name in _OF_SIMULATION},
  }
