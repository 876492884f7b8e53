"""Who takes part in a round, and what one user can change there.

The mechanism of one round clips every virtual client's update to L2 norm C,
sums them and adds Gaussian noise of standard deviation `noise_multiplier * C`
to the sum, which is then divided by a constant (Xu et al. 2023, "Learning to
Generate Image Embeddings with User-level Differential Privacy", section 3).
A virtual client merges `users_per_client` users, so one user may move the sum
by more than C; this module states by how much, for each way of taking part.

`NeighboringRelation.REPLACE_ONE` of `dp_accounting` selects an amplification
theorem and does not double the sensitivity: the doubling happens once, in
`round_event`.
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

USER = 'user'
VIRTUAL_CLIENT_UNIT = (
    'protects a whole virtual client only, not user-level: zero-out of a '
    'virtual client'
)


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
      self._set(name, check_integer(name, getattr(self, name), minimum=1))
    users = self.users_per_round
    if self.kind is ParticipationKind.FIXED_SIZE:
      users = check_integer('users_per_round', users, minimum=1)
    elif not is_number(users):
      raise ValueError(
          f'users_per_round must be a finite number, found {users!r}.'
      )
    elif isinstance(users, numbers.Integral):
      users = operator.index(users)
    else:
      users = float(users)
    self._set('users_per_round', users)
    if not self.users_per_client <= users <= self.num_users:
      raise ValueError(
          'users_per_round must be at least users_per_client '
          f'({self.users_per_client}) and at most num_users '
          f'({self.num_users}), found {users!r}.'
      )

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
        f'accountants must be among {supported} for '
        f'{participation.kind.value} participation, found {tuple(names)}.'
    )
  return tuple(name for name in supported if name in names)


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
  if not is_number(sensitivity_in_clip_norms) or (
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


def check_delta(delta: float) -> None:
  """Raises ValueError unless delta lies strictly between 0 and 1."""
  if not is_number(delta) or not 0 < delta < 1:
    raise ValueError(f'delta must be in (0, 1), found {delta!r}.')


def check_noise_multiplier(noise_multiplier: float) -> None:
  """Raises ValueError unless it is finite and not negative."""
  if not is_number(noise_multiplier) or noise_multiplier < 0:
    raise ValueError(
        'noise_multiplier must be a finite number of at least 0, found '
        f'{noise_multiplier!r}.'
    )


def check_integer(name: str, value: int, *, minimum: int) -> int:
  """Returns value, Python's or NumPy's, as an `int`.

  Args:
    name: What the error calls it.
    value: The number.
    minimum: The smallest value allowed.

  Raises:
    ValueError: If value is too small, a truth value or no integer at all.
  """
  is_integer = isinstance(value, numbers.Integral)
  if not is_integer or isinstance(value, bool) or value < minimum:
    raise ValueError(
        f'{name} must be an integer of at least {minimum}, found {value!r}.'
    )
  return operator.index(value)


def count_in_words(number: float) -> str:
  """Returns a count with thousands separated, for example '131,072'."""
  return f'{int(number) if number == int(number) else number:,}'


def is_number(value: Any) -> bool:
  """Whether value is a finite real number, and not a truth value."""
  return (
      isinstance(value, numbers.Real)
      and not isinstance(value, bool)
      and math.isfinite(value)
  )
