"""What users cost who are in one of some rounds, drawn in secret: a bracket.

Feldman and Shenfeld 2026, "Efficient Privacy Loss Accounting for Subsampling
and Random Allocation" (arXiv 2602.17284) show that one exists; it is found here
in another way. A release y with density Q is r(y) times as likely with the user
as without, where r is the mean of t independent log-normal numbers exp(y_i / z
- 1 / (2 z^2)), one for each round. The deltas of both directions, E (r -
exp(epsilon))+ and E (1 - exp(epsilon) r)+, are means of convex functions of r.
So a number that is split in two of the same mean makes both larger, and numbers
that are replaced by their mean make both smaller (Jensen). The law of r comes
from those of the means of t / 2 numbers, and so on, on a grid of logarithms:
where numbers are split between their neighbours there, the upper end of the
bracket; where all of a cell are merged, the lower one.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
from scipy import special

from tff_fedemb.participation import random_allocation
from tff_fedemb.privacy import gaussian_accountant

# Steps of the grid in a standard deviation of a logarithm.
_STEPS = 24
# Probability that is cut off at each end, and counted as if it told everything.
_TAIL = 1e-20
_REACH = -special.ndtri(_TAIL)
# The lower end is rounded once more, on a grid that is so much finer.
_FINER = 16
# With less noise numbers leave the range of floats; whatever is secret then,
# nobody is protected.
_SMALLEST_NOISE = 0.05

_Event = random_allocation.RandomAllocationDpEvent
_Events = tuple[tuple[_Event, int], ...]


@dataclasses.dataclass(frozen=True)
class _Law:
  """Law of a likelihood ratio, in cells of a grid of its logarithms.

  Attributes:
    step: Of the grid.
    first: Number of the first cell; cell i begins at exp(step i).
    chances: `[n]` probabilities of cells, of releases without the user.
    means: `[n]` mean ratios in cells; None if all are where a cell begins.
    low: Bounds the probability of what was cut off below.
    high: The same above, of releases with the user.
  """

  step: float
  first: int
  chances: np.ndarray
  means: np.ndarray | None
  low: float = 0.0
  high: float = 0.0

  @property
  def places(self) -> np.ndarray:
    """`[n]` numbers of the cells."""
    return self.first + np.arange(len(self.chances))

  @property
  def log_ratios(self) -> np.ndarray:
    """`[n]` logarithms of the ratios in cells."""
    if self.means is None:
      return self.step * self.places
    with np.errstate(divide="ignore"):
      return np.log(self.means)

  @property
  def moments(self) -> np.ndarray:
    """`[n]` probabilities of cells, of releases with the user."""
    return self.chances * np.exp(self.log_ratios)

  def on_grid_of(self, step: float) -> "_Law":
    """The same on a grid of an n-th of the step."""
    times = round(self.step / step)
    size = (len(self.chances) - 1) * times + 1
    spread = [None, None]
    for number, cells in enumerate((self.chances, self.means)):
      if cells is not None:
        spread[number] = np.zeros(size)
        spread[number][::times] = cells
    return _Law(step, self.first * times, *spread, self.low, self.high)

  def trimmed(self) -> "_Law":
    """The same without what is next to impossible at the ends."""
    chances, moments = self.chances.copy(), self.moments
    start = int(np.searchsorted(np.cumsum(chances), _TAIL))
    end = len(chances) - int(np.searchsorted(np.cumsum(moments[::-1]), _TAIL))
    # Above 1 a ratio is likelier with the user.
    end = max(end, start + 1, 1 - self.first)
    low, high = chances[:start].sum(), moments[end:].sum()
    for cells in (chances, moments):
      cells[start] += cells[:start].sum()
      cells[end - 1] += cells[end:].sum()
    chances, moments = chances[start:end], moments[start:end]
    means = None if self.means is None else _ratio(moments, chances)
    return _Law(
      *(self.step, self.first + start, chances, means),
      *(self.low + low, self.high + high),
    )


def _ratio(moments: np.ndarray, chances: np.ndarray) -> np.ndarray:
  return np.divide(
    moments, chances, out=np.zeros_like(moments), where=chances > 0
  )


def _of_slot(noise: float, step: float, is_upper: bool) -> _Law:
  """The law of the ratio of one round."""
  if noise == math.inf:
    return _Law(step, 0, np.ones(1), None if is_upper else np.ones(1))
  shift = 0.5 / noise**2
  first = math.floor((-_REACH / noise - shift) / step)
  last = math.ceil((_REACH / noise + shift) / step)
  edges = step * np.arange(first, last + 1)

  def cells(mean: float) -> tuple[float, np.ndarray, float]:
    scaled = (edges - mean) * noise
    below, above = special.ndtr(scaled), special.ndtr(-scaled)
    # Neither difference is of numbers near 1.
    inside = np.where(scaled[1:] < 0, np.diff(below), -np.diff(above))
    return below[0], inside, above[-1]

  low, chances, above = cells(-shift)
  below, moments, high = cells(shift)
  ends = np.exp(edges)
  if is_upper:
    up = (moments - ends[:-1] * chances) / np.diff(ends)
    up = np.clip(up, 0.0, chances)
    split = np.pad(chances - up, (0, 1)) + np.pad(up, (1, 0))
    split[0] += low
    split[-1] += above
    return _Law(step, first, split, None, low, high)
  chances[0] += low
  chances[-1] += above
  moments[0] += below
  moments[-1] += high
  return _Law(step, first, chances, _ratio(moments, chances))


def _mean(one: _Law, other: _Law, share: float, step: float) -> _Law:
  """The law of share x one + (1 - share) x other, which are independent."""
  one, other = one.on_grid_of(step), other.on_grid_of(step)
  a, b, is_upper = one.chances, other.chances, one.means is None
  first = min(one.first, other.first)
  chances = np.zeros(max(one.places[-1], other.places[-1]) - first + 2)
  moments = np.zeros_like(chances)
  of_a, of_b = share * one.moments, (1.0 - share) * other.moments
  # Cells i of one and i + j of the other: relative to the first of them their
  # mean is the same for all i.
  numbers = np.arange(1 - len(a), len(b))
  logs = np.logaddexp(
    math.log(share),
    math.log1p(-share) + step * (numbers + other.first - one.first),
  )
  steps = np.floor(logs / step).astype(int)
  ups = np.clip(np.expm1(logs - step * steps) / math.expm1(step), 0.0, 1.0)
  for j, more, up in zip(numbers.tolist(), steps.tolist(), ups, strict=True):
    start, end = max(0, -j), min(len(a), len(b) - j)
    here, there = slice(start, end), slice(start + j, end + j)
    into = one.first - first + more
    into = slice(into + start, into + end)
    both = a[here] * b[there]
    if is_upper:
      higher = up * both
      chances[into] += both - higher
      chances[into.start + 1 : into.stop + 1] += higher
    else:
      chances[into] += both
      moments[into] += of_a[here] * b[there] + a[here] * of_b[there]
  means = None if is_upper else _ratio(moments, chances)
  low, high = one.low + other.low, one.high + other.high
  return _Law(step, first, chances, means, low, high).trimmed()


def _step_of(
  slots: Sequence[tuple[float, int]], coarsest: float = math.inf
) -> float:
  """Step for the mean ratio of slots: the coarsest, its half, quarter ..."""
  variance = sum(np.expm1(noise**-2) * count for noise, count in slots)
  variance /= sum(count for _, count in slots) ** 2
  step = math.sqrt(math.log1p(variance)) / _STEPS
  if coarsest == math.inf:
    return step
  return coarsest * 0.5 ** max(math.ceil(math.log2(coarsest / step)), 0)


def _law_of(
  slots: Sequence[tuple[float, int]], coarsest: float, is_upper: bool
) -> _Law:
  """The law of the ratio of a pass."""

  @functools.cache
  def of_equal(noise: float, count: int) -> _Law:
    if count == 1 or noise == math.inf:
      return _of_slot(noise, coarsest, is_upper)
    # Halves of n and n + 1 rounds make all that is needed of 2 n to 2 n + 2.
    half = count // 2
    halves = of_equal(noise, half), of_equal(noise, count - half)
    step = _step_of([(noise, count)], coarsest)
    return _mean(*halves, half / count, step)

  law, number = None, 0
  for noise, count in slots:
    number += count
    added = of_equal(noise, count)
    if law is not None:
      step = min(law.step, added.step, _step_of(slots, coarsest))
      added = _mean(law, added, 1.0 - count / number, step)
    law = added
  return law


# A report asks for the same run again, at other deltas.
@functools.lru_cache(maxsize=8)
def _compose(
  events: _Events, is_upper: bool
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """The privacy losses of all passes: an end of the bracket."""
  noises = {noise for event, _ in events for noise, _ in event.slots}
  coarsest = _step_of([(max(noises - {math.inf}), 1)])
  laws = [_law_of(event.slots, coarsest, is_upper) for event, _ in events]
  step = min(law.step for law in laws) / (1 if is_upper else _FINER)

  def create_pmf(
    logs: np.ndarray, chances: np.ndarray, infinity: float
  ) -> pld_pmf.PLDPmf:
    kept = chances > 0.0
    # Of the upper end these are integers but for rounding errors.
    losses = np.floor(logs[kept] / step + 1e-6).astype(int)
    probs = np.bincount(losses - losses.min(), weights=chances[kept])
    return pld_pmf.DensePLDPmf(
      step, int(losses.min()), probs, infinity, is_upper
    )

  passes = [
    privacy_loss_distribution.PrivacyLossDistribution(
      create_pmf(law.log_ratios, law.moments, law.high),
      create_pmf(-law.log_ratios, law.chances, law.low),
    ).self_compose(count)
    for law, (_, count) in zip(laws, events, strict=True)
  ]
  return functools.reduce(lambda one, other: one.compose(other), passes)


class RandomAllocationAccountant(dp_accounting.PrivacyAccountant):
  """Accountant of `RandomAllocationDpEvent`s, and of nothing else.

  Privacy:
    Unit, neighbouring relation: those of the event.
    Sensitivity: 1.
    DpEvent: `RandomAllocationDpEvent`s; `NonPrivateDpEvent`.
  """

  def __init__(
    self,
    neighboring_relation: dp_accounting.NeighboringRelation = (
      dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    ),
  ):
    """Creates an empty accountant."""
    super().__init__(neighboring_relation)
    self._events: _Events = ()
    self._is_private = True

  def _maybe_compose(self, event, count, do_compose):
    is_private = not isinstance(event, dp_accounting.NonPrivateDpEvent)
    if is_private and not isinstance(event, _Event):
      return self.CompositionErrorDetails(event, "Unsupported event.")
    if do_compose and is_private:
      self._events += ((event, count),)
    elif do_compose:
      self._is_private = False
    return None

  def get_epsilon(self, target_delta: float) -> float:
    """Returns the upper end of the bracket."""
    if not self._is_private:
      return math.inf
    if not self._events:
      return 0.0
    noises = [min(event.slots)[0] for event, _ in self._events]
    if min(noises) < _SMALLEST_NOISE:
      # As if all knew which round a user is in.
      known = gaussian_accountant.GaussianAccountant()
      for noise, (_, count) in zip(noises, self._events, strict=True):
        known.compose(dp_accounting.GaussianDpEvent(noise), count)
      return known.get_epsilon(target_delta)
    composed = _compose(self._events, is_upper=True)
    return composed.get_epsilon_for_delta(target_delta)


def lower_epsilon(events: Sequence[tuple[Any, int]], delta: float) -> float:
  """Returns the lower end of the bracket; 0 where it is not known.

  Args:
    events: `RandomAllocationDpEvent`s and their numbers.
    delta: In (0, 1).
  """
  if any(
    not isinstance(event, _Event) or min(event.slots)[0] < _SMALLEST_NOISE
    for event, _ in events
  ):
    return 0.0
  return _compose(tuple(events), is_upper=False).get_epsilon_for_delta(delta)
