"""A training run under a deployment: its flags, rounds and summary.

A program that goes on with a run plays the rounds of the simulation from the
first one on: they are the same, and so is deployment.csv. Training sees the
released rounds alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import csv
import dataclasses
import os
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.deployment import deployment as deployment_lib
from tff_fedemb.deployment import devices as devices_lib
from tff_fedemb.deployment import simulation as simulation_lib
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.records import run_directory

# A round takes some milliseconds to play, and a dry run should be quick.
_MAX_ROUNDS_PLAYED = 1000
_COLUMNS = tuple(
  field.name for field in dataclasses.fields(simulation_lib.RoundOutcome)
)
_COUNTS = ("selected", "dropped", "interrupted", "late", "aborted", "reported")
_OF_SIMULATION = (
  *("num_users", "seed", "report_goal"),
  *("min_separation", "max_participations"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeploymentConfig(config_lib.Config):
  """Devices that come and go, and the server that waits for them.

  Attributes:
    deployment: Devices that come and go, and the server that waits for them:
      ideal, phones, harsh or a YAML file. Who takes part then is participation
      check_ins, with clients_per_round the report goal.
    deployment_seed: Seed of the devices and of whom the server selects. Nothing
      private rests on it.
  """

  deployment: str | None = config_lib.field(None, path=True)
  deployment_seed: int = config_lib.field(0, minimum=0, maximum=2**63 - 1)


def read_simulation(values: Mapping[str, Any]) -> simulation_lib.Simulation:
  """Creates the simulation that a run's deployment.json describes.

  Args:
    values: As `describe` returns them.

  Returns:
    The simulation, before its first round.

  Raises:
    errors.FieldError: If one is missing or out of its range.
  """
  must = "hold whole files of a run"
  with errors.as_field_error("run_dir", must, run_directory.DEPLOYMENT):
    return simulation_lib.Simulation(
      deployment_lib.parse(values["deployment"]),
      work=simulation_lib.WorkOfRound(**values["work"]),
      **{name: values[name] for name in _OF_SIMULATION},
    )


def describe(simulation: simulation_lib.Simulation) -> dict[str, Any]:
  """Returns the contents of deployment.json, which decide the run's rounds.

  Args:
    simulation: Simulation of the run; its progress does not matter.

  Returns:
    JSON values by name, for `read_simulation`.
  """
  return {
    "deployment": simulation.deployment.to_json(),
    "work": dataclasses.asdict(simulation.work),
    **{name: getattr(simulation, name) for name in _OF_SIMULATION},
  }


class DeployedRounds:
  """The cohorts of a run, from its deployment.

  The simulation is deterministic, so a program that goes on with a run plays
  the rounds from the first one again, and comes to the same cohorts.
  """

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
    self._path = path
    self._rows: list[tuple[Any, ...]] = []
    self._num_released = 0
    self._reported = np.zeros(0, np.int64)

  @property
  def rows(self) -> pd.DataFrame:
    """Rows of deployment.csv so far."""
    return pd.DataFrame(self._rows, columns=_COLUMNS)

  def draw(self, round_num: int) -> list[np.ndarray]:
    """Returns the clients of a round, one for each device that reported.

    Args:
      round_num: Number among the rounds that are released; not before that of
        an earlier call.

    Returns:
      Slots of the users of each client, int64 `[1]`.

    Raises:
      errors.DataError: If a round could not be released for a month.
      ValueError: If `round_num` is before that of an earlier call.
    """
    self.play(round_num + 1)
    if round_num + 1 != self._num_released:
      raise ValueError(f"round_num must not go back, found {round_num}.")
    return list(self._reported[:, np.newaxis])

  def play(self, rounds: int) -> None:
    """Plays until a number of rounds have been released.

    Abandoned rounds get a row too, and are not counted.

    Args:
      rounds: Number of rounds that are released then, from the first one on.

    Raises:
      errors.DataError: If a round could not be released for a month.
      OSError: If deployment.csv cannot be written.
    """
    with open(self._path, "a" if self._rows else "w", newline="") as file:
      writer = csv.writer(file, lineterminator="\n")
      if not self._rows:
        writer.writerow(_COLUMNS)
      while self._num_released < rounds:
        outcome = self.simulation.next_round()
        row = {name: getattr(outcome, name) for name in _COLUMNS}
        row["abandoned"] = int(outcome.abandoned)
        row["reported"] = outcome.reported.size
        self._rows.append(tuple(row.values()))
        writer.writerow(self._rows[-1])
        if not outcome.abandoned:
          self._num_released += 1
          self._reported = outcome.reported

  def summarize(
    self,
    ledger: ledger_lib.Ledger,
    trace: Iterable[participation_trace.RecordedRound],
  ) -> dict[str, Any]:
    """Summarizes the deployment of a complete run.

    Privacy:
      The epsilon under "measured" is for comparison: it takes the separation
      and the number of participations that came about for enforced ones.

    Args:
      ledger: Ledger of the run, by participation check_ins.
      trace: Rounds of its trace.

    Returns:
      JSON values by name; shares are in [0, 1].

    Raises:
      errors.DataError: If a round could not be released for a month.
    """
    # A program that had no rounds left to train has not played them.
    self.play(ledger.rounds)
    rows, simulation = self.rows, self.simulation
    released = rows[rows.abandoned == 0]
    days = float(rows.end_hours.iloc[-1]) / 24
    sums = {name: int(rows[name].sum()) for name in _COUNTS}
    lost = sums["dropped"] + sums["interrupted"]
    began = max(sums["selected"] - sums["dropped"], 1)
    summary = {
      "description": simulation.deployment.description,
      "days": days,
      "rounds_a_day": len(released) / days if days else None,
      "rounds_released": len(released),
      "rounds_abandoned": len(rows) - len(released),
      **sums,
      "dropout": lost / max(sums["selected"], 1),
      "session_shapes": {
        "finished": sums["reported"] / began,
        "rejected": (sums["aborted"] + sums["late"]) / began,
        "interrupted": sums["interrupted"] / began,
      },
      "bytes_down": int(rows.bytes_down.sum()),
      "bytes_up": int(rows.bytes_up.sum()),
      **self._count_participations(),
      "measured": _measure(ledger, trace),
    }
    return report_lib.json_safe(summary)

  def _count_participations(self) -> dict[str, Any]:
    """Counts devices that no round reached, and shares by class of device.

    Returns:
      `devices_never_reached`, a number, and `participation_by_device_class`,
      shares of all participations by the name of the class.
    """
    slots, counts = self.simulation.participations()
    classes = self.simulation.devices.device_class(slots)
    names = devices_lib.CLASSES
    by_class = np.bincount(classes, weights=counts, minlength=len(names))
    shares = (by_class / max(counts.sum(), 1)).tolist()
    return {
      "devices_never_reached": self.simulation.num_users - slots.size,
      "participation_by_device_class": dict(zip(names, shares, strict=True)),
    }


def _measure(
  ledger: ledger_lib.Ledger,
  trace: Iterable[participation_trace.RecordedRound],
) -> dict[str, Any]:
  """Participation as it came about, and epsilon if it had been enforced.

  Args:
    ledger: Ledger of the run, by participation check_ins.
    trace: Rounds of its trace.

  Returns:
    JSON values by name: `note`, `min_separation`, `max_participations` and
    `epsilon`, which may be infinite.
  """
  claim = ledger.participation
  observed = participation_check.observe(claim.num_slots, trace)
  bounds: dict[str, Any] = {
    "min_separation": observed.min_separation or max(ledger.rounds, 1),
    "max_participations": max(observed.max_participations, 1),
  }
  measured = dataclasses.replace(claim, **bounds)
  report = dataclasses.replace(ledger, participation=measured).report()
  return {
    "note": "measured after the fact: no part of the guarantee",
    "min_separation": observed.min_separation,
    "max_participations": observed.max_participations,
    "epsilon": report.epsilon,
  }


def open_rounds(
  simulation: simulation_lib.Simulation,
  directory: run_directory.RunDirectory,
) -> DeployedRounds:
  """Opens the rounds of a run that begins or goes on.

  Args:
    simulation: Simulation of the run, before its first round.
    directory: Directory of the run.

  Returns:
    The rounds, none of them played.

  Raises:
    errors.FieldError: If the run began under another deployment.
  """
  values = describe(simulation)
  found = directory.read_json(run_directory.DEPLOYMENT)
  if found is None:
    directory.write_json(run_directory.DEPLOYMENT, values)
  elif different := run_directory.differ(found, values):
    raise errors.FieldError(
      "deployment", "be as it was when the run began", different
    )
  return DeployedRounds(
    simulation, directory.path / run_directory.DEPLOYED_ROUNDS
  )


def tell_timetable(simulation: simulation_lib.Simulation, rounds: int) -> str:
  """Plays the rounds of a run without training, and says how long they take.

  Args:
    simulation: Before its first round.
    rounds: Rounds of the run. No more than `_MAX_ROUNDS_PLAYED` are played.

  Returns:
    Days, rounds an hour, and shares of the rounds and devices that are lost.

  Raises:
    errors.DataError: If a round could not be released for a month.
  """
  played = min(rounds, _MAX_ROUNDS_PLAYED)
  deployed = DeployedRounds(simulation, os.devnull)
  deployed.play(played)
  rows = deployed.rows
  hours = rows.end_hours.iloc[-1]
  shares = rows[list(_COUNTS)].sum() / max(rows.selected.sum(), 1)
  first = "" if played == rounds else f"first {played:,} of "
  return (
    f"Deployment: {simulation.deployment.description} The {first}{rounds:,}"
    f" rounds take {hours / 24:.3g} simulated days:"
    f" {played / max(hours, 1e-9):.3g} rounds an hour,"
    f" {1 - played / len(rows):.1%} of the rounds abandoned;"
    f" {shares.dropped:.1%} of the selected devices drop out,"
    f" {shares.interrupted:.1%} are interrupted, {shares.late:.1%} are"
    f" late, {shares.aborted:.1%} are aborted beyond the goal."
  )
