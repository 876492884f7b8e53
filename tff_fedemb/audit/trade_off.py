"""The most that a claim allows any attacker: true by false positive rates.

A claim is more than one epsilon: at every epsilon it has a delta, and each pair
bounds the true positive rate of any test by its false positive rate (Kairouz,
Oh and Viswanath 2015, "The Composition Theorem for Differential Privacy"; Dong,
Roth and Su 2022, "Gaussian Differential Privacy"). The area under that curve
bounds the area of any attack.

An attack's area is measured from all scores at once, without a threshold to
choose. Its error is known whatever the distribution of the scores: Hoeffding
1963, "Probability Inequalities for Sums of Bounded Random Variables", section
5, with the Kullback-Leibler form of theorem 1.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import special

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import pld_accountant
from tff_fedemb.accounting import random_allocation as accounting
from tff_fedemb.audit import scores as scores_lib
from tff_fedemb.participation import random_allocation

ASSUMES = (
  f"{scores_lib.INDEPENDENT}; epsilon is that of the claim, with so much noise"
  " that an attack can just have this area under its curve"
)

# Epsilons that the curve is made of, dense where they are small: most of the
# area is there.
_EPSILONS = np.concatenate([np.linspace(0, 2, 80), np.linspace(2.1, 40, 160)])
_NUM_RATES = 1000
# PLD rounds losses up to multiples of this, so the curve stays an upper bound.
_DISCRETIZATION = 1e-3

# Readers are told what a claim allows at these rates.
FALSE_POSITIVE_RATES = (1e-2, 1e-3)

_Events = tuple[tuple[dp_accounting.DpEvent, int], ...]
_Allocation = random_allocation.RandomAllocationDpEvent


def _with_noise(
  event: dp_accounting.DpEvent,
  factor: float,
) -> dp_accounting.DpEvent | None:
  """The event with its noise multiplied; None for another kind of event.

  Args:
    event: Event of a round, or of a pass.
    factor: Factor on the noise multiplier, positive.
  """
  match event:
    case dp_accounting.GaussianDpEvent():
      return dp_accounting.GaussianDpEvent(event.noise_multiplier * factor)
    case dp_accounting.PoissonSampledDpEvent(
      event=dp_accounting.GaussianDpEvent()
    ):
      return dp_accounting.PoissonSampledDpEvent(
        event.sampling_probability, _with_noise(event.event, factor)
      )
    case _Allocation():
      return _Allocation(tuple((z * factor, n) for z, n in event.slots))
  return None


@dataclasses.dataclass(frozen=True)
class Curve:
  """True positive rates that a claim allows at false positive rates.

  Attributes:
    events: Events of the rounds and their numbers, as of
      `composition.composed_events`: Gaussian ones, Poisson-sampled, or passes
      of random allocation.
  """

  events: _Events

  @classmethod
  def of(cls, account: composition.Account) -> Curve | None:
    """Returns the curve of a claim; None if it is known at one epsilon alone.

    Args:
      account: The rounds.

    Returns:
      The curve, if all events are Gaussian, Poisson-sampled Gaussian, or passes
      of random allocation; None for fixed cohorts, balls in bins with
      correlated noise, and rounds without noise.

    Raises:
      ValueError: As `composition.composed_events`.
    """
    events = tuple(account.composed_events())
    if any(_with_noise(event, 1.0) is None for event, _ in events):
      return None
    return cls(events)

  @functools.cached_property
  def accountant(
    self,
  ) -> accounting.RandomAllocationAccountant | pld_accountant.PldAccountant:
    """An accountant of all rounds, by PLD on a grid of step 1e-3.

    If all events are passes of random allocation, it is the accountant of their
    bracket.
    """
    accountant: Any = pld_accountant.PldAccountant(
      value_discretization_interval=_DISCRETIZATION
    )
    if all(isinstance(event, _Allocation) for event, _ in self.events):
      accountant = accounting.RandomAllocationAccountant()
    for event, count in self.events:
      accountant.compose(event, count)
    return accountant

  @functools.cached_property
  def _deltas(self) -> np.ndarray:
    """Delta at each of `_EPSILONS`."""
    return self.accountant.get_delta(_EPSILONS)

  def true_positive_rates(
    self,
    false_positive_rates: npt.ArrayLike,
  ) -> np.ndarray:
    """Returns the largest true positive rates of any attack.

    Each epsilon and its delta bound the rate twice: TPR <= exp(epsilon) FPR +
    delta, and 1 - FPR <= exp(epsilon) (1 - TPR) + delta.

    Args:
      false_positive_rates: In [0, 1], `[n]`.

    Returns:
      Rates in [0, 1], `[n]`.
    """
    rates = np.asarray(false_positive_rates)[:, np.newaxis]
    by_members = np.exp(_EPSILONS) * rates + self._deltas
    by_others = 1.0 - np.exp(-_EPSILONS) * (1.0 - self._deltas - rates)
    found = np.minimum(by_members, by_others)
    return np.min(found, axis=1).clip(0.0, 1.0)

  @functools.cached_property
  def area(self) -> float:
    """The largest area under the curve of any attack, in [0.5, 1].

    It is a midpoint sum over 1,000 rates. The curve is concave, so the sum does
    not fall short of the area.
    """
    middles = (np.arange(_NUM_RATES) + 0.5) / _NUM_RATES
    return float(np.mean(self.true_positive_rates(middles)))

  def epsilon_of_area(self, area: float, delta: float) -> float:
    """Returns the least epsilon that allows an attack of this area.

    The claim gets so much more or less noise that it just allows the area.

    Args:
      area: Area under the curve of an attack, below 1.
      delta: At which epsilon is wanted, in [0, 1).

    Returns:
      Epsilon at that noise, rounded down where the search is not exact; 0 for
      an area of 1 / 2 or less. Users who are drawn bound the area at any noise:
      beyond that, the epsilon of the first noise tried with more than 40.
    """
    if area <= 0.5:
      return 0.0

    def epsilon(log_factor: float) -> float:
      """Epsilon of the claim at a noise."""
      accountant = with_noise(self, math.exp(log_factor)).accountant
      # Rounding may have added to delta, which must not make epsilon larger.
      reduced = min(delta + 2.0 * accountant.lost_delta, 1.0)
      return accountant.get_epsilon(reduced)

    def excess(log_factor: float) -> float:
      """How much more area than the attack's the claim allows at this noise."""
      return with_noise(self, math.exp(log_factor)).area - area

    # The logarithm of the factor is between these.
    low = high = 0.0
    while excess(high) > 0.0:
      low = high
      high = high + 0.5
    while excess(low) < 0.0:
      if (found := epsilon(low)) > _EPSILONS[-1]:
        return found
      low, high = low - 0.5, low
    log_factor = optimize.brentq(excess, low, high, xtol=1e-3)
    # Epsilon is a lower bound: take the noisier end of the tolerance.
    return epsilon(log_factor + 1e-3)


# Searches ask for the same factors again and again.
@functools.lru_cache(maxsize=64)
def with_noise(curve: Curve, factor: float) -> Curve:
  """Returns the curve of the same claim with more or less noise.

  Args:
    curve: Curve of a claim.
    factor: Factor on the noise multiplier of every event, positive.

  Returns:
    The curve; the same arguments get the same object, which keeps its deltas.
  """
  events = [
    (_with_noise(event, factor), count) for event, count in curve.events
  ]
  return Curve(tuple(events))


def allowed_rates(
  account: composition.Account,
  epsilon: float,
  false_positive_rates: npt.ArrayLike,
) -> np.ndarray:
  """Returns the largest true positive rates that a claim allows.

  Args:
    account: The rounds.
    epsilon: Their cost at the delta of the account; above 40 the curve is not
      used.
    false_positive_rates: In [0, 1], `[n]`.

  Returns:
    Rates in [0, 1], `[n]`: by the curve of the claim, or by its one epsilon
    where there is no curve.

  Raises:
    ValueError: As `Curve.of`.
  """
  curve = Curve.of(account) if epsilon <= _EPSILONS[-1] else None
  if curve is not None:
    return curve.true_positive_rates(false_positive_rates)
  rates = np.asarray(false_positive_rates)
  with np.errstate(over="ignore", invalid="ignore"):
    allowed = np.exp(epsilon) * rates + account.delta
  return np.minimum(np.nan_to_num(allowed, nan=account.delta), 1.0)


GAUSSIAN = Curve(((dp_accounting.GaussianDpEvent(1.0), 1),))


def bound(
  scores: scores_lib.Scores,
  *,
  significance: float,
  delta: float,
  curve: Curve = GAUSSIAN,
) -> scores_lib.Found:
  """Bounds epsilon from below by the area under the curve of an attack.

  Args:
    scores: Scores of canaries, independent of each other.
    significance: Probability that the bound is wrong, at most; in (0, 1).
    delta: At which epsilon is bounded, in [0, 1).
    curve: Curve of the claim. Without it, the bound holds only for a Gaussian
      mechanism as a whole.

  Returns:
    The bound, and the area that it was found with.
  """
  area = lower_area(scores, significance)
  return curve.epsilon_of_area(area, delta), {"area_lower": area}


def lower_area(scores: scores_lib.Scores, significance: float) -> float:
  """Bounds the area under the curve of an attack from below.

  Source: Hoeffding 1963, section 5: of the pairs of a member and another, as
  many count as independent as there are canaries of the rarer kind.

  Args:
    scores: Scores of canaries, independent of each other.
    significance: Probability that the bound is wrong, at most; in (0, 1).

  Returns:
    A lower confidence bound of the area, in [0, 1); 0 for a measured area of
    1 / 2 or less.
  """
  area = scores.area
  num_pairs = min(len(scores.in_scores), len(scores.out_scores))
  limit = -math.log(significance) / num_pairs
  if area <= 0.5:
    return 0.0
  if area == 1.0:
    return math.exp(-limit)

  def excess(true_area: float) -> float:
    entropy = special.rel_entr(area, true_area)
    return entropy + special.rel_entr(1.0 - area, 1.0 - true_area) - limit

  return float(optimize.brentq(excess, 1e-12, area))
