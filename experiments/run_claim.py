"""What a run's own settings say that it does, and whether its ledger agrees.

A ledger is a file of its own, and anyone may lay another one beside a run. The
settings say how users take part, what noise is added and how often; from them
the claim and the event of every round are made once more.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import dp_accounting

from tff_fedemb import errors
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import planning
from tff_fedemb.program import run_directory
from tff_fedemb.strategies import registry as strategies
from tff_fedemb.strategies import tree

SAMPLING_SEED = "sampling_seed"

# The mechanisms that the aggregators with noise account for.
_MECHANISMS = {name: name for name in planning.MECHANISMS} | {
  "adaptive_gaussian": "gaussian",
  "adaptive_tree": "tree",
  "secure_gaussian": "gaussian",
}
# Optimisers of strategies end a little elsewhere on other machines.
_RELATIVE_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Claim:
  """What a run does, by its settings.

  Attributes:
    participation: Who takes part.
    event: What a round releases, at a sensitivity of one clip norm.
    rounds: Number of rounds.
    delta: At which epsilon is stated.
    clip_norm: L2 norm to which an update is clipped; None if it is not.
  """

  participation: participation_lib.Participation
  event: dp_accounting.DpEvent
  rounds: int
  delta: float
  clip_norm: float | None


def create_claim(
  settings: Mapping[str, Any],
  num_users: int,
  deployed: Mapping[str, Any] | None = None,
) -> Claim:
  """Makes the claim of a run of a training program.

  Args:
    settings: Its flags, as it recorded them.
    num_users: Size of the population, which the data decide.
    deployed: Its deployment, if it was under one, as it recorded that.

  Raises:
    KeyError: If a setting is missing.
    errors.FieldError: If one cannot be.
  """
  rounds = settings["rounds"]
  delta = settings.get("delta")
  if delta is None:
    delta = planning.default_delta(num_users)
  participation = _create_participation(
    settings, num_users, deployed
  ).for_rounds(rounds)
  # Earlier versions drew users from a seed that anyone may know.
  if settings.get(SAMPLING_SEED, "unknown") is not None:
    participation = participation.with_known_schedule()
  return Claim(
    participation,
    _create_event(settings, participation),
    rounds,
    delta,
    settings.get("clip_norm"),
  )


def _create_participation(
  settings: Mapping[str, Any],
  num_users: int,
  deployed: Mapping[str, Any] | None,
) -> participation_lib.Participation:
  if settings["program"] == "run_centralized":
    users = settings["users_per_round"]
    return fixed_size.FixedSize(num_users, users, users_per_client=users)
  users_per_client = settings["users_per_client"]
  name = settings["participation"]
  if name == "min_separation":
    options = {
      option: settings.get(option)
      for option in ("min_separation", "regroup_clients")
    }
  else:
    options = planning.options_of_bands(
      name,
      settings,
      mechanism=settings["aggregator"],
      # Runs that say neither are of independent noise, and of one block.
      num_bands=settings.get("num_bands") or 1,
    )
  if deployed is not None:
    options = {
      "min_separation": deployed["min_separation"],
      "max_participations": deployed["max_participations"],
      "equal_work": deployed["deployment"]["compute"]["equal_work"],
    }
  return participations.create_participation(
    name,
    num_users=num_users,
    users_per_round=settings["clients_per_round"] * users_per_client,
    users_per_client=users_per_client,
    **options,
  )


def _create_event(
  settings: Mapping[str, Any], participation: participation_lib.Participation
) -> dp_accounting.DpEvent:
  noise_multiplier = settings.get("noise_multiplier")
  if not noise_multiplier:
    return dp_accounting.NonPrivateDpEvent()
  mechanism = _MECHANISMS[settings["aggregator"]]
  if mechanism == "tree":
    every = settings.get("restart_every")
    passes = settings.get("restart_every_passes")
    if passes is not None:
      users = participation.num_users / participation.users_per_round
      every = passes * math.ceil(users)
    return composition.mechanism_event(
      noise_multiplier, tree.TreeStrategy(every, settings.get("restart_warmup"))
    )
  strategy = planning.create_strategy(
    mechanism, participation, settings["rounds"], settings
  )
  return composition.mechanism_event(noise_multiplier, strategy)


def check(
  ledger: ledger_lib.Ledger, claim: Claim, *, is_finished: bool
) -> None:
  """Refuses a ledger that is not that of the settings.

  Args:
    ledger: Of the run, with at least one round.
    claim: What its settings say.
    is_finished: Whether all its rounds are done.

  Raises:
    errors.FieldError: Names the first thing that the two disagree about.
  """
  asked, found = (
    participations.to_json(p)
    for p in (claim.participation, ledger.participation)
  )
  for name in {**asked, **found}:
    _compare(f"{name} of users", asked.get(name), found.get(name))
  _compare("delta", claim.delta, ledger.delta)
  if ledger.round_sum is not None:
    _compare("clip norm", claim.clip_norm, ledger.round_sum.clip_norm)
  expected = composition.noise_of(claim.event)
  for noise in ledger.noises:
    _compare("mechanism", expected.mechanism, noise.mechanism)
    _compare("noise multiplier", expected.multiplier, noise.multiplier)
    _compare(
      "strategy",
      expected.strategy and strategies.to_json(expected.strategy),
      noise.strategy and strategies.to_json(noise.strategy),
    )
  if is_finished or ledger.rounds > claim.rounds:
    _compare("number of rounds", claim.rounds, ledger.rounds)


def _compare(name: str, asked: Any, found: Any) -> None:
  if not _is_close(asked, found):
    raise errors.FieldError(
      "run_dir",
      f"hold a {run_directory.LEDGER} of the run whose settings are in its"
      f" {run_directory.SETTINGS}",
      f"{name} {found!r} there and {asked!r} by the settings",
    )


def _is_close(one: Any, other: Any) -> bool:
  """Whether JSON values are the same, their fractions but for rounding."""
  if isinstance(one, Mapping) and isinstance(other, Mapping):
    return one.keys() == other.keys() and all(
      _is_close(one[name], other[name]) for name in one
    )
  if isinstance(one, list | tuple) and isinstance(other, list | tuple):
    return len(one) == len(other) and all(map(_is_close, one, other))
  if isinstance(one, float) and isinstance(other, float | int):
    return math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE)
  return one == other
