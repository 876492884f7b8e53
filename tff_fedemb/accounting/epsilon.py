"""Epsilon of a sequence of rounds, by each of the valid accountants.

This module chooses the accountant (`accounting` says which of them are
`dp_accounting`'s), refuses an event that the accountant does not support, and
catches numbers that broke down.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np

from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.accounting import balls_in_bins
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.accounting import monte_carlo
from tff_fedemb.accounting import pld_accountant
from tff_fedemb.accounting import random_allocation
from tff_fedemb.accounting import random_allocation_rdp
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import random_allocation as allocation

# An order whose series does not converge gives no bound; other orders do.
progress.leave_out("_compute_log_a_frac failed to converge")

# Above this RDP epsilon the PLD accountant is not run: its cost grows with
# 1 / noise_multiplier^2 (minutes at 0.02), for a figure that protects nobody.
PLD_EPSILON_LIMIT = 50.0
# PLD is not tried at less noise than this, unless you ask for it by name.
_SMALLEST_NOISE_FOR_PLD = 0.3

RDP_ORDERS = tuple(dp_accounting.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
# Largest error in the log-moment of a Poisson-sampled Gaussian. `dp_accounting`
# ends its series at exp(-30) and adds numbers near 1: against exact arithmetic,
# the largest error found was 6e-13, a third of this. Without the allowance, a
# moment that near to 1 would give epsilon 0.
_LOG_MOMENT_ERROR = 2.0**-39
# A divergence this many times as large as the error is right to six digits.
_MUCH_MORE = 2.0**20

# The unit if you count one clip norm where a user can change the sum by two.
VIRTUAL_CLIENT_UNIT = (
  "is not user-level: at best it is for a whole virtual client, zeroed out"
)


class RdpAccountant(dp_accounting.rdp.RdpAccountant):
  """RDP for random allocation too, and a valid bound in spite of rounding.

  Privacy:
    Unit, neighbouring relation, sensitivity: those of `dp_accounting`'s RDP
      accountant.
    DpEvent: those of `dp_accounting`'s accountant; `RandomAllocationDpEvent`.
  """

  def __init__(
    self,
    neighboring_relation: dp_accounting.NeighboringRelation,
    orders: Sequence[float] = RDP_ORDERS,
  ):
    """Creates an empty accountant.

    Args:
      neighboring_relation: The relation of the participation.
      orders: Orders of the divergence, each above 1; fewer are quicker.
        Integers are quicker than fractions where sampling amplifies.
    """
    super().__init__(orders, neighboring_relation)
    self._sampled_rounds = 0

  def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
    """Composes an event, as the base class asks for it.

    It also counts the rounds that are sampled: their divergences are those that
    may have lost digits.
    """
    if isinstance(event, allocation.RandomAllocationDpEvent):
      if do_compose:
        self._sampled_rounds += count
        self._rdp += count * random_allocation_rdp.divergences(
          event, self._orders
        )
      return None
    error = super()._maybe_compose(event, count, do_compose)
    is_sampled = isinstance(event, dp_accounting.PoissonSampledDpEvent)
    if do_compose and is_sampled and event.sampling_probability < 1:
      self._sampled_rounds += count
    return error

  def get_epsilon(self, target_delta: float) -> float:
    """Returns an upper bound.

    `dp_accounting` may have made an error in the divergence of sampled rounds.
    A divergence below a million times that error is raised by it, so that
    rounding does not make epsilon too small.

    Args:
      target_delta: In (0, 1).

    Returns:
      Epsilon, at least 0; infinity if a round is not private.

    Raises:
      ValueError: If the accounting broke down numerically.
    """
    divergences = self.rdp
    orders = np.asarray(self.orders)
    lost = self._sampled_rounds * _LOG_MOMENT_ERROR / (orders - 1.0)
    if not np.all(divergences >= -lost):
      raise ValueError(f"RDP must be a number, found NaN after {self.ledger}.")
    is_lost = divergences < lost * _MUCH_MORE
    divergences = np.where(is_lost, divergences + lost, divergences)
    epsilon, _ = dp_accounting.rdp.compute_epsilon(
      orders, divergences, target_delta
    )
    return epsilon


# These add up probabilities, so rounding hides a tiny delta.
SUMMING = ("pld", "allocation")
_ACCOUNTANTS: dict[str, Callable[..., dp_accounting.PrivacyAccountant]] = {
  "rdp": RdpAccountant,
  "pld": pld_accountant.PldAccountant,
  "gaussian": gaussian_accountant.GaussianAccountant,
  "monte_carlo": monte_carlo.MonteCarloAccountant,
  "allocation": random_allocation.RandomAllocationAccountant,
}


def epsilon_of(
  event_counts: Sequence[tuple[dp_accounting.DpEvent, int]],
  delta: float,
  *,
  accountant: str,
  neighboring_relation: dp_accounting.NeighboringRelation,
  **options: Any,
) -> float:
  """Returns the epsilon of a sequence of rounds at `delta`.

  Privacy:
    Unit: user.
    Neighbouring relation: `neighboring_relation`; it does not change the
      sensitivity, so pass the events of `composition.composed_events`.
    Sensitivity: 1, already divided out by `composition.composed_events`.
    DpEvent: the adaptive composition of `event_counts`.

  Args:
    event_counts: Pairs of a round's event and the number of such rounds.
    delta: In (0, 1).
    accountant: 'rdp', 'pld', 'gaussian', 'monte_carlo' or 'allocation'. PLD is
      tighter than RDP; it costs about a second at noise multipliers near 1 and
      minutes below 0.05. Monte Carlo takes some seconds.
    neighboring_relation: The relation of the participation.
    **options: Options of the accountant, hashable: `orders` for 'rdp',
      `value_discretization_interval` for 'pld'.

  Returns:
    Epsilon, 0 for no rounds and infinity if any round is not private.

  Raises:
    KeyError: If there is no such accountant.
    ValueError: If the accountant does not support the relation or an event.
  """
  composed = _compose(
    tuple(event_counts), accountant, neighboring_relation, **options
  )
  return float(composed.get_epsilon(delta))


# PLD takes a second, and a run asks for its epsilon more than once: also at the
# deltas that the bound on arithmetic needs.
@functools.lru_cache(maxsize=16)
def _compose(
  event_counts: tuple[tuple[dp_accounting.DpEvent, int], ...],
  accountant: str,
  neighboring_relation: dp_accounting.NeighboringRelation,
  **options: Any,
) -> dp_accounting.PrivacyAccountant:
  """An accountant of all events."""
  composed = _ACCOUNTANTS[accountant](
    neighboring_relation=neighboring_relation, **options
  )
  for event, count in event_counts:
    if not composed.supports(event):
      raise ValueError(
        f"event must be supported by the {accountant!r} accountant under "
        f"{neighboring_relation}, found {event!r}."
      )
    composed.compose(event, count)
  return composed


def epsilon_by_accountant(
  account: composition.Account,
  *,
  sensitivity_in_clip_norms: float | None = None,
  **options: Any,
) -> dict[str, float]:
  """Returns the epsilon of the same rounds by each accountant.

  Privacy:
    As `composition.composed_events`.

  Args:
    account: The rounds, and which accountants to ask. Where a user's rounds
      were drawn once, the kind of noise decides which one is asked instead.
    sensitivity_in_clip_norms: Replaces the participation's sensitivity, for
      comparisons alone; None keeps it.
    **options: Options of the accountants, as in `epsilon_of`.

  Returns:
    Epsilon by accountant, as `epsilons_of` returns it.

  Raises:
    ValueError: As `composition.composed_events` and `epsilon_of`.
  """
  participation = account.participation
  names = account.accountants
  counts = account.composed_events(
    sensitivity_in_clip_norms=sensitivity_in_clip_norms
  )
  if participation.is_drawn_once and counts:
    # The kind of noise decides which accountant applies.
    event, _ = counts[0]
    is_in_bins = isinstance(event, balls_in_bins.BallsInBinsDpEvent)
    names = ("monte_carlo" if is_in_bins else "allocation",)
  return epsilons_of(
    counts,
    account.delta,
    accountants=names,
    neighboring_relation=participation.neighboring_relation,
    **options,
  )


def epsilons_of(
  event_counts: Sequence[tuple[dp_accounting.DpEvent, int]],
  delta: float,
  *,
  accountants: Sequence[str],
  **options: Any,
) -> dict[str, float]:
  """Returns `epsilon_of` by each of some accountants, the cheapest first.

  Args:
    event_counts: Pairs of a round's event and the number of such rounds.
    delta: In (0, 1).
    accountants: Names of the accountants, at least one, in the order in which
      they are asked; RDP has to come before PLD to spare it.
    **options: `neighboring_relation`, and options of the accountants.

  Returns:
    Epsilon by name. PLD is left out where RDP already exceeds
    `PLD_EPSILON_LIMIT`. RDP replaces the `SUMMING` accountants where delta is
    too small for them.

  Raises:
    ValueError: As `epsilon_of`.
  """
  epsilons: dict[str, float] = {}
  for name in accountants:
    rdp = epsilons.get("rdp", 0.0)
    if name == "pld" and PLD_EPSILON_LIMIT < rdp < math.inf:
      continue
    epsilons[name] = epsilon_of(event_counts, delta, accountant=name, **options)
  if any(epsilons.get(name) == math.inf for name in SUMMING):
    relation = options["neighboring_relation"]
    rdp = epsilon_of(
      event_counts, delta, accountant="rdp", neighboring_relation=relation
    )
    if rdp < math.inf:
      for name in SUMMING:
        epsilons.pop(name, None)
      return {"rdp": rdp} | epsilons
  return epsilons


def default_accountants(
  participation: participation_lib.Participation,
  noise_multiplier: float,
) -> tuple[str, ...]:
  """Returns the accountants that an account asks unless you name others.

  They are all that the participation allows and that take seconds at most;
  epsilon is their smallest. A plan, a run and the program `account` ask the
  same ones.

  Args:
    participation: Who takes part.
    noise_multiplier: Standard deviation of the noise over the clip norm. PLD is
      left out below 0.3, where it is slow.

  Returns:
    Names of accountants, cheapest first.
  """
  accountants = participation.accountants
  if "pld" in participation.further_accountants:
    accountants += ("pld",)
  # Where the exact figure is known, PLD's approximation adds nothing.
  if noise_multiplier < _SMALLEST_NOISE_FOR_PLD or "gaussian" in accountants:
    return tuple(name for name in accountants if name != "pld")
  return accountants


def with_secret_schedule(account: composition.Account) -> float | None:
  """Returns what epsilon would be if nobody knew who was drawn when.

  Reports print it beside the epsilon of a known schedule, for comparison alone.

  Args:
    account: The rounds.

  Returns:
    The tightest epsilon. None if there are no rounds, if epsilon rests on a
    secret draw already, if nothing is drawn, and if no sampling amplifies such
    noise.
  """
  secret = account.participation.with_secret_schedule()
  if secret == account.participation or not account.rounds:
    return None
  smallest = min(noise.multiplier for noise in account.noises)
  try:
    of_secret = dataclasses.replace(
      account,
      participation=secret,
      accountants=default_accountants(secret, smallest),
    )
  except errors.FieldError:
    return None
  return leading(epsilon_by_accountant(of_secret))[1]


def check_pld(account: composition.Account) -> None:
  """Refuses PLD as the only accountant where it would take minutes.

  If other accountants are asked as well, `epsilons_of` leaves PLD out.

  Args:
    account: The rounds.

  Raises:
    errors.FieldError: If RDP's epsilon is finite and exceeds
      `PLD_EPSILON_LIMIT`.
    ValueError: As `epsilon_by_accountant`.
  """
  if account.accountants != ("pld",):
    return
  by_rdp = dataclasses.replace(account, accountants=("rdp",))
  (rdp,) = epsilon_by_accountant(by_rdp).values()
  if PLD_EPSILON_LIMIT < rdp < math.inf:
    raise errors.FieldError(
      "accountant",
      f"be rdp where its epsilon exceeds {PLD_EPSILON_LIMIT:g} (here {rdp:.4g})"
      ": pld would take minutes for a figure that protects nobody",
      "pld",
    )


def leading(epsilons: Mapping[str, float]) -> tuple[str, float]:
  """Returns the name and the epsilon of the tightest valid accountant.

  Each accountant gives a valid upper bound, so the smallest one holds.

  Args:
    epsilons: Epsilon by accountant, from at least one accountant.

  Returns:
    The name and the smallest epsilon; among equal ones, the first.
  """
  name = min(epsilons, key=epsilons.__getitem__)
  return name, epsilons[name]


def zcdp(account: composition.Account) -> float | None:
  """Returns rho of zero-concentrated DP; None where sampling amplifies.

  Bun and Steinke 2016, "Concentrated Differential Privacy". A sampled Gaussian
  has no useful rho: its divergence grows faster than linearly in the order.

  Privacy:
    As `composition.composed_events`; infinity if a round is not private.

  Args:
    account: The rounds.

  Returns:
    Rho of all rounds together, at least 0: half the Renyi divergence of order
    2. It depends on no delta.

  Raises:
    ValueError: As `composition.composed_events`.
  """
  if account.participation.is_sampled:
    return None
  # Gaussian mechanisms have a divergence of exactly rho a at order a.
  accountant = dp_accounting.rdp.RdpAccountant([2.0])
  for event, count in account.composed_events():
    accountant.compose(event, count)
  return float(accountant.rdp[0]) / 2.0
