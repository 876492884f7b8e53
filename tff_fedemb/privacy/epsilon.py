"""Epsilon of a sequence of rounds, by each of the valid accountants.

`dp_accounting` computes every epsilon; this module chooses the accountant,
refuses what that one does not support, and catches numbers that broke down.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import math

import dp_accounting

from tff_fedemb.privacy import accounting

# Above this RDP epsilon the PLD accountant is not run: its cost grows with
# 1 / noise_multiplier^2 (minutes at 0.02), for a figure that protects nobody.
PLD_EPSILON_LIMIT = 50.0

_ACCOUNTANTS: dict[str, Callable[..., dp_accounting.PrivacyAccountant]] = {
    'rdp': dp_accounting.rdp.RdpAccountant,
    'pld': dp_accounting.pld.PLDAccountant,
}


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
  if name in accounting.accountants_of_relation(neighboring_relation):
    return _ACCOUNTANTS[name](neighboring_relation=neighboring_relation)
  raise ValueError(
      f'accountant must support {neighboring_relation}, found {name!r}: '
      'dp_accounting has no PLD for sampling without replacement; use '
      "'rdp' for fixed-size participation."
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
      sensitivity, so pass events made by `accounting.round_event`.
    Sensitivity: 1, already divided out by `accounting.round_event`.
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
  accounting.check_delta(delta)
  ledger = create_accountant(accountant, neighboring_relation)
  for event, count in event_counts:
    count = accounting.check_integer('count', count, minimum=0)
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
    participation: accounting.Participation,
    delta: float,
    *,
    accountants: Sequence[str] | None = None,
    sensitivity_in_clip_norms: float | None = None,
) -> dict[str, float]:
  """Returns the epsilon of the same rounds by each accountant.

  Privacy:
    As `accounting.round_event`, composed over the rounds.

  Args:
    mechanism_counts: Pairs of a mechanism's event, as in
      `accounting.round_event`, and the number of rounds.
    participation: Who takes part.
    delta: In (0, 1).
    accountants: Their names; all that the participation supports if None.
    sensitivity_in_clip_norms: As in `accounting.round_event`.

  Returns:
    Epsilon by name. PLD is left out where RDP already exceeds
    `PLD_EPSILON_LIMIT`.

  Raises:
    ValueError: As `accounting.round_event` and `epsilon_of`.
  """
  accountants = accounting.select_accountants(participation, accountants)
  counts = [
      (
          accounting.round_event(
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
