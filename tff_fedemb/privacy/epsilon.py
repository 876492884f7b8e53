"""Epsilon of a sequence of rounds, by each of the valid accountants.

`dp_accounting` computes every epsilon; this module chooses the accountant,
refuses what that one does not support, and catches numbers that broke down.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy import monte_carlo

# Above this RDP epsilon the PLD accountant is not run: its cost grows with
# 1 / noise_multiplier^2 (minutes at 0.02), for a figure that protects nobody.
PLD_EPSILON_LIMIT = 50.0
# A run, which asks again and again, does not even try at noise this small.
_SMALLEST_NOISE_FOR_PLD = 0.3

RDP_ORDERS = tuple(dp_accounting.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
# By which the logarithm of the moment of a Poisson-sampled Gaussian may be off.
# `dp_accounting` ends its series at exp(-30) and adds numbers near 1: against
# exact arithmetic the largest error found was 6e-13, a third of this. A moment
# that is as near to 1 is lost, and its epsilon would be 0.
_LOG_MOMENT_ERROR = 2.0**-39
# Divergences that are so many times as large are right to six digits.
_MUCH_MORE = 2.0**20

# Of the reading that counts one clip norm where a user can cause two.
VIRTUAL_CLIENT_UNIT = (
  "is not user-level: at best it is for a whole virtual client, zeroed out"
)

_ACCOUNTANTS: dict[str, Callable[..., dp_accounting.PrivacyAccountant]] = {
  "rdp": dp_accounting.rdp.RdpAccountant,
  "pld": dp_accounting.pld.PLDAccountant,
  "gaussian": gaussian_accountant.GaussianAccountant,
  "monte_carlo": monte_carlo.MonteCarloAccountant,
}


def rdp_epsilon(
  divergences: np.ndarray,
  orders: Sequence[float],
  delta: float,
  *,
  sampled_rounds: int,
) -> tuple[float, float]:
  """Returns RDP's epsilon and its order, whatever was lost to rounding.

  Args:
    divergences: `[n]` of all rounds together, as `dp_accounting` has them.
    orders: `[n]` their orders, above 1.
    delta: In (0, 1).
    sampled_rounds: Rounds among them whose users were drawn by Poisson
      sampling.

  Returns:
    An upper bound; NaN if the accounting broke down numerically.
  """
  lost = sampled_rounds * _LOG_MOMENT_ERROR / (np.asarray(orders) - 1.0)
  if not np.all(divergences >= -lost):
    return math.nan, math.nan
  is_lost = divergences < lost * _MUCH_MORE
  return dp_accounting.rdp.compute_epsilon(
    orders, np.where(is_lost, divergences + lost, divergences), delta
  )


def sampled_rounds(
  event_counts: Sequence[tuple[dp_accounting.DpEvent, int]],
) -> int:
  """Returns the number of rounds as `rdp_epsilon` counts them.

  Args:
    event_counts: As in `epsilon_of`.
  """
  return sum(
    count
    for event, count in event_counts
    if isinstance(event, dp_accounting.PoissonSampledDpEvent)
    and event.sampling_probability < 1
  )


def current_epsilon(
  accountant: dp_accounting.PrivacyAccountant,
  delta: float,
  *,
  sampled_rounds: int = 0,
) -> float:
  """Returns the accountant's epsilon, refusing one that is not a number.

  Args:
    accountant: Of RDP's default orders, if of RDP.
    delta: In (0, 1).
    sampled_rounds: As in `rdp_epsilon`; other accountants do not need it.

  Raises:
    ValueError: If the accounting broke down numerically.
  """
  if isinstance(accountant, dp_accounting.rdp.RdpAccountant):
    epsilon, _ = rdp_epsilon(
      accountant.rdp, RDP_ORDERS, delta, sampled_rounds=sampled_rounds
    )
  else:
    epsilon = accountant.get_epsilon(delta)
  if math.isnan(epsilon):
    raise ValueError(
      f"epsilon must be a number, found NaN after {accountant.ledger}."
    )
  return float(epsilon)


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
      sensitivity, so pass those of `composition.composed_events`.
    Sensitivity: 1, already divided out by `composition.composed_events`.
    DpEvent: the adaptive composition of `event_counts`.

  Args:
    event_counts: Pairs of a round's event and the number of such rounds.
    delta: In (0, 1).
    accountant: 'rdp', 'pld', 'gaussian' or 'monte_carlo'. PLD is tighter than
      RDP; it costs about a second at noise multipliers near 1 and minutes below
      0.05. Monte Carlo takes some seconds.
    neighboring_relation: The relation of the participation.

  Returns:
    Epsilon, 0 for no rounds and infinity if any round is not private.

  Raises:
    ValueError: If delta is out of range, or the accountant supports the
      relation or one of the events not at all.
  """
  checks.check_delta(delta)
  checks.check_choice("accountant", accountant, _ACCOUNTANTS)
  composed = _compose(tuple(event_counts), accountant, neighboring_relation)
  return current_epsilon(
    composed, delta, sampled_rounds=sampled_rounds(event_counts)
  )


# What arithmetic adds is asked for at other deltas, and PLD takes a second.
@functools.lru_cache(maxsize=4)
def _compose(
  event_counts: tuple[tuple[dp_accounting.DpEvent, int], ...],
  accountant: str,
  neighboring_relation: dp_accounting.NeighboringRelation,
) -> dp_accounting.PrivacyAccountant:
  ledger = _ACCOUNTANTS[accountant](neighboring_relation=neighboring_relation)
  for event, count in event_counts:
    if not ledger.supports(event):
      raise ValueError(
        f"event must be supported by the {accountant!r} accountant under "
        f"{neighboring_relation}, found {event!r}."
      )
    if count:
      ledger.compose(event, count)
  return ledger


def epsilon_by_accountant(
  mechanism_counts: composition.RoundCounts,
  participation: participation_lib.Participation,
  delta: float,
  *,
  accountants: Sequence[str] | None = None,
  sensitivity_in_clip_norms: float | None = None,
) -> dict[str, float]:
  """Returns the epsilon of the same rounds by each accountant.

  Privacy:
    As `composition.composed_events`.

  Args:
    mechanism_counts: As in `composition.composed_events`.
    participation: Who takes part.
    delta: In (0, 1).
    accountants: Their names; all that the participation supports if None.
    sensitivity_in_clip_norms: As in `composition.composed_events`.

  Returns:
    Epsilon by name. PLD is left out where RDP already exceeds
    `PLD_EPSILON_LIMIT`.

  Raises:
    ValueError: As `composition.composed_events` and `epsilon_of`.
  """
  counts = tuple(
    composition.composed_events(
      mechanism_counts,
      participation,
      sensitivity_in_clip_norms=sensitivity_in_clip_norms,
    )
  )
  epsilons: dict[str, float] = {}
  for name in participation.select_accountants(accountants):
    rdp = epsilons.get("rdp", 0.0)
    if name == "pld" and PLD_EPSILON_LIMIT < rdp < math.inf:
      continue
    epsilons[name] = _epsilon_of(
      counts,
      delta,
      accountant=name,
      neighboring_relation=participation.neighboring_relation,
    )
  return epsilons


# A run tells its epsilon more than once, and PLD takes a second.
_epsilon_of = functools.lru_cache(maxsize=64)(epsilon_of)


def in_both_readings(
  participation: participation_lib.Participation,
  read: Callable[[str, str, float], Any],
) -> tuple[Any, Any]:
  """Returns what holds for a user, and what the authors would say.

  Privacy:
    Unit: user first; whole virtual client second, where that differs.
    Sensitivity: the participation's first; one clip norm second.

  Args:
    participation: Who takes part.
    read: From 'user-level' or 'authors', the protected unit in words, and the
      sensitivity in clip norms; returns a dataclass with such a `name`.
  """
  sensitivity = participation.sensitivity_in_clip_norms
  user_level = read(
    "user-level",
    f"one user: {participation.neighboring_relation_in_words}",
    sensitivity,
  )
  if sensitivity == 1:
    return user_level, dataclasses.replace(user_level, name="authors")
  return user_level, read("authors", VIRTUAL_CLIENT_UNIT, 1.0)


def accountants_of_run(
  participation: participation_lib.Participation, noise_multiplier: float
) -> tuple[str, ...]:
  """Names of the accountants for the ledger of a run: those that take seconds.

  Args:
    participation: Who takes part.
    noise_multiplier: Standard deviation of the noise over the clip norm.
  """
  accountants = participation.accountants
  # Where the exact figure is known, PLD's approximation adds nothing.
  if noise_multiplier < _SMALLEST_NOISE_FOR_PLD or "gaussian" in accountants:
    return tuple(name for name in accountants if name != "pld")
  return accountants


def with_secret_schedule(
  mechanism_counts: composition.RoundCounts,
  participation: participation_lib.Participation,
  delta: float,
) -> float | None:
  """Returns epsilon if nobody knew who was drawn when; None if moot.

  Args:
    mechanism_counts: As in `composition.composed_events`.
    participation: Who takes part.
    delta: In (0, 1).

  Returns:
    The tightest; None without rounds, where epsilon rests on that already or
    nothing is drawn, and where no sampling amplifies such noise.
  """
  secret = participation.with_secret_schedule()
  if secret == participation or not mechanism_counts:
    return None
  try:
    composition.check_noise(mechanism_counts, secret)
  except errors.FieldError:
    return None
  noises = [composition.noise_of(event) for event, _ in mechanism_counts]
  smallest = min(noise.multiplier for noise in noises)
  epsilons = epsilon_by_accountant(
    mechanism_counts,
    secret,
    delta,
    accountants=accountants_of_run(secret, smallest),
  )
  return leading(epsilons)[1]


def check_pld(
  mechanism_counts: composition.RoundCounts,
  participation: participation_lib.Participation,
  delta: float,
  *,
  accountants: Sequence[str],
) -> None:
  """Refuses PLD as the only accountant where it would take minutes.

  Args:
    mechanism_counts: As in `composition.composed_events`.
    participation: Who takes part.
    delta: In (0, 1).
    accountants: Those that are to be asked.

  Raises:
    errors.FieldError: If RDP's epsilon exceeds `PLD_EPSILON_LIMIT`.
  """
  if tuple(accountants) != ("pld",):
    return
  rdp = epsilon_by_accountant(
    mechanism_counts, participation, delta, accountants=("rdp",)
  )["rdp"]
  if PLD_EPSILON_LIMIT < rdp < math.inf:
    raise errors.FieldError(
      "accountant",
      f"be rdp where its epsilon exceeds {PLD_EPSILON_LIMIT:g} (here {rdp:.4g})"
      ": pld would take minutes for a figure that protects nobody",
      "pld",
    )


def leading(epsilons: Mapping[str, float]) -> tuple[str, float]:
  """Returns the name and the epsilon of the tightest valid accountant."""
  # Each accountant gives a valid upper bound, so the smallest one holds.
  name = min(epsilons, key=epsilons.__getitem__)
  return name, epsilons[name]


def zcdp(
  mechanism_counts: composition.RoundCounts,
  participation: participation_lib.Participation,
) -> float | None:
  """Returns rho of zero-concentrated DP; None where sampling amplifies.

  Bun and Steinke 2016, "Concentrated Differential Privacy". Sampling has no
  rho that is worth the name: the divergence of a sampled Gaussian grows faster
  than linearly in its order.

  Privacy:
    As `composition.composed_events`; infinity if a round is not private.

  Args:
    mechanism_counts: As in `composition.composed_events`.
    participation: Who takes part.

  Raises:
    ValueError: As `composition.composed_events`.
  """
  if participation.is_sampled:
    return None
  # Of Gaussian mechanisms the divergence of order a is exactly rho a.
  accountant = dp_accounting.rdp.RdpAccountant(
    orders=[2.0], neighboring_relation=participation.neighboring_relation
  )
  for event, count in composition.composed_events(
    mechanism_counts, participation
  ):
    accountant.compose(event, count)
  return float(accountant.rdp[0]) / 2.0
