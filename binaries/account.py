r"""Says what a run costs in privacy, before, without or after running it.

  python -m binaries.account epsilon --mechanism=tree --num_users=10000000 \
    --users_per_round=131072 --users_per_client=32 --rounds=800 \
    --noise_multiplier=16.64 --participation=min_separation --delta=1e-7
  python -m binaries.account epsilon --run_dir=runs/first
  python -m binaries.account calibrate --target_epsilon=2 \
    --solve_for=num_users ...
  python -m binaries.account extrapolate --run_dir=runs/first
  python -m binaries.account table

epsilon: the cost of a plan, or of a run from what it left in its directory,
finished or not. calibrate: the least noise, users or cohort for a target.
extrapolate: the cost of the same noise on the mean with more users. table: the
authors' published costs, recomputed. One user is protected; beside that comes
the reading in which a user moves a sum by one clip norm only.
"""

from collections.abc import Callable
import math
import pathlib
from typing import Any

from absl import flags

from experiments import account_output
from experiments import account_run
from experiments import command_line
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import calibration_search
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import extrapolation
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import published
from tff_fedemb.strategies import registry as strategies

_MECHANISM = flags.DEFINE_string(
  "mechanism",
  None,
  f"How noise is made: {', '.join(sorted(planning.MECHANISMS))}.",
)
_PARTICIPATION = flags.DEFINE_string(
  "participation",
  None,
  f"How users take part: {', '.join(sorted(participations.PARTICIPATIONS))}.",
)
_NUM_USERS = flags.DEFINE_integer("num_users", None, "Users.")
_USERS_PER_ROUND = flags.DEFINE_float(
  "users_per_round", None, "(Expected) users of a round."
)
_USERS_PER_CLIENT = flags.DEFINE_integer(
  "users_per_client", 1, "Users merged in a virtual client."
)
_MIN_SEPARATION = flags.DEFINE_integer(
  "min_separation",
  None,
  "A user of round t is in none before t + this (participation"
  " min_separation) [the rounds of a pass over all users].",
)
_MAX_PARTICIPATIONS = flags.DEFINE_integer(
  "max_participations",
  None,
  "Rounds of a user at most (participation min_separation) [as many as the"
  " separation allows].",
)
_ROUNDS = flags.DEFINE_integer("rounds", None, "Rounds.")
_NOISE_MULTIPLIER = flags.DEFINE_float(
  "noise_multiplier",
  None,
  "Standard deviation of the noise on the sum of updates / clip norm.",
)
_RESTART_EVERY = flags.DEFINE_integer(
  "restart_every", None, "Rounds of a tree (mechanism tree) [a single tree]."
)
_NUM_BUFFERS = flags.DEFINE_integer(
  "num_buffers", None, "Buffers, 1 to 4 (mechanism blt) [2]."
)
_NUM_BANDS = flags.DEFINE_integer(
  "num_bands", None, "Bands (mechanism banded) [as many as can be]."
)
_DELTA = flags.DEFINE_float(
  "delta", None, "Delta of the guarantee [number of users ** -1.1]."
)
_ACCOUNTANT = flags.DEFINE_string(
  "accountant",
  None,
  "rdp; pld: tighter, not for fixed_size; gaussian: exact, for min_separation"
  " [rdp; with --run_dir the run's own].",
)
_RUN_DIR = flags.DEFINE_string(
  "run_dir",
  None,
  "Directory of a run, finished or not, in place of the flags above.",
)
_TARGET_EPSILON = flags.DEFINE_float(
  "target_epsilon", None, "Epsilon to stay within (calibrate)."
)
_SOLVE_FOR = flags.DEFINE_string(
  "solve_for",
  "noise_multiplier",
  f"What to find the least of: {', '.join(calibration.SOLVE_FOR)}; the last"
  " at the noise on the mean that the flags give (calibrate).",
)
_EXTRAPOLATED_NUM_USERS = flags.DEFINE_integer(
  "extrapolated_num_users", 10_000_000, "Users to extrapolate to."
)
_COHORT_FACTOR = flags.DEFINE_float(
  "cohort_factor",
  64.0,
  "Users of a round and noise multiplier, extrapolated / given.",
)
_OUTPUT_JSON = flags.DEFINE_string(
  "output_json", None, "File for all figures and the statement."
)

_PLAN = (
  _MECHANISM,
  _PARTICIPATION,
  _NUM_USERS,
  _USERS_PER_ROUND,
  _USERS_PER_CLIENT,
  _MIN_SEPARATION,
  _MAX_PARTICIPATIONS,
  _ROUNDS,
  _NOISE_MULTIPLIER,
  _RESTART_EVERY,
  _NUM_BUFFERS,
  _NUM_BANDS,
)
_NEEDED = (
  _MECHANISM,
  _PARTICIPATION,
  _NUM_USERS,
  _USERS_PER_ROUND,
  _ROUNDS,
  _NOISE_MULTIPLIER,
)
_FLAGS_OF = {
  "epsilon": (*_PLAN, _DELTA, _ACCOUNTANT, _RUN_DIR),
  "calibrate": (*_PLAN, _DELTA, _ACCOUNTANT, _TARGET_EPSILON, _SOLVE_FOR),
  "extrapolate": (
    *_PLAN,
    _DELTA,
    _ACCOUNTANT,
    _RUN_DIR,
    _EXTRAPOLATED_NUM_USERS,
    _COHORT_FACTOR,
  ),
  "table": (),
}


def _is_given(flag: flags.FlagHolder) -> bool:
  return bool(flags.FLAGS[flag.name].present) and flag.value is not None


def _refuse(
  unwanted: tuple[flags.FlagHolder, ...], where: str, why: str
) -> None:
  for flag in unwanted:
    if _is_given(flag):
      raise command_line.UsageError(
        f"--{flag.name} must not be given {where}, {why}, found {flag.value!r}."
      )


def _require(needed: tuple[flags.FlagHolder, ...], where: str) -> None:
  for flag in needed:
    if flag.value is None:
      raise command_line.UsageError(
        f"--{flag.name} must be given {where}, found nothing."
      )


def _check_flags(command: str) -> None:
  """Refuses flags that the command has no use for."""
  every = tuple(
    {flag.name: flag for f in _FLAGS_OF.values() for flag in f}.values()
  )
  known = {flag.name for flag in _FLAGS_OF[command]}
  _refuse(
    tuple(flag for flag in every if flag.name not in known),
    f"with {command}",
    "which has no use for it",
  )
  if _RUN_DIR.value is not None:
    unwanted = _PLAN if command == "extrapolate" else (*_PLAN, _DELTA)
    _refuse(unwanted, "with --run_dir", "whose ledger says it")


def _accountants(default: str | None) -> tuple[str, ...] | None:
  name = _ACCOUNTANT.value or default
  return None if name is None else (name,)


def _create_plan(
  *,
  num_users: int | None = None,
  noise_multiplier: float | None = None,
  delta: float | None = None,
) -> planning.Plan:
  """The plan that the flags describe, but for what is given here."""
  check = command_line.call_with_flags
  participation = check(
    participations.create_participation,
    _PARTICIPATION.value,
    num_users=_NUM_USERS.value if num_users is None else num_users,
    users_per_round=_USERS_PER_ROUND.value,
    users_per_client=_USERS_PER_CLIENT.value,
    min_separation=_MIN_SEPARATION.value,
    max_participations=_MAX_PARTICIPATIONS.value,
  )
  if delta is None:
    delta = _DELTA.value
  if delta is None:
    delta = planning.default_delta(participation.num_users)
  if noise_multiplier is None:
    noise_multiplier = _NOISE_MULTIPLIER.value
  return check(
    planning.Plan,
    _MECHANISM.value,
    participation,
    rounds=_ROUNDS.value,
    noise_multiplier=noise_multiplier,
    delta=delta,
    accountants=_accountants("rdp"),
    restart_every=_RESTART_EVERY.value,
    num_buffers=_NUM_BUFFERS.value,
    num_bands=_NUM_BANDS.value,
  )


def _notes(plan: planning.Plan) -> tuple[str, ...]:
  """What the flags left open, and how it was decided."""
  notes = []
  participation = plan.participation
  if participation.min_separation and _MIN_SEPARATION.value is None:
    notes.append(
      f"min_separation {participation.min_separation:,} is that of whole"
      " passes: num_users / users_per_round, rounded up"
    )
  if _DELTA.value is None:
    notes.append(f"delta {plan.delta:g} is num_users ** -1.1 to one digit")
  return tuple(notes)


def _epsilon() -> tuple[dict[str, Any], str]:
  if _RUN_DIR.value is not None:
    run = command_line.call_with_flags(
      account_run.recompute, _RUN_DIR.value, _accountants(None)
    )
    counts = composition.merge_rounds(run.ledger.history)
    participation, notes, report = (
      run.ledger.participation,
      run.notes,
      run.report,
    )
  else:
    _require(_NEEDED, "with epsilon, or --run_dir in its place")
    plan = _create_plan()
    report = command_line.call_with_flags(planning.create_report, plan)
    counts = [(plan.event, plan.rounds)]
    participation, notes = plan.participation, _notes(plan)
  values = report.to_json()
  if report.unit_is_virtual_client_epsilon is None:
    # The participation's own sensitivity is one clip norm.
    values["unit_is_virtual_client_epsilon"] = values["epsilon"]
  noises = [composition.noise_of(event) for event, _ in counts]
  # Rounds without noise may come before or after.
  noise = next((n for n in noises if n.mechanism), composition.Noise(None, 0))
  values |= {
    "mechanism": noise.mechanism,
    "strategy": noise.strategy and strategies.to_json(noise.strategy),
    "participation": participations.to_json(participation),
    "events": [
      {"event": repr(event), "count": count}
      for event, count in composition.composed_events(counts, participation)
    ],
    "notes": list(notes),
  }
  return values, account_output.report_text(report, notes)


def _calibrate() -> tuple[dict[str, Any], str]:
  _require((_TARGET_EPSILON,), "with calibrate")
  solve_for = _SOLVE_FOR.value
  if solve_for not in calibration.SOLVE_FOR:
    raise command_line.UsageError(
      f"--solve_for must be one of {', '.join(calibration.SOLVE_FOR)}, found"
      f" {solve_for!r}."
    )
  where = f"with --solve_for={solve_for}"
  # The cohort is one thing to know even where it is sought: the noise is its.
  sought = {"noise_multiplier": _NOISE_MULTIPLIER, "num_users": _NUM_USERS}
  unknown = sought.get(solve_for)
  if unknown is not None:
    _refuse((unknown,), where, "which finds it")
  _require(tuple(flag for flag in _NEEDED if flag is not unknown), where)
  if solve_for != "noise_multiplier":
    _refuse((_MIN_SEPARATION,), where, "which changes the rounds of a pass")
  if solve_for == "num_users":
    # Its default is that of the number of users.
    _require((_DELTA,), where)
    users = _USERS_PER_ROUND.value
    plan = _create_plan(
      num_users=10 * math.ceil(users) if 0 < users < math.inf else 1
    )
  elif solve_for == "noise_multiplier":
    plan = _create_plan(noise_multiplier=1.0)
  else:
    plan = _create_plan()
  found = command_line.call_with_flags(
    calibration.calibrate,
    plan,
    target_epsilon=_TARGET_EPSILON.value,
    solve_for=solve_for,
  )
  # What the search changes is told with its result.
  notes = _notes(plan) if solve_for == "noise_multiplier" else ()
  rows = [
    (
      solution.name,
      solution.sensitivity_in_clip_norms,
      f"{solution.value:,.{calibration_search.DIGITS + 3}g}"
      if solve_for == "noise_multiplier"
      else f"{solution.value:,}",
      f"{solution.protects} (epsilon {solution.epsilon:.4f}"
      f", z {solution.plan.noise_multiplier:.5g})",
    )
    for solution in (found.user_level, found.authors)
  ]
  lines = [
    f"smallest {solve_for} for epsilon <= {found.target_epsilon:g} at delta ="
    f" {plan.delta:g} ({plan.accountants[0]}), {plan.rounds:,} rounds",
    "",
    *account_output.readings(*rows),
    *account_output.listed("Assumptions", found.assumptions),
    "",
    account_output.wrapped(found.report.statement),
    *account_output.listed("Notes", notes),
    *(f"warning: {warning}" for warning in found.report.warnings),
  ]
  return found.to_json() | {"notes": list(notes)}, "\n".join(lines)


def _extrapolate() -> tuple[dict[str, Any], str]:
  num_users = _EXTRAPOLATED_NUM_USERS.value
  if num_users < 1:
    raise command_line.UsageError(
      f"--extrapolated_num_users must be at least 1, found {num_users}."
    )
  delta = _DELTA.value
  if delta is None:
    delta = planning.default_delta(num_users)
  check = command_line.call_with_flags
  if _RUN_DIR.value is None:
    _require(_NEEDED, "with extrapolate, or --run_dir in its place")
    simulated = _create_plan(delta=delta)
    noise = composition.noise_of(simulated.event)
  else:
    simulated = check(
      account_run.read_ledger, _RUN_DIR.value, _accountants(None)
    )
    noise = simulated.noise
  found = check(
    extrapolation.extrapolate,
    rounds=simulated.rounds,
    noise_multiplier=noise.multiplier,
    participation=simulated.participation,
    strategy=noise.strategy,
    num_users=num_users,
    cohort_factor=_COHORT_FACTOR.value,
    delta=delta,
    accountants=simulated.accountants,
  )
  return found.to_json(), found.to_text()


def _table() -> tuple[dict[str, Any], str]:
  rows = published.compute_table()
  return {"rows": [row.to_json() for row in rows]}, published.to_text(rows)


_ANSWERS: dict[str, Callable[[], tuple[dict[str, Any], str]]] = {
  "epsilon": _epsilon,
  "calibrate": _calibrate,
  "extrapolate": _extrapolate,
  "table": _table,
}


def main(command: str) -> None:
  """Computes, prints and writes what the command is for."""
  _check_flags(command)
  path = None
  if _OUTPUT_JSON.value is not None:
    path = pathlib.Path(_OUTPUT_JSON.value)
    account_output.check_output(path)
  values, text = _ANSWERS[command]()
  if path is not None:
    account_output.write(path, values)
  print(text)


if __name__ == "__main__":
  command_line.run(main, commands=tuple(_ANSWERS))
