"""Who takes part in a round, and what one user can change there.

The mechanism of one round clips every virtual client's update to L2 norm C,
sums them and adds Gaussian noise of standard deviation `noise_multiplier * C`
to the sum, which is then divided by a constant (Xu et al. 2023, "Learning to
Generate Image Embeddings with User-level Differential Privacy", section 3).
A virtual client merges `users_per_client` users, so one user may move the sum
by more than C; this module states by how much, for each way of taking part.

`NeighboringRelation.REPLACE_ONE` of `dp_accounting` selects an amplification
theorem and does not double the sensitivity: the doubling happens once, in
`round_event` or, for participation without sampling, in
`composition.composed_events`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import math
import numbers
import operator
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb.data import participation as samplers

USER = "user"
# Of the reading that counts one clip norm where a user can cause two.
VIRTUAL_CLIENT_UNIT = (
  "is not user-level: at best it is for a whole virtual client, zeroed out"
)


class ParticipationKind(enum.Enum):
  """How the users of a round are chosen."""

  POISSON = "poisson"
  FIXED_SIZE = "fixed_size"
  MIN_SEPARATION = "min_separation"


@dataclasses.dataclass(frozen=True)
class Participation:
  """Who takes part in a round, and how users form virtual clients.

  Privacy:
    Unit: user.
    Neighbouring relation: add or remove one user (Poisson); replace one user
      (fixed size); one user's place in the schedule is taken or stays empty
      (minimum separation).
    Sensitivity: C for Poisson and minimum separation with one user per client;
      2 C for them with several (one clipped update turns into another) and for
      fixed size.
    DpEvent: `PoissonSampledDpEvent`, `SampledWithoutReplacementDpEvent`, or
      for minimum separation, which amplifies nothing, one `GaussianDpEvent`
      for each round that a user may be in.

  The claims need: under Poisson sampling, users are drawn independently of
  each other and of earlier rounds, and with several users per client each
  drawn user is assigned to a virtual client independently of the others
  (shuffling and cutting into groups would cost up to 4 C).

  Attributes:
    kind: How users are chosen.
    num_users: Size of the population, at least 1.
    users_per_round: Expected number of users in a round, in
      [users_per_client, num_users]; an integer for a fixed size.
    users_per_client: Users merged into one virtual client, at least 1.
    min_separation: Of minimum separation alone, where it must be given: a user
      who takes part in round t does not before round t + min_separation; at
      least 1 and at most the rounds of a pass, num_users / users_per_round
      rounded up.
    max_participations: Of minimum separation alone: rounds that a user takes
      part in at most; None for as many as the separation allows.
    regroup_clients: Of minimum separation alone: whether users meet other ones
      in a virtual client in every pass, or the same ones for the whole run.
      The cost is the same.

  Raises:
    ValueError: If a value is out of its range.
  """

  kind: ParticipationKind
  num_users: int
  users_per_round: float
  users_per_client: int = 1
  min_separation: int | None = None
  max_participations: int | None = None
  regroup_clients: bool = True

  def __post_init__(self):
    if not isinstance(self.kind, ParticipationKind):
      raise ValueError(
        f"kind must be a ParticipationKind, found {self.kind!r}."
      )
    for name in ("num_users", "users_per_client"):
      value = getattr(self, name)
      self._set(name, checks.check_integer(name, value, minimum=1))
    users = self.users_per_round
    if self.kind is ParticipationKind.FIXED_SIZE:
      users = checks.check_integer("users_per_round", users, minimum=1)
    elif not checks.is_number(users):
      raise ValueError(
        f"users_per_round must be a finite number, found {users!r}."
      )
    elif isinstance(users, numbers.Integral):
      users = operator.index(users)
    else:
      users = float(users)
    self._set("users_per_round", users)
    if not self.users_per_client <= users <= self.num_users:
      raise ValueError(
        "users_per_round must be at least users_per_client "
        f"({self.users_per_client}) and at most num_users "
        f"({self.num_users}), found {users!r}."
      )
    self._check_schedule()

  def _check_schedule(self) -> None:
    bounds = ("min_separation", "max_participations")
    if self.kind is not ParticipationKind.MIN_SEPARATION:
      for name in bounds:
        if getattr(self, name) is not None:
          raise ValueError(
            f"{name} must not be given with {self.kind.value} "
            "participation, where nothing keeps a user from taking part "
            f"more often, found {getattr(self, name)!r}."
          )
      return
    if self.min_separation is None:
      raise ValueError(
        "min_separation must be given with min_separation participation, "
        "found None."
      )
    for name in bounds:
      value = getattr(self, name)
      if value is not None:
        self._set(name, checks.check_integer(name, value, minimum=1))
    rounds_of_a_pass = math.ceil(self.num_users / self.users_per_round)
    if self.min_separation > rounds_of_a_pass:
      raise ValueError(
        f"min_separation must be at most {rounds_of_a_pass}, the rounds in "
        f"which {checks.count_in_words(self.users_per_round)} users a round "
        f"use up {self.num_users:,}, found {self.min_separation}."
      )

  def participations(self, rounds: int) -> int:
    """Largest number of rounds, among the first ones, that a user is in.

    Args:
      rounds: Number of rounds, at least 0.
    """
    if self.min_separation is None:
      return rounds
    possible = -(-rounds // self.min_separation)
    if self.max_participations is None:
      return possible
    return min(possible, self.max_participations)

  def _set(self, name: str, value: float) -> None:
    # JSON and dp_accounting want Python's own numbers, not NumPy's.
    object.__setattr__(self, name, value)

  @property
  def sampling_probability(self) -> float:
    """Probability that a given user takes part in a given round."""
    return self.users_per_round / self.num_users

  @property
  def neighboring_relation(self) -> dp_accounting.NeighboringRelation:
    """Relation between the two populations that must look alike."""
    return _RULES[self.kind].neighboring_relation

  @property
  def is_sampled(self) -> bool:
    """Whether each round's users are drawn anew, which amplifies privacy."""
    return _RULES[self.kind].sampled_event is not None

  @property
  def neighboring_relation_in_words(self) -> str:
    """For example 'add or remove one user'."""
    return _RULES[self.kind].relation_in_words(self)

  @property
  def sensitivity_in_clip_norms(self) -> float:
    """Largest L2 change of a round's sum for one user, in clip norms."""
    return _RULES[self.kind].sensitivity(self)

  @property
  def sampling(self) -> str:
    """The sampler that was run, in words."""
    words = _RULES[self.kind].sampling(self)
    if self.users_per_client == 1:
      return f"{words}; each user is a client of their own"
    grouped = (
      "regrouped in every round"
      if self.is_sampled
      else "regrouped in every pass"
      if self.regroup_clients
      else "in the same groups for the whole run"
    )
    return (
      f"{words}; {self.users_per_client} users per virtual client, {grouped}"
    )

  @property
  def unit(self) -> str:
    """What is protected: always a user."""
    return USER

  def sampled_event(
    self, event: dp_accounting.DpEvent
  ) -> dp_accounting.DpEvent:
    """The event of a round whose users are drawn, and who release `event`."""
    return _RULES[self.kind].sampled_event(self, event)

  @classmethod
  def of_sampler(
    cls, sampler: samplers.Sampler, *, rounds: int | None = None
  ) -> "Participation":
    """What may be claimed for the users that a sampler draws.

    Args:
      sampler: One of `data.participation`.
      rounds: Number of rounds at most, if it is known: users who take part once
        in a pass may be closer together than that at times, not on average.

    Raises:
      ValueError: If nothing is known about samplers of its class.
    """
    kind = _KIND_OF_SAMPLER.get(type(sampler))
    if kind is None:
      raise ValueError(
        "sampler must be one of "
        f"{sorted(c.__name__ for c in _KIND_OF_SAMPLER)}, found "
        f"{type(sampler).__name__}."
      )
    return cls(
      kind,
      num_users=sampler.num_users,
      users_per_round=sampler.users_per_round,
      users_per_client=sampler.users_per_client,
      min_separation=getattr(sampler, "min_separation", None),
      max_participations=(
        None if rounds is None else sampler.max_participations(rounds)
      ),
      regroup_clients=getattr(sampler, "regroup_clients", True),
    )

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold."""
    return dataclasses.asdict(self) | {"kind": self.kind.value}

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "Participation":
    """Inverse of `to_json`."""
    return cls(**{**values, "kind": ParticipationKind(values["kind"])})


# By class, not by inheritance: a subclass may draw in another way.
_KIND_OF_SAMPLER = {
  samplers.FixedSizeSampler: ParticipationKind.FIXED_SIZE,
  samplers.MinSeparationSampler: ParticipationKind.MIN_SEPARATION,
  samplers.PoissonSampler: ParticipationKind.POISSON,
}


@dataclasses.dataclass(frozen=True)
class _Rules:
  """What may be claimed for one kind of participation."""

  neighboring_relation: dp_accounting.NeighboringRelation
  relation_in_words: Callable[[Participation], str]
  accountants: tuple[str, ...]
  sensitivity: Callable[[Participation], float]
  # None where the rounds' users are not drawn: there is no event of one round.
  sampled_event: (
    Callable[[Participation, dp_accounting.DpEvent], dp_accounting.DpEvent]
    | None
  )
  sampling: Callable[[Participation], str]


# A new kind of participation is one more entry here.
_RULES: dict[ParticipationKind, _Rules] = {
  ParticipationKind.POISSON: _Rules(
    neighboring_relation=(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE),
    relation_in_words=lambda p: "add or remove one user",
    accountants=("rdp", "pld"),
    sensitivity=lambda p: 1.0 if p.users_per_client == 1 else 2.0,
    sampled_event=lambda p, event: dp_accounting.PoissonSampledDpEvent(
      p.sampling_probability, event
    ),
    sampling=lambda p: (
      f"Poisson sampling: each of {p.num_users:,} users takes part in a "
      f"round independently with probability {p.sampling_probability:.4g}"
      f", {checks.count_in_words(p.users_per_round)} expected"
    ),
  ),
  ParticipationKind.FIXED_SIZE: _Rules(
    neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
    relation_in_words=lambda p: "replace one user",
    accountants=("rdp",),
    sensitivity=lambda p: 2.0,
    sampled_event=lambda p, event: (
      dp_accounting.SampledWithoutReplacementDpEvent(
        p.num_users, p.users_per_round, event
      )
    ),
    sampling=lambda p: (
      f"Fixed-size sampling: {p.users_per_round:,} of {p.num_users:,} "
      "users drawn uniformly without replacement in every round"
    ),
  ),
  ParticipationKind.MIN_SEPARATION: _Rules(
    neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    relation_in_words=lambda p: (
      "zero out one user, who sends zeros in the rounds they are in"
      if p.users_per_client == 1
      else "add or remove one user, whose place in the schedule stays empty"
    ),
    accountants=("rdp", "pld", "gaussian"),
    sensitivity=lambda p: 1.0 if p.users_per_client == 1 else 2.0,
    sampled_event=None,
    sampling=lambda p: (
      f"No sampling: each of {p.num_users:,} users takes part at most "
      f"once in any {p.min_separation:,} consecutive rounds"
      + (
        f", at most {p.max_participations:,} times"
        if p.max_participations
        else ""
      )
      + f", at most {checks.count_in_words(p.users_per_round)} users in "
      "a round"
    ),
  ),
}


def supported_accountants(participation: Participation) -> tuple[str, ...]:
  """Names of the accountants that give a valid epsilon, cheapest first."""
  return _RULES[participation.kind].accountants


def accountants_of_relation(
  neighboring_relation: dp_accounting.NeighboringRelation,
) -> frozenset[str]:
  """Names of the accountants that serve a participation of this relation."""
  return frozenset(
    name
    for rules in _RULES.values()
    if rules.neighboring_relation is neighboring_relation
    for name in rules.accountants
  )


def select_accountants(
  participation: Participation, names: Sequence[str] | None = None
) -> tuple[str, ...]:
  """Returns the named accountants (all supported if None), cheapest first.

  Raises:
    ValueError: If there is none, or the participation does not support one.
  """
  supported = supported_accountants(participation)
  if names is None:
    return supported
  if not names or set(names) - set(supported):
    raise ValueError(
      f"accountants must be among {supported} for "
      f"{participation.kind.value} participation, found {tuple(names)}."
    )
  return tuple(name for name in supported if name in names)
