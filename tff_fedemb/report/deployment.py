"""What a report says of devices that came and went."""

import pathlib
from typing import Any

from tff_fedemb.participation import check_ins
from tff_fedemb.plots import deployment_plots
from tff_fedemb.report import run_files

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


def describe(run: run_files.Run) -> dict[str, Any] | None:
  """Describes what came of the devices of a run.

  Returns:
    `None` without any. Else by name:

    name: Of the deployment.
    found: What came of it, as summary.json has it.
    simulated: How long the run took on the simulated clock, in words.
    num_rounds: Rounds, abandoned ones included.
    num_users: Size of the population.
    fates: Shares of the selected devices by what became of them.
    bounds: Rows of a name, what the server enforced and what was measured.
    is_assumed: Whether what epsilon needs of devices that drop out is assumed,
      not enforced.
    assumption: What that is.
  """
  claim = run.account.ledger.participation
  if run.deployment is None or not isinstance(claim, check_ins.CheckIns):
    return None
  found = run.summary["deployment"]
  measured = found["measured"]
  separation = measured["min_separation"]
  most = claim.participations(found["rounds_released"])
  return {
    "name": pathlib.PurePath(str(run.settings["deployment"])).name,
    "found": found,
    "simulated": deployment_plots.say_time(24 * found["days"]),
    "num_rounds": len(run.deployment),
    "num_users": claim.num_users,
    "fates": {
      text: found[fate] / max(found["selected"], 1)
      for fate, text in _FATES.items()
    },
    "bounds": [
      (
        "rounds from one participation of a user to the next",
        f"at least {claim.min_separation:,}",
        "nobody came twice" if separation is None else f"{separation:,}",
      ),
      (
        "rounds of a user",
        f"at most {most:,}",
        f"{measured['max_participations']:,}",
      ),
    ],
    "is_assumed": not claim.equal_work,
    "assumption": _EQUAL_WORK if claim.equal_work else _ASSUMED,
  }
