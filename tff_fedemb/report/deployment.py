"""What a report says of devices that came and went: figures and words."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib

from tff_fedemb import progress
from tff_fedemb.participation import check_ins
from tff_fedemb.plots import deployment_plots
from tff_fedemb.report import run_files
from tff_fedemb.report import words

_FATES = {
  "reported": "reported",
  "aborted": "were not needed any more once the goal was met",
  "late": "were late",
  "interrupted": "were interrupted",
  "dropped": "dropped out",
}
_MUST = (
  "Who drops out or is late decides who else is counted, so it must not depend"
  " on what images a user has."
)
_EQUAL_WORK = (
  f"{_MUST} By this deployment it does not: on the simulated clock every device"
  " does the same work, or takes the time of the most. Real devices would have"
  " to be made to do so."
)
_ASSUMED = (
  f"{_MUST} Here devices do as much work as their users have images. Equal work"
  " for all, or reports padded to the time of the most, would ensure it"
  " (equal_work)."
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


def describe(run: run_files.Run) -> Deployment | None:
  """Puts in words what came of the devices of a run; `None` without any."""
  claim = run.account.ledger.participation
  if run.deployment is None or not isinstance(claim, check_ins.CheckIns):
    return None
  found = run.summary["deployment"]
  abandoned, released = found["rounds_abandoned"], found["rounds_released"]
  selected = max(found["selected"], 1)
  never, measured = found["devices_never_reached"], found["measured"]
  separation = measured["min_separation"]
  unit_hours, unit = deployment_plots.choose_unit(24 * found["days"])
  fates = [f"{found[x] / selected:.1%} {text}" for x, text in _FATES.items()]
  shapes = [f"{x:.1%} {shape}" for shape, x in found["session_shapes"].items()]
  classes = found["participation_by_device_class"]
  return Deployment(
    name=pathlib.PurePath(str(run.settings["deployment"])).name,
    facts={
      "what it is": found["description"],
      "simulated clock": (
        f"{24 * found['days'] / unit_hours:.3g} {unit} for"
        f" {words.count(released, 'round')},"
        f" {found['rounds_a_day'] or 0:.3g} a day; in reality"
        f" {run.summary['wall_seconds']:,.0f} s"
      ),
      "abandoned rounds": (
        f"{abandoned:,} of {len(run.deployment):,}. Nobody sees their sums, so"
        " they cost nothing"
      ),
      "devices selected": (
        f"{found['selected']:,} altogether, of which {', '.join(fates)}"
      ),
      "sessions that began": ", ".join(shapes),
      "devices never reached": (
        f"{never:,} of {claim.num_users:,} ({never / claim.num_users:.1%}): the"
        " model has learned nothing from them"
      ),
      "sent": (
        f"{progress.format_bytes(found['bytes_down'])} to devices,"
        f" {progress.format_bytes(found['bytes_up'])} from them"
      ),
    },
    bounds=[
      (
        "rounds from one participation of a user to the next",
        f"at least {claim.min_separation:,}",
        "nobody came twice" if separation is None else f"{separation:,}",
      ),
      (
        "rounds of a user",
        f"at most {claim.participations(released):,}",
        f"{measured['max_participations']:,}",
      ),
    ],
    classes=[(kind, 1 / len(classes), x) for kind, x in classes.items()],
    is_assumed=not claim.equal_work,
    assumption=_EQUAL_WORK if claim.equal_work else _ASSUMED,
  )
