r"""Draws what privacy costs: against users, against rounds, against utility.

  python -m binaries.plot_privacy --output_dir=pictures
  python -m binaries.plot_privacy --output_dir=pictures --runs='runs/mech_*' \
    --num_users=1000000 --cohort_factors=250,500,1000

epsilon_by_users.png and epsilon_by_rounds.png come from accounting alone; they
have a curve for each noise multiplier. utility_by_epsilon.png, with --runs, has
the recall that finished runs measured against the epsilon of --num_users users
where cohort and noise are cohort_factor times the runs' (Xu et al. 2023,
figures 3 and 4): an extrapolation, and drawn as one.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import math
import pathlib
import statistics
import sys
from typing import Any

from absl import flags
import numpy as np
import tqdm

from experiments import command_line
from experiments import measured_runs
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.plots import figures
from tff_fedemb.plots import privacy_plots
from tff_fedemb.plots import utility_plots
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import report as report_lib

_OUTPUT_DIR = flags.DEFINE_string(
  "output_dir", None, "Directory of the pictures.", required=True
)
_RUNS = flags.DEFINE_list(
  "runs", [], "Directories of runs, or patterns of such: measured utility."
)
_MECHANISM = flags.DEFINE_string(
  "mechanism",
  "gaussian",
  f"How noise is made: {', '.join(sorted(planning.MECHANISMS))}.",
)
_PARTICIPATION = flags.DEFINE_string(
  "participation",
  "poisson",
  f"How users take part: {', '.join(sorted(participations.PARTICIPATIONS))}.",
)
_NUM_USERS = flags.DEFINE_integer(
  "num_users",
  10_000_000,
  "Users: the population of epsilon_by_rounds and of utility_by_epsilon;"
  " epsilon_by_users goes from a hundredth to ten times it.",
)
_USERS_PER_ROUND = flags.DEFINE_float(
  "users_per_round", 131_072, "(Expected) users of a round."
)
_USERS_PER_CLIENT = flags.DEFINE_integer(
  "users_per_client", 32, "Users merged in a virtual client."
)
_ROUNDS = flags.DEFINE_integer("rounds", 800, "Rounds.")
_NOISE_MULTIPLIERS = flags.DEFINE_list(
  "noise_multipliers",
  ["1.28", "3.5", "10"],
  "Standard deviations of the noise on the sum of updates / clip norm.",
)
_DELTA = flags.DEFINE_float(
  "delta", None, "Delta of the guarantee [num_users ** -1.1]."
)
_COHORT_FACTORS = flags.DEFINE_list(
  "cohort_factors",
  ["64", "256", "1024"],
  "Users of a round and noise multiplier, extrapolated / of the runs.",
)

_BY_USERS = "epsilon_by_users.png"
_BY_ROUNDS = "epsilon_by_rounds.png"
_BY_UTILITY = "utility_by_epsilon.png"

# Points of a curve. RDP takes some 0.3 s each for a fixed size, 0.02 s for
# Poisson; without sampling it takes milliseconds, and epsilon has steps.
_NUM_POINTS = {
  "fixed_size": 13,
  "poisson": 25,
  "min_separation": 100,
}
# PLD costs seconds a point where noise is low, for epsilons of little interest.
_NUM_PLD_POINTS = 8
_PLD_EPSILON_LIMIT = 20.0
_MAX_PASSES_SHOWN = 50

_NAMES = {"rdp": "RDP", "pld": "PLD", "gaussian": "exact Gaussian"}


def _parse_numbers(flag: flags.FlagHolder) -> list[float]:
  try:
    numbers = sorted({float(text) for text in flag.value})
  except ValueError:
    numbers = []
  if not 1 <= len(numbers) <= figures.MAX_CURVES or not all(
    0 < number < math.inf for number in numbers
  ):
    raise command_line.UsageError(
      f"--{flag.name} must be 1 to {figures.MAX_CURVES} positive"
      f" numbers with commas between, found {','.join(flag.value)!r}."
    )
  return numbers


def _delta() -> float:
  if _DELTA.value is not None:
    return _DELTA.value
  return planning.default_delta(_NUM_USERS.value)


def _create_participation(num_users: int) -> participation_lib.Participation:
  return participations.create_participation(
    _PARTICIPATION.value,
    num_users=num_users,
    users_per_round=_USERS_PER_ROUND.value,
    users_per_client=_USERS_PER_CLIENT.value,
  )


def _populations(participation: participation_lib.Participation) -> list[int]:
  """Numbers of users, evenly on a logarithmic axis, --num_users among them."""
  num_users = participation.num_users
  low = max(math.ceil(participation.users_per_round), num_users // 100)
  grid = np.geomspace(
    low, 10 * num_users, _NUM_POINTS.get(participation.name, 13)
  )
  return sorted({*(int(n) for n in grid[1:-1]), low, num_users, 10 * num_users})


def _round_numbers(participation: participation_lib.Participation) -> list[int]:
  rounds = _ROUNDS.value
  grid = np.linspace(0, rounds, _NUM_POINTS.get(participation.name, 13) + 1)[1:]
  numbers = {math.ceil(number) for number in grid}
  separation = participation.min_separation
  if separation is not None and rounds <= _MAX_PASSES_SHOWN * separation:
    # Epsilon jumps where a pass ends and a user may take part once more.
    ends = range(separation, rounds, separation)
    numbers |= {1, *ends, *(end + 1 for end in ends)}
  return sorted(numbers)


def _tighter(participation: participation_lib.Participation) -> str | None:
  """The accountant to compare RDP with, if there is one."""
  supported = participation.accountants
  for name in ("gaussian", "pld"):
    if name in supported:
      return name
  return None


@dataclasses.dataclass(frozen=True)
class _Point:
  """A place on an axis, and the rounds to be accounted for there."""

  x: int
  participation: participation_lib.Participation
  rounds: int


def _thin_out(points: Sequence[_Point], count: int) -> list[_Point]:
  places = np.linspace(0, len(points) - 1, min(count, len(points)))
  return [points[round(place)] for place in places]


def _create_curve(
  plan: planning.Plan, points: Sequence[_Point], progress: tqdm.tqdm
) -> privacy_plots.EpsilonCurve:
  """Computes epsilon at every point of an axis, PLD at a few.

  Args:
    plan: Whose noise and delta hold at all points.
    points: Of the axis, ascending.
    progress: Advances by one for each point, and for each with PLD.
  """

  def epsilon(point: _Point, accountant: str, sensitivity=None) -> float:
    return epsilon_lib.epsilon_by_accountant(
      [(plan.event, point.rounds)],
      point.participation,
      plan.delta,
      accountants=(accountant,),
      sensitivity_in_clip_norms=sensitivity,
    )[accountant]

  has_two_readings = plan.participation.sensitivity_in_clip_norms != 1
  user_level, virtual_client = [], []
  for point in points:
    user_level.append(epsilon(point, "rdp"))
    if has_two_readings:
      virtual_client.append(epsilon(point, "rdp", 1.0))
    progress.update()
  tighter = _tighter(plan.participation)
  tighter_points = [] if tighter is None else points
  if tighter == "pld":
    tighter_points = _thin_out(
      [
        point
        for point, value in zip(points, user_level, strict=True)
        if value < _PLD_EPSILON_LIMIT
      ],
      _NUM_PLD_POINTS,
    )
  tighter_epsilons = []
  for point in tighter_points:
    tighter_epsilons.append(epsilon(point, tighter))
    progress.update(tighter == "pld")
  return privacy_plots.EpsilonCurve(
    plan.noise_multiplier,
    tuple(point.x for point in points),
    tuple(user_level),
    tuple(point.x for point in tighter_points),
    tuple(tighter_epsilons),
    tuple(virtual_client),
  )


def _caption(
  participation: participation_lib.Participation, setting: str
) -> str:
  sensitivity = participation.sensitivity_in_clip_norms
  readings = (
    "User-level: "
    f"{participation.neighboring_relation_in_words}, which changes a round's"
    f" sum by at most Δ = {sensitivity:g} C."
    if sensitivity != 1
    else "One user changes a round's sum by at most C: the user-level reading"
    " and Δ = C are the same"
    f" ({participation.neighboring_relation_in_words})."
  )
  if sensitivity != 1:
    readings += f" Δ = C {report_lib.VIRTUAL_CLIENT_UNIT}."
  return (
    f"Mechanism {_MECHANISM.value}, participation"
    f" {participation.name}: {participation.cohort_in_words} users a round,"
    f" {participation.users_per_client} in a virtual client, {setting}."
    f" {readings}"
  )


def _utility_caption(runs: Sequence[measured_runs.Run]) -> str:
  run = runs[0]
  cohorts = sorted({run.participation.users_per_round for run in runs})
  populations = sorted({run.participation.num_users for run in runs})
  delta = f"{_delta():.2g}".replace("e-0", "e-")
  return (
    f"Task {run.task}. Left: the recall was measured in simulations of"
    f" {_join(populations)} users, {_join(cohorts)} a round; ε is that of"
    f" {_NUM_USERS.value:,} users at δ = {delta}, user-level, by the"
    " tightest valid accountant, where cohort and noise multiplier are both"
    " as many times the simulation's as said. The noise on the mean update is"
    " then the same; that the recall is, too, is assumed. Right: what the"
    " simulations themselves cost, at their own δ. Bars: standard deviation"
    " over seeds."
  )


def _join(numbers: Iterable[float]) -> str:
  return " or ".join(f"{number:,g}" for number in numbers)


def _compute_utility(
  runs: Sequence[measured_runs.Run],
) -> list[utility_plots.UtilityCurve]:
  factors = _parse_numbers(_COHORT_FACTORS)

  def extrapolate(run):
    epsilons = {}
    for factor in factors:
      epsilons[factor] = measured_runs.extrapolate(
        run,
        num_users=_NUM_USERS.value,
        cohort_factor=factor,
        delta=_delta(),
      )
      progress.update()
    return epsilons

  # Runs that differ in their seed alone have one cost.
  num_costs = len({run.settings_without(["seed"]) for run in runs})
  with _progress("Extrapolating", num_costs * len(factors)) as progress:
    curves = measured_runs.create_curves(runs, extrapolate)
  # Refused now, while nothing is written yet.
  figures.check_count("runs that differ in more than noise", len(curves))
  return curves


def _progress(description: str, total: int) -> tqdm.tqdm:
  # It leaves no line behind, so that an error is the only one.
  return tqdm.tqdm(
    total=total, desc=description, unit=" points", leave=False, disable=None
  )


def _check_output_dir(path: pathlib.Path) -> None:
  for existing in (path, *path.parents):
    if existing.exists():
      if not existing.is_dir():
        raise command_line.UsageError(
          f"--output_dir must be a directory, found {path}, where"
          f" {existing} is a file."
        )
      return


def _draw(output_dir: pathlib.Path) -> list[pathlib.Path]:
  """Computes all, and then draws: a mistake leaves no picture behind."""
  participation = _create_participation(_NUM_USERS.value)
  plans = [
    planning.Plan(
      _MECHANISM.value,
      participation,
      _ROUNDS.value,
      noise_multiplier,
      _delta(),
    )
    for noise_multiplier in _parse_numbers(_NOISE_MULTIPLIERS)
  ]
  by_users = [
    _Point(num_users, _create_participation(num_users), _ROUNDS.value)
    for num_users in _populations(participation)
  ]
  by_rounds = [
    _Point(rounds, participation, rounds)
    for rounds in _round_numbers(participation)
  ]
  drawings: dict[str, tuple[Callable[..., None], Any, dict[str, Any]]] = {}
  if _RUNS.value:
    runs, unfinished = measured_runs.find(_RUNS.value)
    if unfinished:
      names = ", ".join(path.name for path in unfinished)
      print(f"not finished, left out: {names}", file=sys.stderr)
    curves = _compute_utility(runs)
    drawings[_BY_UTILITY] = (
      utility_plots.plot_utility_by_epsilon,
      curves,
      {
        "false_accept_rate": measured_runs.FALSE_ACCEPT_RATE,
        "caption": _utility_caption(runs),
        "untrained": statistics.mean(run.recall_untrained for run in runs),
      },
    )
  tighter = _tighter(participation)
  num_points = len(plans) * (len(by_users) + len(by_rounds))
  if tighter == "pld":
    num_points += 2 * len(plans) * _NUM_PLD_POINTS
  with _progress("Accounting", num_points) as progress:
    curves_by_users = [_create_curve(p, by_users, progress) for p in plans]
    curves_by_rounds = [_create_curve(p, by_rounds, progress) for p in plans]
  common = {
    "reading": privacy_plots.Reading(
      plans[0].delta, _NAMES["rdp"], tighter and _NAMES[tighter]
    )
  }
  drawings[_BY_USERS] = (
    privacy_plots.plot_epsilon_by_users,
    curves_by_users,
    common
    | {
      "num_users": _NUM_USERS.value,
      "caption": _caption(
        participation,
        f"{_ROUNDS.value:,} rounds"
        + (
          f", noise correlated as for {_NUM_USERS.value:,} users"
          if plans[0].strategy
          else ""
        ),
      ),
    },
  )
  drawings[_BY_ROUNDS] = (
    privacy_plots.plot_epsilon_by_rounds,
    curves_by_rounds,
    common
    | {"caption": _caption(participation, f"of {_NUM_USERS.value:,} users")},
  )
  output_dir.mkdir(parents=True, exist_ok=True)
  paths = []
  for name, (plot, curves, options) in sorted(drawings.items()):
    plot(output_dir / name, curves, **options)
    paths.append(output_dir / name)
  return paths


def main() -> None:
  """Draws the pictures that the flags ask for, and says where they are."""
  output_dir = pathlib.Path(_OUTPUT_DIR.value)
  _check_output_dir(output_dir)
  try:
    paths = command_line.call_with_flags(_draw, output_dir)
  except OSError as error:
    raise command_line.UsageError(
      f"--output_dir must be a directory that can be written, found"
      f" {output_dir}: {error.strerror}."
    ) from error
  for path in paths:
    print(path)


if __name__ == "__main__":
  command_line.run(main)
