"""What a run protects and what that cost, in numbers and in words.

A report is meant to be checked by hand: it names the protected unit, the
neighbouring relation, the sampler, the sensitivity and the events that the
accountant was given.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import importlib.metadata
import math
from typing import Any

import dp_accounting

from tff_fedemb.privacy import accounting
from tff_fedemb.privacy import epsilon as epsilon_lib

_RELEASED = "every round's model (all iterates)"
_NOT_COVERED = (
    'training metrics: losses, norms, counts and evaluations on the users of '
    'a round are computed without noise',
    'evaluation: recall, ROC and thresholds are computed without noise, in '
    'some tasks (EMNIST) on further images of the same users',
    'hyperparameter tuning: other runs on the same users add their own cost',
    'pseudo-randomness: in a simulation the sampling and the noise come from '
    'seeded generators; whoever knows the seed sees through both',
)

_Run = tuple[dp_accounting.DpEvent, int]


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
      only, for comparison: see
      `accounting.VIRTUAL_CLIENT_UNIT`. Infinity if a round was
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


def create_report(
    mechanism_counts: Sequence[_Run],
    participation: accounting.Participation,
    delta: float,
    *,
    accountants: Sequence[str] | None = None,
) -> PrivacyReport:
  """Returns the whole account of a run.

  Privacy:
    As `accounting.round_event`, composed over the rounds.

  Args:
    mechanism_counts: Pairs of a mechanism's event, as in
      `accounting.round_event`, and the number of rounds; each event once.
    participation: Who took part.
    delta: In (0, 1).
    accountants: Their names; all that the participation supports if None.

  Raises:
    ValueError: As `epsilon.epsilon_by_accountant`.
  """
  accountants = accounting.select_accountants(participation, accountants)
  epsilons = epsilon_lib.epsilon_by_accountant(
      mechanism_counts, participation, delta, accountants=accountants
  )
  name, epsilon = epsilon_lib.leading(epsilons)
  virtual = None
  if participation.sensitivity_in_clip_norms != 1:
    _, virtual = epsilon_lib.leading(
        epsilon_lib.epsilon_by_accountant(
            mechanism_counts,
            participation,
            delta,
            accountants=accountants,
            sensitivity_in_clip_norms=1.0,
        )
    )
  return PrivacyReport(
      epsilon=epsilon,
      delta=delta,
      unit=participation.unit,
      neighboring_relation=participation.neighboring_relation_in_words,
      sampling=participation.sampling,
      accountant=name,
      epsilon_by_accountant=epsilons,
      sensitivity_in_clip_norms=participation.sensitivity_in_clip_norms,
      unit_is_virtual_client_epsilon=virtual,
      rounds=_num_rounds(mechanism_counts),
      noise_multiplier=_smallest_noise_multiplier(mechanism_counts),
      num_users=participation.num_users,
      users_per_round=participation.users_per_round,
      users_per_client=participation.users_per_client,
      released=_RELEASED,
      not_covered=_NOT_COVERED,
      statement=_statement(
          mechanism_counts, participation, delta, epsilons, virtual
      ),
      warnings=_warnings(
          mechanism_counts, participation, delta, epsilons, accountants
      ),
  )


def _statement(
    mechanism_counts: Sequence[_Run],
    participation: accounting.Participation,
    delta: float,
    epsilons: Mapping[str, float],
    virtual: float | None,
) -> str:
  name, epsilon = epsilon_lib.leading(epsilons)
  sensitivity = participation.sensitivity_in_clip_norms
  events = ' + '.join(
      f'{count} x {accounting.round_event(event, participation)}'
      for event, count in mechanism_counts[:3]
  )
  if len(mechanism_counts) > 3:
    events += f' + {len(mechanism_counts) - 3} more'
  others = ''.join(
      f' ({other}: {value:.4g})'
      for other, value in epsilons.items()
      if other != name
  )
  comparison = ''
  if virtual is not None:
    comparison = (
        ' For comparison only, counting a change of one clip norm instead, '
        f'the same accounting prints {virtual:.4g}; that reading '
        f'{accounting.VIRTUAL_CLIENT_UNIT}.'
    )
  return (
      f'(epsilon, delta) = ({epsilon:.4g}, {delta:.4g}) for the unit '
      f'"{participation.unit}" under the relation '
      f'"{participation.neighboring_relation_in_words}", by '
      f'{name.upper()}{others} of dp_accounting '
      f'{importlib.metadata.version("dp-accounting")}, for '
      f'{_num_rounds(mechanism_counts):,} '
      f'rounds of which {_RELEASED} may be released. '
      f'{participation.sampling}. Every virtual client\'s update is clipped '
      'to L2 norm C, the clipped updates are summed, and Gaussian noise of '
      'standard deviation z x C, z the noise multiplier, is added to the '
      'sum, which is then divided by a constant. One user changes the sum '
      f'by at most {sensitivity:g} C, so the accountant is given '
      f'z / {sensitivity:g}: {events or "no event"}.{comparison}'
  )


def _warnings(
    mechanism_counts: Sequence[_Run],
    participation: accounting.Participation,
    delta: float,
    epsilons: Mapping[str, float],
    accountants: Sequence[str],
) -> tuple[str, ...]:
  warnings = []
  if delta >= 1 / participation.num_users:
    warnings.append(
        f'delta {delta:g} is not below 1 / num_users = '
        f'{1 / participation.num_users:g}'
    )
  skipped = [name for name in accountants if name not in epsilons]
  if skipped:
    warnings.append(
        f'{", ".join(skipped)} not run: rdp epsilon exceeds '
        f'{epsilon_lib.PLD_EPSILON_LIMIT:g}'
    )
  if not mechanism_counts:
    warnings.append('no round was recorded')
  elif epsilon_lib.leading(epsilons)[1] == math.inf:
    warnings.append('a round added no noise: nothing is protected')
  return tuple(warnings)


def _num_rounds(mechanism_counts: Sequence[_Run]) -> int:
  return sum(count for _, count in mechanism_counts)


def _smallest_noise_multiplier(
    mechanism_counts: Sequence[_Run],
) -> float | None:
  return min(
      (
          float(getattr(event, 'noise_multiplier', 0.0))
          for event, _ in mechanism_counts
      ),
      default=None,
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
