"""A bound on the cost of a run in which a user's rounds depend on each other.

`balls_in_bins` draws samples of the run's privacy losses. Here they bound
epsilon, with a probability of being wrong that is a part of delta.
docs/privacy.md says how sure the bound is.
"""

import bisect
import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np

from tff_fedemb.accounting import balls_in_bins
from tff_fedemb.accounting import gaussian_accountant

# Share of delta that is the probability of a wrong estimate.
FAILURE_SHARE = 1e-3

# How many runs a search for the least noise may choose among. It chooses by
# estimates that rest on the same samples, so all estimates have to hold
# together. Noise multipliers have five digits, in nine decades; ways to take
# part, numbers of bands and readings of the sensitivity make 64.
NUM_CHOICES = 9 * 90_000 * 64
_NUM_SAMPLES = 2**20
# Losses of adding a user are bounded well with fewer samples.
_FEWER = 16
# A cell is tried on this many times fewer samples first.
_FEWER_AT_FIRST = 16
# The search tries epsilons cell by cell. Each cell has samples of its own,
# drawn where its losses are, and the same for any delta.
_CELL = 1.25
_IN_CELL = np.geomspace(1.0, _CELL, 2**8, endpoint=False)
# Number of cells, downwards from that of epsilon without amplification.
_NUM_CELLS = 48

_Event = balls_in_bins.BallsInBinsDpEvent


class MonteCarloAccountant(gaussian_accountant.AnyRelationAccountant):
  """Accountant of one `BallsInBinsDpEvent`, and of nothing else.

  Privacy:
    Unit, neighbouring relation: those of the event.
    Sensitivity: 1.
    DpEvent: `BallsInBinsDpEvent` once; `NonPrivateDpEvent`.

  An epsilon is too small with a probability of at most `FAILURE_SHARE` delta,
  over samples that depend on no data, even if it is that of the best of
  `NUM_CHOICES` runs. This part of delta is spent: epsilon is estimated for the
  rest.
  """

  _event: dp_accounting.DpEvent | None = None

  def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
    """Keeps a single event of a whole run, or refuses a second one."""
    is_first = count <= 1 and self._event is None
    is_supported = isinstance(event, _Event) and is_first
    is_supported |= isinstance(event, dp_accounting.NonPrivateDpEvent)
    if not is_supported:
      return self.CompositionErrorDetails(event, "Unsupported event.")
    if do_compose:
      self._event = event
    return None

  def get_epsilon(self, target_delta: float) -> float:
    """Returns an epsilon that holds at `target_delta`.

    Args:
      target_delta: In (0, 1).

    Returns:
      As `bound_epsilon`; 0 before an event was composed, and infinity if it is
      not private.
    """
    if isinstance(self._event, _Event):
      return bound_epsilon(self._event, target_delta)
    return 0.0 if self._event is None else math.inf


# A report asks for the same run again.
@functools.lru_cache(maxsize=64)
def bound_epsilon(event: _Event, delta: float) -> float:
  """Returns an epsilon that holds at `delta`, as the accountant has it.

  It takes seconds: the search goes up through cells of epsilons, each of which
  has samples of its own, and ends in the first one that the samples support.

  Privacy:
    As `MonteCarloAccountant`.

  Args:
    event: The run.
    delta: In (0, 1).

  Returns:
    The smallest epsilon that the samples support, but at most the exact one if
    everybody knew that a user is in the bin that costs most.
  """
  noise = 1.0 / math.sqrt(event.largest_square)
  known = gaussian_accountant.epsilon_of(noise, delta)
  if event.num_bins == 1 or not 0.0 < known < math.inf:
    return known
  # A smaller delta leaves fewer cells that samples support, so epsilon never
  # falls as delta shrinks.
  last = math.floor(math.log(known, _CELL))
  for number in range(last + 1 - _NUM_CELLS, last + 1):
    found = _search_cell(event, delta, _CELL**number * _IN_CELL)
    if found is not None:
      return min(found, known)
  return known


@dataclasses.dataclass(frozen=True)
class _Support:
  """Samples of both directions, which are drawn once they are needed.

  Attributes:
    event: The run.
    usual_loss: An epsilon in the middle of the cell, near which samples are
      dense.
    delta: At which epsilons have to hold.
    log_failure: Logarithm of the probability that one bound of delta is wrong.
    count: Number of samples of removals; additions have a sixteenth.
    growth: As in `balls_in_bins.Samples.bound_delta`.
  """

  event: _Event
  usual_loss: float
  delta: float
  log_failure: float
  count: int
  growth: int = 1

  @functools.cached_property
  def additions(self) -> balls_in_bins.Samples:
    """Samples without the user, who is added in the neighbour."""
    return self.event.sample_additions(self.usual_loss, self.count // _FEWER)

  @functools.cached_property
  def removals(self) -> balls_in_bins.Samples:
    """Samples with the user, who is removed in the neighbour."""
    return self.event.sample_removals(self.usual_loss, self.count)

  def holds_at(self, epsilon: float) -> bool:
    """Returns whether the samples of both directions support an epsilon.

    Args:
      epsilon: Near `usual_loss`.

    Returns:
      True if the bounds of both deltas are at most delta, less its share for a
      wrong estimate.
    """
    # Removals are sampled last: often they are not needed.
    is_supported = self._supports(self.additions, epsilon)
    return is_supported and self._supports(self.removals, epsilon)

  def _supports(self, samples: balls_in_bins.Samples, epsilon: float) -> bool:
    """Whether the samples of one direction support an epsilon."""
    found = samples.bound_delta(epsilon, self.log_failure, growth=self.growth)
    return found <= self.delta * (1.0 - FAILURE_SHARE)


def _search_cell(
  event: _Event,
  delta: float,
  epsilons: np.ndarray,
) -> float | None:
  """Finds the smallest of some close epsilons that samples support.

  A sixteenth of the samples is tried first: where it predicts that all of them
  would not support even the largest epsilon, they are not drawn.

  Args:
    event: The run.
    delta: In (0, 1).
    epsilons: Float64 `[n]`, ascending, within a factor of 1.25.

  Returns:
    The smallest of them that holds; None if the largest does not.
  """
  usual = float(epsilons[len(epsilons) // 2])
  last = float(epsilons[-1])
  # Any of them may be wrong: Bonferroni.
  tried = 2 * _NUM_CELLS * len(epsilons) * NUM_CHOICES
  log_failure = math.log(delta) + math.log(FAILURE_SHARE / tried)

  every = _Support(event, usual, delta, log_failure, _NUM_SAMPLES)
  fewer = dataclasses.replace(
    every, count=every.count // _FEWER_AT_FIRST, growth=_FEWER_AT_FIRST
  )
  if not fewer.holds_at(last) or not every.holds_at(last):
    return None
  first = bisect.bisect_left(epsilons, True, key=every.holds_at)
  return float(epsilons[first])
