"""The exact privacy of Gaussian mechanisms, with nothing lost to bounds.

Balle and Wang 2018, "Improving the Gaussian Mechanism for Differential
Privacy", theorem 8; the composition of Gaussian mechanisms is one Gaussian
mechanism (Dong et al. 2022, "Gaussian Differential Privacy", corollary 3.3),
whose 1 / noise_multiplier^2 is the sum of theirs.
"""

import functools
import math
from typing import Any

import dp_accounting
from scipy import optimize

_TOLERANCE = 1e-12

_GaussianLoss = dp_accounting.pld.privacy_loss_mechanism.GaussianPrivacyLoss


# The search for an epsilon asks for many deltas of the same loss.
@functools.lru_cache(maxsize=1)
def _loss(precision: float) -> Any:
  """The privacy loss at a sum of 1 / noise_multiplier^2."""
  return _GaussianLoss(1.0 / math.sqrt(precision))


class AnyRelationAccountant(dp_accounting.PrivacyAccountant):
  """An accountant of events that have a neighbouring relation of their own.

  Its subclasses ignore the relation that they are given: their events already
  compare the right two populations.
  """

  def __init__(
    self,
    neighboring_relation: dp_accounting.NeighboringRelation = (
      dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    ),
  ):
    """Creates an empty accountant.

    Args:
      neighboring_relation: Any relation; the accountant only stores it.
    """
    super().__init__(neighboring_relation)


class GaussianAccountant(AnyRelationAccountant):
  """Accountant of compositions of Gaussian mechanisms, and of nothing else.

  Privacy:
    Unit, neighbouring relation: those of the events, whatever they are: a
      Gaussian mechanism loses the same in both directions.
    Sensitivity: 1.
    DpEvent: `GaussianDpEvent`; `NonPrivateDpEvent`.
  """

  # Sum of 1 / noise_multiplier^2.
  _precision = 0.0

  def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
    """Adds 1 / noise_multiplier^2 of each mechanism, or refuses the event."""
    match event:
      case dp_accounting.NonPrivateDpEvent():
        precision = math.inf
      case dp_accounting.GaussianDpEvent():
        noise = event.noise_multiplier
        precision = count / noise**2 if noise else math.inf
      case _:
        return self.CompositionErrorDetails(event, "Unsupported event.")
    self._precision += precision if do_compose else 0.0
    return None

  def get_delta(self, target_epsilon: float) -> float:
    """Returns the smallest delta at which `target_epsilon` holds.

    Args:
      target_epsilon: At least 0.

    Returns:
      Delta in [0, 1]: 0 before any mechanism was composed, 1 if one had no
      noise.
    """
    if self._precision in (0.0, math.inf):
      return 0.0 if self._precision == 0.0 else 1.0
    return float(_loss(self._precision).get_delta_for_epsilon(target_epsilon))

  def get_epsilon(self, target_delta: float) -> float:
    """Returns the smallest epsilon that holds at `target_delta`.

    Args:
      target_delta: In (0, 1).

    Returns:
      Epsilon to 12 digits, never below the exact one; 0 if delta covers all
      that a user changes, infinity without noise.
    """
    if self._precision == math.inf:
      return math.inf
    if self.get_delta(0.0) <= target_delta:
      return 0.0
    high = 1.0
    while self.get_delta(high) > target_delta:
      high *= 2.0
    root = optimize.brentq(
      lambda epsilon: self.get_delta(epsilon) - target_delta,
      0.0,
      high,
      # Relative alone: epsilon itself may be tiny.
      xtol=1e-300,
      rtol=_TOLERANCE,
    )
    # Round to the side where the guarantee holds.
    step = _TOLERANCE
    while self.get_delta(root) > target_delta:
      root *= 1.0 + step
      step *= 2.0
    return root


def epsilon_of(
  noise_multiplier: float,
  delta: float,
  *,
  count: int = 1,
) -> float:
  """Returns the epsilon of several Gaussian mechanisms that are alike.

  Privacy:
    Unit, neighbouring relation, sensitivity: as `GaussianAccountant`.
    DpEvent: `count` times `GaussianDpEvent(noise_multiplier)`.

  Args:
    noise_multiplier: Noise multiplier of each mechanism, positive.
    delta: At which epsilon is wanted, in (0, 1).
    count: Number of mechanisms, at least 1.

  Returns:
    Epsilon, as `GaussianAccountant.get_epsilon` returns it.
  """
  event = dp_accounting.GaussianDpEvent(noise_multiplier)
  return GaussianAccountant().compose(event, count).get_epsilon(delta)
