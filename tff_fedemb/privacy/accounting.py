"""Epsilon of a federated run at user level, with its assumptions named.

The mechanism of one round clips every virtual client's update to L2 norm C,
sums them and adds Gaussian noise of standard deviation `noise_multiplier * C`
to the sum, which is then divided by a constant (Xu et al. 2023, "Learning to
Generate Image Embeddings with User-level Differential Privacy", section 3).
A virtual client merges `users_per_client` users, so one user may move the sum
by more than C; this module states by how much, for each way of taking part.

`dp_accounting` computes every epsilon. Its `NeighboringRelation.REPLACE_ONE`
selects an amplification theorem and does not double the sensitivity: the
doubling happens once, in `round_event`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import math
import numbers
from typing import Any

import dp_accounting

USER = 'user'
VIRTUAL_CLIENT_UNIT = (
    'protects a whole virtual client only, not user-level: zero-out of a '
    'virtual client'
)

# Above this RDP epsilon the PLD accountant is not run: its cost grows with
# 1 / noise_multiplier^2 (minutes at 0.02), for a figure that protects nobody.
PLD_EPSILON_LIMIT = 50.0


class ParticipationKind(enum.Enum):
  """How the users of a round are chosen."""

  POISSON = 'poisson'
  FIXED_SIZE = 'fixed_size'


@dataclasses.dataclass(frozen=True)
class Participation:
  """Who takes part in a round, and how users form virtual clients.

  Privacy:
    Unit: user.
    Neighbouring relation: add or remove one user (Poisson); replace one user
      (fixed size).
    Sensitivity: C for Poisson with one user per client; 2 C for Poisson with
      several (one clipped update turns into another) and for fixed size.
    DpEvent: `PoissonSampledDpEvent` or `SampledWithoutReplacementDpEvent`.

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

  Raises:
    ValueError: If a value is out of its range.
  """

  kind: ParticipationKind
  num_users: int
  users_per_round: float
  users_per_client: int = 1

  def __post_init__(self):
    if not isinstance(self.kind, ParticipationKind):
      raise ValueError(
          f'kind must be a ParticipationKind, found {self.kind!r}.'
      )
    for name in ('num_users', 'users_per_client'):
      check_integer(name, getattr(self, name), minimum=1)
    users = self.users_per_round
    if self.kind is ParticipationKind.FIXED_SIZE:
      check_integer('users_per_round', users, minimum=1)
    elif not isinstance(users, int | float) or not _is_number(users):
      raise ValueError(
          f'users_per_round must be a finite number, found {users!r}.'
      )
    if not self.users_per_client <= users <= self.num_users:
      raise ValueError(
          'users_per_round must be at least users_per_client '
          f'({self.users_per_client}) and at most num_users '
          f'({self.num_users}), found {users!r}.'
      )

  @property
  def sampling_probability(self) -> float:
    """Probability that a given user takes part in a given round."""
    return self.users_per_round / self.num_users

  @property
  def neighboring_relation(self) -> dp_accounting.NeighboringRelation:
    """Relation between the two populations that must look alike."""
    return _RULES[self.kind].neighboring_relation

  @property
  def neighboring_relation_in_words(self) -> str:
    """For example 'add or remove one user'."""
    return _RULES[self.kind].relation_in_words

  @property
  def sensitivity_in_clip_norms(self) -> float:
    """Largest L2 change of a round's sum for one user, in clip norms."""
    return _RULES[self.kind].sensitivity(self)

  @property
  def sampling(self) -> str:
    """The sampler that was run, in words."""
    words = _RULES[self.kind].sampling(self)
    if self.users_per_client == 1:
      return f'{words}; each user is a client of their own'
    return f'{words}; {self.users_per_client} users per virtual client'

  @property
  def unit(self) -> str:
    """What is protected: always a user."""
    return USER

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold."""
    return dataclasses.asdict(self) | {'kind': self.kind.value}

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> 'Participation':
    """Inverse of `to_json`."""
    return cls(**{**values, 'kind': ParticipationKind(values['kind'])})


@dataclasses.dataclass(frozen=True)
class _Rules:
  """What may be claimed for one kind of participation."""

  neighboring_relation: dp_accounting.NeighboringRelation
  relation_in_words: str
  accountants: tuple[str, ...]
  sensitivity: Callable[[Participation], float]
  sampled_event: Callable[
      [Participation, dp_accounting.DpEvent], dp_accounting.DpEvent
  ]
  sampling: Callable[[Participation], str]


# A new kind of participation is one more entry here.
_RULES: dict[ParticipationKind, _Rules] = {
    ParticipationKind.POISSON: _Rules(
        neighboring_relation=(
            dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        ),
        relation_in_words='add or remove one user',
        accountants=('rdp', 'pld'),
        sensitivity=lambda p: 1.0 if p.users_per_client == 1 else 2.0,
        sampled_event=lambda p, event: dp_accounting.PoissonSampledDpEvent(
            p.sampling_probability, event
        ),
        sampling=lambda p: (
            f'Poisson sampling: each of {p.num_users:,} users takes part in a '
            f'round independently with probability {p.sampling_probability:.4g}'
            f', {count_in_words(p.users_per_round)} expected'
        ),
    ),
    ParticipationKind.FIXED_SIZE: _Rules(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
        relation_in_words='replace one user',
        accountants=('rdp',),
        sensitivity=lambda p: 2.0,
        sampled_event=lambda p, event: (
            dp_accounting.SampledWithoutReplacementDpEvent(
                p.num_users, p.users_per_round, event
            )
        ),
        sampling=lambda p: (
            f'Fixed-size sampling: {p.users_per_round:,} of {p.num_users:,} '
            'users drawn uniformly without replacement in every round'
        ),
    ),
}

_ACCOUNTANTS: dict[str, Callable[..., dp_accounting.PrivacyAccountant]] = {
    'rdp': dp_accounting.rdp.RdpAccountant,
    'pld': dp_accounting.pld.PLDAccountant,
}


def supported_accountants(participation: Participation) -> tuple[str, ...]:
  """Names of the accountants that give a valid epsilon, cheapest first."""
  return _RULES[participation.kind].accountants


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
        f'accountants must be among {supported} for '
        f'{participation.kind.value} participation, found {tuple(names)}.'
    )
  return tuple(name for name in supported if name in names)


def create_accountant(
    name: str, neighboring_relation: dp_accounting.NeighboringRelation
) -> dp_accounting.PrivacyAccountant:
  """Returns an empty accountant.

  Args:
    name: 'rdp' or 'pld'.
    neighboring_relation: The relation of the participation.

  Raises:
    ValueError: If the name is unknown, or `dp_accounting` has no such
      accountant for the relation (PLD with REPLACE_ONE).
  """
  if name not in _ACCOUNTANTS:
    raise ValueError(
        f'accountant must be one of {sorted(_ACCOUNTANTS)}, found {name!r}.'
    )
  for rules in _RULES.values():
    if (
        rules.neighboring_relation is neighboring_relation
        and name in rules.accountants
    ):
      return _ACCOUNTANTS[name](neighboring_relation=neighboring_relation)
  raise ValueError(
      f'accountant must support {neighboring_relation}, found {name!r}: '
      'dp_accounting has no PLD for sampling without replacement; use '
      "'rdp' for fixed-size participation."
  )


def round_event(
    mechanism_event: dp_accounting.DpEvent,
    participation: Participation,
    *,
    sensitivity_in_clip_norms: float | None = None,
) -> dp_accounting.DpEvent:
  """Returns the event of one round, ready for an accountant.

  Privacy:
    Unit: user.
    Neighbouring relation: `participation.neighboring_relation`.
    Sensitivity: `participation.sensitivity_in_clip_norms` clip norms; the
      noise multiplier is divided by it here, once, and nowhere else.
    DpEvent: `PoissonSampledDpEvent` or `SampledWithoutReplacementDpEvent` of
      a `GaussianDpEvent`; `NonPrivateDpEvent` without noise.

  Args:
    mechanism_event: `GaussianDpEvent(noise_multiplier)`, where the multiplier
      is the standard deviation of the noise on the sum over the clip norm, or
      `NonPrivateDpEvent()`.
    participation: Who takes part in the round.
    sensitivity_in_clip_norms: Replaces the sensitivity that the participation
      supports; for comparisons that are named as such.

  Raises:
    ValueError: If the mechanism is of another class, or a number is out of
      its range.
  """
  if isinstance(mechanism_event, dp_accounting.NonPrivateDpEvent):
    return mechanism_event
  if not isinstance(mechanism_event, dp_accounting.GaussianDpEvent):
    raise ValueError(
        'mechanism_event must be a GaussianDpEvent or a NonPrivateDpEvent, '
        f'found {mechanism_event!r}.'
    )
  noise_multiplier = mechanism_event.noise_multiplier
  check_noise_multiplier(noise_multiplier)
  if sensitivity_in_clip_norms is None:
    sensitivity_in_clip_norms = participation.sensitivity_in_clip_norms
  if not _is_number(sensitivity_in_clip_norms) or (
      sensitivity_in_clip_norms <= 0
  ):
    raise ValueError(
        'sensitivity_in_clip_norms must be a positive finite number, found '
        f'{sensitivity_in_clip_norms!r}.'
    )
  if noise_multiplier == 0:
    return dp_accounting.NonPrivateDpEvent()
  return _RULES[participation.kind].sampled_event(
      participation,
      dp_accounting.GaussianDpEvent(
          noise_multiplier / sensitivity_in_clip_norms
      ),
  )


def current_epsilon(
    accountant: dp_accounting.PrivacyAccountant, delta: float
) -> float:
  """Returns the accountant's epsilon, refusing one that is not a number.

  Raises:
    ValueError: If the accounting broke down numerically.
  """
  # `RdpAccountant` turns a NaN among its divergences into epsilon 0.
  broken = isinstance(accountant, dp_accounting.rdp.RdpAccountant) and any(
      math.isnan(value) for value in accountant.rdp
  )
  epsilon = float(accountant.get_epsilon(delta))
  if broken or math.isnan(epsilon):
    raise ValueError(
        f'epsilon must be a number, found NaN after {accountant.ledger}.'
    )
  return epsilon


def epsilon_of(
    event_counts: Sequence[tuple[dp_accounting.DpEvent, int]],
    delta: float,
    *,
    accountant: str,
    neighboring_relation: dp_accounting.NeighboringRelation,
) -> float:
  """Returns the epsilon of a sequence of rounds at `delta`.

  Privacy:
    Unit: user.
    Neighbouring relation: `neighboring_relation`; it does not change the
      sensitivity, so pass events made by `round_event`.
    Sensitivity: 1, already divided out by `round_event`.
    DpEvent: the adaptive composition of `event_counts`.

  Args:
    event_counts: Pairs of a round's event and the number of such rounds.
    delta: In (0, 1).
    accountant: 'rdp' or 'pld'. PLD is tighter; it costs about a second at
      noise multipliers near 1 and minutes below 0.05.
    neighboring_relation: The relation of the participation.

  Returns:
    Epsilon, 0 for no rounds and infinity if any round is not private.

  Raises:
    ValueError: If delta is out of range, or the accountant supports the
      relation or one of the events not at all.
  """
  check_delta(delta)
  ledger = create_accountant(accountant, neighboring_relation)
  for event, count in event_counts:
    check_integer('count', count, minimum=0)
    if not ledger.supports(event):
      raise ValueError(
          f'event must be supported by the {accountant!r} accountant under '
          f'{neighboring_relation}, found {event!r}.'
      )
    if count:
      ledger.compose(event, count)
  return current_epsilon(ledger, delta)


def epsilon_by_accountant(
    mechanism_counts: Sequence[tuple[dp_accounting.DpEvent, int]],
    participation: Participation,
    delta: float,
    *,
    accountants: Sequence[str] | None = None,
    sensitivity_in_clip_norms: float | None = None,
) -> dict[str, float]:
  """Returns the epsilon of the same rounds by each accountant.

  Privacy:
    As `round_event`, composed over the rounds.

  Args:
    mechanism_counts: Pairs of a mechanism's event, as in `round_event`, and
      the number of rounds.
    participation: Who takes part.
    delta: In (0, 1).
    accountants: Their names; all that the participation supports if None.
    sensitivity_in_clip_norms: As in `round_event`.

  Returns:
    Epsilon by name. PLD is left out where RDP already exceeds
    `PLD_EPSILON_LIMIT`.

  Raises:
    ValueError: As `round_event` and `epsilon_of`.
  """
  accountants = select_accountants(participation, accountants)
  counts = [
      (
          round_event(
              event,
              participation,
              sensitivity_in_clip_norms=sensitivity_in_clip_norms,
          ),
          count,
      )
      for event, count in mechanism_counts
  ]
  # One round without noise decides, whatever the others cost to account for.
  unprotected = [
      (event, count)
      for event, count in counts
      if count and isinstance(event, dp_accounting.NonPrivateDpEvent)
  ]
  epsilons = {}
  for name in accountants:
    if (
        name == 'pld'
        and not unprotected
        and epsilons.get('rdp', 0.0) > PLD_EPSILON_LIMIT
    ):
      continue
    epsilons[name] = epsilon_of(
        unprotected or counts,
        delta,
        accountant=name,
        neighboring_relation=participation.neighboring_relation,
    )
  return epsilons


def leading(epsilons: Mapping[str, float]) -> tuple[str, float]:
  """Returns the name and the epsilon of the tightest valid accountant."""
  # Each accountant gives a valid upper bound, so the smallest one holds.
  name = min(epsilons, key=epsilons.__getitem__)
  return name, epsilons[name]


@dataclasses.dataclass(frozen=True)
class PrivacyReport:
  """What a run protects, what that cost, and under which assumptions.

  Privacy:
    Unit: `unit`.
    Neighbouring relation: `neighboring_relation`.
    Sensitivity: `sensitivity_in_clip_norms` clip norms.
    DpEvent: spelled out in `statement`.

  Attributes:
    epsilon: The guarantee; infinity if a round was not private.
    delta: At which epsilon holds.
    unit: 'user'.
    neighboring_relation: For example 'add or remove one user'.
    sampling: The sampler that was run, in words.
    accountant: Whose epsilon leads: the smallest of the valid ones.
    epsilon_by_accountant: Epsilon of each accountant that was run.
    sensitivity_in_clip_norms: Change of a round's sum for one user.
    unit_is_virtual_client_epsilon: Epsilon if the sum changed by one clip norm
      only, for comparison: see `VIRTUAL_CLIENT_UNIT`. Infinity if a round was
      not private, None where the two readings are the same.
    rounds: Number of rounds.
    noise_multiplier: Smallest of all rounds, before division by the
      sensitivity; 0 if a round was not private, None without rounds.
    num_users: Size of the population.
    users_per_round: (Expected) users in a round.
    users_per_client: Users per virtual client.
    released: What may be published.
    not_covered: What the guarantee says nothing about.
    statement: The whole in words that a reader can check by hand.
    warnings: What deserves a second look.
  """

  epsilon: float
  delta: float
  unit: str
  neighboring_relation: str
  sampling: str
  accountant: str
  epsilon_by_accountant: Mapping[str, float]
  sensitivity_in_clip_norms: float
  unit_is_virtual_client_epsilon: float | None
  rounds: int
  noise_multiplier: float | None
  num_users: int
  users_per_round: float
  users_per_client: int
  released: str
  not_covered: tuple[str, ...]
  statement: str
  warnings: tuple[str, ...]

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold, infinity as "inf"."""
    return json_safe(dataclasses.asdict(self))

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> 'PrivacyReport':
    """Inverse of `to_json`."""
    virtual = values['unit_is_virtual_client_epsilon']
    return cls(
        **{
            **values,
            'epsilon': float(values['epsilon']),
            'epsilon_by_accountant': {
                name: float(epsilon)
                for name, epsilon in values['epsilon_by_accountant'].items()
            },
            'unit_is_virtual_client_epsilon': (
                None if virtual is None else float(virtual)
            ),
            'not_covered': tuple(values['not_covered']),
            'warnings': tuple(values['warnings']),
        }
    )


def json_safe(value: Any) -> Any:
  """Returns value with infinity as the string "inf" and tuples as lists."""
  if isinstance(value, Mapping):
    return {key: json_safe(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [json_safe(item) for item in value]
  if isinstance(value, float) and math.isinf(value):
    return 'inf' if value > 0 else '-inf'
  return value


def check_delta(delta: float) -> None:
  """Raises ValueError unless delta lies strictly between 0 and 1."""
  if not _is_number(delta) or not 0 < delta < 1:
    raise ValueError(f'delta must be in (0, 1), found {delta!r}.')


def check_noise_multiplier(noise_multiplier: float) -> None:
  """Raises ValueError unless it is finite and not negative."""
  if not _is_number(noise_multiplier) or noise_multiplier < 0:
    raise ValueError(
        'noise_multiplier must be a finite number of at least 0, found '
        f'{noise_multiplier!r}.'
    )


def check_integer(name: str, value: int, *, minimum: int) -> None:
  """Raises ValueError unless value is an integer of at least `minimum`."""
  if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
    raise ValueError(
        f'{name} must be an integer of at least {minimum}, found {value!r}.'
    )


def count_in_words(number: float) -> str:
  """Returns a count with thousands separated, for example '131,072'."""
  return f'{int(number) if number == int(number) else number:,}'


def _is_number(value: Any) -> bool:
  return (
      isinstance(value, numbers.Real)
      and not isinstance(value, bool)
      and math.isfinite(value)
  )
