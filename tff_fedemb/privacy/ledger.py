"""The privacy ledger: what happened, round by round, and what it cost.

One event per round, kept run-length encoded, so that the ledger of a long run
is a few numbers. It is stored in the checkpoint; a resumed run goes on as if
it had never stopped.
"""

from collections.abc import Sequence
import copy
import importlib.metadata
import json
from typing import Any

import dp_accounting

from tff_fedemb.privacy import accounting

_FORMAT = 'tff_fedemb.privacy.ledger'
_VERSION = 1
_RELEASED = "every round's model (all iterates)"
_NOT_COVERED = (
    'training metrics: losses, norms, counts and evaluations on the users of '
    'a round are computed without noise',
    'hyperparameter tuning: other runs on the same users add their own cost',
    'pseudo-randomness: in a simulation the sampling and the noise come from '
    'seeded generators; whoever knows the seed sees through both',
)

# Events that a stored ledger may hold, with their parameters. A new mechanism
# is one more entry here.
_EVENT_CLASSES: dict[str, tuple[type[dp_accounting.DpEvent], tuple[str, ...]]]
_EVENT_CLASSES = {
    'GaussianDpEvent': (dp_accounting.GaussianDpEvent, ('noise_multiplier',)),
    'NonPrivateDpEvent': (dp_accounting.NonPrivateDpEvent, ()),
}

_Run = tuple[dp_accounting.DpEvent, int]


class Ledger:
  """Records the rounds of a run and says what they cost.

  Privacy:
    Unit: user.
    Neighbouring relation: the participation's.
    Sensitivity: the participation's, in clip norms.
    DpEvent: the composition of `accounting.round_event` over the rounds.
  """

  def __init__(
      self,
      participation: accounting.Participation,
      *,
      delta: float,
      accountants: Sequence[str] | None = None,
  ):
    """Creates an empty ledger.

    Args:
      participation: Who takes part in every round.
      delta: At which epsilon is stated, in (0, 1).
      accountants: Names of the accountants; all that the participation
        supports if None.

    Raises:
      ValueError: If delta is out of range or an accountant not supported.
    """
    accounting.check_delta(delta)
    self._participation = participation
    self._delta = float(delta)
    self._accountants = accounting.select_accountants(
        participation, accountants
    )
    self._history: list[_Run] = []
    self._rdp = _IncrementalRdp(participation)
    self._cache: dict[str, tuple[int, float]] = {}

  @property
  def participation(self) -> accounting.Participation:
    """Who takes part in every round."""
    return self._participation

  @property
  def delta(self) -> float:
    """At which epsilon is stated."""
    return self._delta

  @property
  def accountants(self) -> tuple[str, ...]:
    """Names of the accountants, cheapest first."""
    return self._accountants

  @property
  def rounds(self) -> int:
    """Number of rounds recorded."""
    return sum(count for _, count in self._history)

  @property
  def history(self) -> tuple[tuple[dp_accounting.DpEvent, int], ...]:
    """Pairs of a mechanism's event and how many rounds in a row it ran."""
    return tuple(self._history)

  def record_round(self, mechanism_event: dp_accounting.DpEvent) -> None:
    """Adds one round.

    Privacy:
      As the class; the event is stated at a sensitivity of one clip norm.

    Args:
      mechanism_event: As in `accounting.round_event`.

    Raises:
      ValueError: If the event is not supported.
    """
    # Refused now rather than hours later, when an epsilon is wanted.
    accounting.round_event(mechanism_event, self._participation)
    if self._history and self._history[-1][0] == mechanism_event:
      self._history[-1] = (mechanism_event, self._history[-1][1] + 1)
    else:
      self._history.append((mechanism_event, 1))

  def epsilon(self, accountant: str | None = None) -> float:
    """Returns the epsilon of the rounds so far.

    By RDP it takes well under a second whatever the number of rounds; by PLD
    seconds or, at noise multipliers below 0.1, minutes.

    Args:
      accountant: Its name; the cheapest of the ledger's if None.

    Raises:
      ValueError: If the accountant is not one of the ledger's.
    """
    accountant = self._check_accountant(accountant)
    rounds, epsilon = self._cache.get(accountant, (-1, 0.0))
    if rounds != self.rounds:
      epsilon = self._epsilon(accountant, self._history, self._rdp)
      self._cache[accountant] = (self.rounds, epsilon)
    return epsilon

  def epsilon_curve(
      self, rounds: Sequence[int], *, accountant: str | None = None
  ) -> list[float]:
    """Returns epsilon after each of the given numbers of rounds.

    Args:
      rounds: Numbers of rounds, each in [0, self.rounds], in any order.
      accountant: Its name; the cheapest of the ledger's if None.

    Raises:
      ValueError: If a number is out of range, or the accountant is not one of
        the ledger's.
    """
    accountant = self._check_accountant(accountant)
    for number in rounds:
      accounting.check_integer('rounds', number, minimum=0)
      if number > self.rounds:
        raise ValueError(
            f'rounds must be at most {self.rounds}, found {number}.'
        )
    rdp = _IncrementalRdp(self._participation)
    epsilons = {
        number: self._epsilon(accountant, _prefix(self._history, number), rdp)
        for number in sorted(set(rounds))
    }
    return [epsilons[number] for number in rounds]

  def report(self) -> accounting.PrivacyReport:
    """Returns the whole account of the rounds so far."""
    participation = self._participation
    merged = _merge(self._history)
    epsilons = accounting.epsilon_by_accountant(
        merged, participation, self._delta, accountants=self._accountants
    )
    name, epsilon = accounting.leading(epsilons)
    virtual = None
    if participation.sensitivity_in_clip_norms != 1:
      _, virtual = accounting.leading(
          accounting.epsilon_by_accountant(
              merged,
              participation,
              self._delta,
              accountants=self._accountants,
              sensitivity_in_clip_norms=1.0,
          )
      )
    return accounting.PrivacyReport(
        epsilon=epsilon,
        delta=self._delta,
        unit=participation.unit,
        neighboring_relation=participation.neighboring_relation_in_words,
        sampling=participation.sampling,
        accountant=name,
        epsilon_by_accountant=epsilons,
        sensitivity_in_clip_norms=participation.sensitivity_in_clip_norms,
        unit_is_virtual_client_epsilon=virtual,
        rounds=self.rounds,
        noise_multiplier=_smallest_noise_multiplier(merged),
        num_users=participation.num_users,
        users_per_round=participation.users_per_round,
        users_per_client=participation.users_per_client,
        released=_RELEASED,
        not_covered=_NOT_COVERED,
        statement=self._statement(merged, epsilons, virtual),
        warnings=self._warnings(epsilons),
    )

  def to_json(self) -> str:
    """Returns the ledger as text, for a checkpoint."""
    return json.dumps(
        {
            'format': _FORMAT,
            'version': _VERSION,
            'participation': self._participation.to_json(),
            'delta': self._delta,
            'accountants': self._accountants,
            'history': [
                [_event_to_json(event), count] for event, count in self._history
            ],
        },
        allow_nan=False,
    )

  @classmethod
  def from_json(cls, text: str) -> 'Ledger':
    """Inverse of `to_json`.

    Raises:
      ValueError: If the text is not a ledger of this version, or holds an
        event of an unknown class.
    """
    values = json.loads(text)
    found = None
    if isinstance(values, dict):
      found = (values.get('format'), values.get('version'))
    if found != (_FORMAT, _VERSION):
      raise ValueError(
          f'ledger must be of format and version {(_FORMAT, _VERSION)}, '
          f'found {found}.'
      )
    ledger = cls(
        accounting.Participation.from_json(values['participation']),
        delta=values['delta'],
        accountants=values['accountants'],
    )
    for event_values, count in values['history']:
      accounting.check_integer('count', count, minimum=1)
      event = _event_from_json(event_values)
      accounting.round_event(event, ledger.participation)
      ledger._history.append((event, count))
    return ledger

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Ledger):
      return NotImplemented
    return self._identity() == other._identity()

  __hash__ = None  # A ledger changes with every round.

  def __repr__(self) -> str:
    return f'Ledger.from_json({self.to_json()!r})'

  def _identity(self) -> tuple[Any, ...]:
    return (
        self._participation,
        self._delta,
        self._accountants,
        self._history,
    )

  def _check_accountant(self, name: str | None) -> str:
    if name is None:
      return self._accountants[0]
    if name not in self._accountants:
      raise ValueError(
          f'accountant must be one of {self._accountants}, found {name!r}.'
      )
    return name

  def _epsilon(
      self, accountant: str, history: Sequence[_Run], rdp: '_IncrementalRdp'
  ) -> float:
    if accountant == 'rdp':
      return rdp.epsilon(history, self._delta)
    return accounting.epsilon_by_accountant(
        _merge(history),
        self._participation,
        self._delta,
        accountants=(accountant,),
    )[accountant]

  def _statement(
      self,
      merged: Sequence[_Run],
      epsilons: dict[str, float],
      virtual: float | None,
  ) -> str:
    name, epsilon = accounting.leading(epsilons)
    participation = self._participation
    sensitivity = participation.sensitivity_in_clip_norms
    events = ' + '.join(
        f'{count} x {accounting.round_event(event, participation)}'
        for event, count in merged[:3]
    )
    if len(merged) > 3:
      events += f' + {len(merged) - 3} more'
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
        f'(epsilon, delta) = ({epsilon:.4g}, {self._delta:.4g}) for the unit '
        f'"{participation.unit}" under the relation '
        f'"{participation.neighboring_relation_in_words}", by '
        f'{name.upper()}{others} of dp_accounting '
        f'{importlib.metadata.version("dp-accounting")}, for {self.rounds:,} '
        f'rounds of which {_RELEASED} may be released. '
        f'{participation.sampling}. Every virtual client\'s update is clipped '
        'to L2 norm C, the clipped updates are summed, and Gaussian noise of '
        'standard deviation z x C, z the noise multiplier, is added to the '
        'sum, which is then divided by a constant. One user changes the sum '
        f'by at most {sensitivity:g} C, so the accountant is given '
        f'z / {sensitivity:g}: {events or "no event"}.{comparison}'
    )

  def _warnings(self, epsilons: dict[str, float]) -> tuple[str, ...]:
    warnings = []
    if self._delta >= 1 / self._participation.num_users:
      warnings.append(
          f'delta {self._delta:g} is not below 1 / num_users = '
          f'{1 / self._participation.num_users:g}'
      )
    skipped = [name for name in self._accountants if name not in epsilons]
    if skipped:
      warnings.append(
          f'{", ".join(skipped)} not run: rdp epsilon exceeds '
          f'{accounting.PLD_EPSILON_LIMIT:g}'
      )
    if not self._history:
      warnings.append('no round was recorded')
    elif accounting.leading(epsilons)[1] == float('inf'):
      warnings.append('a round added no noise: nothing is protected')
    return tuple(warnings)


class _IncrementalRdp:
  """An RDP accountant that composes every finished run of rounds once.

  The run still going on is composed on a copy, so the result depends on the
  history alone, to the last bit, and not on when epsilon was asked for.
  """

  def __init__(self, participation: accounting.Participation):
    self._participation = participation
    self._accountant = accounting.create_accountant(
        'rdp', participation.neighboring_relation
    )
    self._composed = 0

  def epsilon(self, history: Sequence[_Run], delta: float) -> float:
    """Returns epsilon; each history must extend that of the last call."""
    for run in history[self._composed : -1]:
      self._compose(self._accountant, run)
      self._composed += 1
    accountant = copy.deepcopy(self._accountant)
    if history:
      self._compose(accountant, history[-1])
    return accounting.current_epsilon(accountant, delta)

  def _compose(
      self, accountant: dp_accounting.PrivacyAccountant, run: _Run
  ) -> None:
    event, count = run
    accountant.compose(
        accounting.round_event(event, self._participation), count
    )


def _merge(history: Sequence[_Run]) -> list[_Run]:
  """Adds up the counts of equal events; composition knows no order."""
  counts: dict[dp_accounting.DpEvent, int] = {}
  for event, count in history:
    counts[event] = counts.get(event, 0) + count
  return list(counts.items())


def _prefix(history: Sequence[_Run], rounds: int) -> list[_Run]:
  prefix = []
  for event, count in history:
    if rounds <= 0:
      break
    prefix.append((event, min(count, rounds)))
    rounds -= count
  return prefix


def _smallest_noise_multiplier(history: Sequence[_Run]) -> float | None:
  return min(
      (float(getattr(event, 'noise_multiplier', 0.0)) for event, _ in history),
      default=None,
  )


def _event_to_json(event: dp_accounting.DpEvent) -> dict[str, Any]:
  name = type(event).__name__
  _, parameters = _EVENT_CLASSES[name]
  return {'class': name} | {
      parameter: float(getattr(event, parameter)) for parameter in parameters
  }


def _event_from_json(values: dict[str, Any]) -> dp_accounting.DpEvent:
  name = values.get('class')
  if name not in _EVENT_CLASSES:
    raise ValueError(
        f'event class must be one of {sorted(_EVENT_CLASSES)}, found {name!r}.'
    )
  event_class, parameters = _EVENT_CLASSES[name]
  if set(values) != {'class', *parameters}:
    raise ValueError(
        f'{name} must have the parameters {parameters}, found '
        f'{sorted(set(values) - {"class"})}.'
    )
  return event_class(*(values[parameter] for parameter in parameters))
