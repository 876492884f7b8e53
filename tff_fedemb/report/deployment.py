"""What a report says of devices that came and went: figures and words."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

import pandas as pd

from tff_fedemb import progress
from tff_fedemb.participation import check_ins
from tff_fedemb.plots import deployment_plots
from tff_fedemb.report import words

_FATES = {
  "reported": "reported",
  "aborted": "were not needed any more once the goal was met",
  "late": "were late",
  "interrupted": "were interrupted",
  "dropped": "dropped out",
}
_EQUAL_WORK = (
  "Who drops out or is late decides who else is counted, so that it must not"
  " depend on what images a user has. By this deployment it does not: on"
  " the simulated clock every device does the same work, or takes the time of"
  " the most. Real devices would have to be made to."
)
_ASSUMED = (
  "Who drops out or is late decides who else is counted, so that it must not"
  " depend on what images a user has. Here devices do as much work as their"
  " users have images. Equal work for all, or reports padded to the time of the"
  " most, would see to it (equal_work)."
)


@dataclasses.dataclass(frozen=True)
class Deployment:
  """The devices of a run, in words.

  Attributes:
    name: Of the deployment.
    facts: What is told of them, by what it is about.
    bounds: Rows of a name, what the server enforced and what was measured.
    classes: Rows of a class of devices, its share of the devices and its share
      of the reports.
    is_assumed: Whether what epsilon needs of devices that drop out is assumed,
      not enforced.
    assumption: What that is.
  """

  name: str
  facts: Mapping[str, str]
  bounds: Sequence[tuple[str, str, str]]
  classes: Sequence[tuple[str, float, float]]
  is_assumed: bool
  assumption: str


def describe(
  summary: Mapping[str, Any],
  rounds: pd.DataFrame,
  participation: check_ins.CheckIns,
  *,
  name: str,
) -> Deployment:
  """Puts in words what came of the devices of a finished run.

  Args:
    summary: Of the run.
    rounds: A row a round, as in deployment.csv.
    participation: What the run's ledger claims for who took part.
    name: Of the deployment, or the path of its file.
  """
  found = summary["deployment"]
  abandoned, released = found["rounds_abandoned"], found["rounds_released"]
  selected = max(found["selected"], 1)
  never = found["devices_never_reached"]
  shapes = found["session_shapes"]
  unit_hours, unit = deployment_plots.choose_unit(24 * found["days"])
  facts = {
    "what it is": found["description"],
    "simulated clock": (
      f"{24 * found['days'] / unit_hours:.3g} {unit} for"
      f" {words.count(released, 'round')},"
      f" {found['rounds_a_day'] or 0:.3g} a day; in reality"
      f" {summary['wall_seconds']:,.0f} s"
    ),
    "abandoned rounds": (
      f"{abandoned:,} of {len(rounds):,}. Of these nobody sees the sum, so that"
      " they cost nothing"
    ),
    "devices selected": f"{found['selected']:,} altogether, of which "
    + ", ".join(
      f"{found[fate] / selected:.1%} {text}" for fate, text in _FATES.items()
    ),
    "sessions that began": ", ".join(
      f"{share:.1%} {shape}" for shape, share in shapes.items()
    ),
    "devices never reached": (
      f"{never:,} of {participation.num_users:,}"
      f" ({never / participation.num_users:.1%}): the model has learned nothing"
      " from them"
    ),
    "sent": (
      f"{progress.format_bytes(found['bytes_down'])} to devices,"
      f" {progress.format_bytes(found['bytes_up'])} from them"
    ),
  }
  classes = found["participation_by_device_class"]
  return Deployment(
    pathlib.PurePath(name).name,
    facts,
    _bounds(found["measured"], participation, released),
    [(kind, 1 / len(classes), share) for kind, share in classes.items()],
    not participation.equal_work,
    _EQUAL_WORK if participation.equal_work else _ASSUMED,
  )


def _bounds(
  measured: Mapping[str, Any], participation: check_ins.CheckIns, released: int
) -> list[tuple[str, str, str]]:
  separation = measured["min_separation"]
  return [
    (
      "rounds from one participation of a user to the next",
      f"at least {participation.min_separation:,}",
      "nobody came twice" if separation is None else f"{separation:,}",
    ),
    (
      "rounds of a user",
      f"at most {participation.participations(released):,}",
      f"{measured['max_participations']:,}",
    ),
  ]
