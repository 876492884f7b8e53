"""Cost of putting each user in one of some rounds, in secret: a bracket.

Feldman and Shenfeld 2026, "Efficient Privacy Loss Accounting for Subsampling
and Random Allocation" (arXiv 2602.17284) show that one exists. This module
finds it in another way.

A release y is r(y) times as likely with the user as without, where r is the
mean of t independent log-normal numbers exp(y_i / z - 1 / (2 z^2)), one for
each round. The deltas of both directions, E (r - exp(epsilon))+ and E (1 -
exp(epsilon) r)+, are means of convex functions of r. A number that is split in
two of the same mean therefore makes both deltas larger, and numbers that are
replaced by their mean make both smaller (Jensen).

The law of r comes from those of the means of t / 2 numbers, and so on, on a
grid of logarithms. Splitting each number between its neighbours on the grid
gives the upper end of the bracket; merging all numbers of a cell gives the
lower end.
"""

import dataclasses
import functools
import math
from typing import Any

import dp_accounting
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
from scipy import special

from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.accounting import pld_accountant
from tff_fedemb.participation import random_allocation

# Steps of the grid in a standard deviation of a logarithm, or up to twice as
# many.
_STEPS = 20
# Probability that is cut off at each end of a law, with the user or without.
_TAIL = 1e-20
_REACH = -special.ndtri(_TAIL)
# The lower end is rounded once more, on a grid that is so much finer.
_FINER = 16
# With less noise, numbers leave the range of floats.
_SMALLEST_NOISE = 0.05

_Event = random_allocation.RandomAllocationDpEvent


@dataclasses.dataclass(frozen=True)
class _Law:
  """Law of a likelihood ratio, in cells of a grid of its logarithms.

  Attributes:
    step: Step of the grid.
    first: Number of the first cell; cell i begins at exp(step i).
    chances: `[n]` probabilities of the cells, of releases without the user.
    moments: `[n]` probabilities with the user: `chances` times the ratios.
  """

  step: float
  first: int
  chances: np.ndarray
  moments: np.ndarray

  def on_grid_of(self, step: float) -> "_Law":
    """Returns the same law on a finer grid.

    Args:
      step: Step of the grid, an n-th of this one.

    Returns:
      The law with n - 1 empty cells between two of its own.
    """
    times = round(self.step / step)
    size = (len(self.chances) - 1) * times + 1
    chances = np.zeros(size)
    moments = np.zeros(size)
    chances[::times] = self.chances
    moments[::times] = self.moments
    return _Law(step, self.first * times, chances, moments)

  def trimmed(self) -> "_Law":
    """Returns the same law without cells of next to no probability.

    Cells are cut where the tail has a probability of at most 1e-20: at the low
    end without the user, at the high end with the user.
    """
    from_below = np.cumsum(self.chances)
    from_above = np.cumsum(self.moments[::-1])
    start = int(np.searchsorted(from_below, _TAIL))
    left_out = int(np.searchsorted(from_above, _TAIL))
    end = max(len(self.chances) - left_out, 1 - self.first)
    chances = self.chances[start:end]
    moments = self.moments[start:end]
    return _Law(self.step, self.first + start, chances, moments)


def _at_points(step: float, first: int, chances: np.ndarray) -> _Law:
  """The law of ratios that are points of the grid.

  With the user a ratio r is r times as likely, which gives the moments.

  Args:
    step: Step of the grid of logarithms.
    first: Number of the first point, exp(step x first).
    chances: `[n]` probabilities of the points without the user.
  """
  points = np.exp(step * (first + np.arange(len(chances))))
  return _Law(step, first, chances, chances * points)


def _of_round(noise: float, step: float, is_upper: bool) -> _Law:
  """The law of the ratio of one round, exp(y / z - 1 / (2 z^2)).

  Args:
    noise: Noise multiplier z of the round, finite.
    step: Step of the grid of logarithms.
    is_upper: Whether cells are split between their ends, which makes all deltas
      larger, or kept as they are.
  """
  shift = 0.5 / noise**2
  first = math.floor((-_REACH / noise - shift) / step)
  edges = step * np.arange(first, -first + 1)
  chances = _normal_cells((edges + shift) * noise)
  moments = _normal_cells((edges - shift) * noise)
  if not is_upper:
    return _Law(step, first, chances, moments)
  # A cell is split between its ends, so that its mean stays what it is.
  ends = np.exp(edges)
  above_low = moments - ends[:-1] * chances
  to_high = np.clip(above_low / np.diff(ends), 0.0, chances)
  split = np.pad(chances - to_high, (0, 1))
  split += np.pad(to_high, (1, 0))
  return _at_points(step, first, split)


def _normal_cells(edges: np.ndarray) -> np.ndarray:
  """Probabilities `[n - 1]` of a standard normal between ascending edges `[n]`.

  Each is a difference of small tails, which keeps its digits far from 0.
  """
  by_lower_tail = np.diff(special.ndtr(edges))
  by_upper_tail = -np.diff(special.ndtr(-edges))
  return np.where(edges[1:] < 0, by_lower_tail, by_upper_tail)


def _mean(
  one: _Law,
  other: _Law,
  share: float,
  step: float,
  is_upper: bool,
) -> _Law:
  """The law of share x one + (1 - share) x other, which are independent.

  Args:
    one: Law of the first ratio.
    other: Law of the second ratio.
    share: Weight of the first, in (0, 1).
    step: Step of the result, which divides both steps.
    is_upper: Whether a mean is split between the ends of its cell, in
      proportion to its place there, or merged with the others of its cell.

  Returns:
    The law, trimmed.
  """
  one = one.on_grid_of(step)
  other = other.on_grid_of(step)
  a = one.chances
  b = other.chances
  of_a = share * one.moments
  of_b = (1.0 - share) * other.moments
  first = min(one.first, other.first)
  last = max(one.first + len(a), other.first + len(b))
  chances = np.zeros(last - first + 1)
  moments = np.zeros(last - first + 1)
  # The mean of cell i of one and cell i + j of the other, relative to the first
  # of them, is the same for all i.
  numbers = np.arange(1 - len(a), len(b))
  distances = step * (numbers + other.first - one.first)
  logs = np.logaddexp(math.log(share), math.log1p(-share) + distances)
  steps = np.floor(logs / step).astype(int)
  # How far up each mean is in its cell, as a share of the cell.
  ups = np.expm1(logs - step * steps) / math.expm1(step)
  ups = np.clip(ups, 0.0, 1.0)
  for j, more, up in zip(numbers.tolist(), steps.tolist(), ups, strict=True):
    start = max(0, -j)
    end = min(len(a), len(b) - j)
    here = slice(start, end)
    there = slice(start + j, end + j)
    place = one.first - first + more
    into = slice(place + start, place + end)
    both = a[here] * b[there]
    if is_upper:
      higher = up * both
      chances[into] += both - higher
      chances[into.start + 1 : into.stop + 1] += higher
    else:
      chances[into] += both
      moments[into] += of_a[here] * b[there] + a[here] * of_b[there]
  if is_upper:
    return _at_points(step, first, chances).trimmed()
  return _Law(step, first, chances, moments).trimmed()


def _law_of(event: _Event, is_upper: bool) -> _Law:
  """The law of the ratio of a pass: the mean of the ratios of its rounds.

  Rounds of equal noise are combined by halving their number; the groups of
  different noise are then combined with weights by their size.

  Args:
    event: The pass; infinite noise stands for a ratio of 1.
    is_upper: Which end of the bracket.
  """
  most = max(noise for noise, _ in event.slots if noise < math.inf)
  # Grids of powers of two have points in common.
  coarsest = 2.0 ** math.floor(-math.log2(most * _STEPS))

  def step_of(count: int) -> float:
    """The step for a mean of `count` numbers, a power of two.

    Means of four times as many numbers have half the deviation, and half the
    step.
    """
    return coarsest * 0.5 ** (count.bit_length() // 2)

  @functools.cache
  def of_equal(noise: float, count: int) -> _Law:
    """The law of the mean of `count` rounds of equal noise.

    Laws of n and n + 1 rounds suffice for those of 2 n to 2 n + 2 rounds, so
    few are computed.
    """
    if noise == math.inf:
      return _Law(coarsest, 0, np.ones(1), np.ones(1))
    if count == 1:
      return _of_round(noise, coarsest, is_upper)
    half = count // 2
    one = of_equal(noise, half)
    other = of_equal(noise, count - half)
    return _mean(one, other, half / count, step_of(count), is_upper)

  (noise, number), *others = event.slots
  law = of_equal(noise, number)
  for noise, count in others:
    number += count
    share = 1.0 - count / number
    added = of_equal(noise, count)
    law = _mean(law, added, share, step_of(event.count), is_upper)
  return law


# A report asks for the same run again, at other deltas.
@functools.lru_cache(maxsize=8)
def compose(
  events: tuple[tuple[_Event, int], ...],
  is_upper: bool = True,
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """Returns the privacy losses of all passes: an end of the bracket.

  The user of a pass is independent of the other passes, so the losses of passes
  are composed by convolution.

  Args:
    events: Passes, none with a noise multiplier below 0.05, and how many there
      are of each; at least one pair.
    is_upper: Whether to return the upper end, which is a valid bound, or the
      lower end.

  Returns:
    The losses in both directions, on a grid as fine as the finest of the
    passes; 16 times finer at the lower end.
  """
  laws = [_law_of(event, is_upper) for event, _ in events]
  step = min(law.step for law in laws)
  if not is_upper:
    step /= _FINER
  composed: Any = None
  for law, (event, count) in zip(laws, events, strict=True):
    one_pass = _losses_of_pass(law, event.count, step, is_upper)
    passes = one_pass.self_compose(count)
    composed = passes if composed is None else composed.compose(passes)
  return composed


def _losses_of_pass(
  law: _Law,
  num_rounds: int,
  step: float,
  is_upper: bool,
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """The privacy losses of a pass in both directions, from its law.

  Args:
    law: Law of the ratio of the pass.
    num_rounds: Rounds of the pass: each of their laws was cut as well, which
      the upper end adds as infinite losses.
    step: Step of the grid of losses.
    is_upper: Which end. Losses are rounded down; those of the upper end are on
      the grid already.
  """
  kept = (law.chances > 0.0) & (law.moments > 0.0)
  chances = law.chances[kept]
  moments = law.moments[kept]
  logs = np.log(moments / chances)
  # A law is cut at both ends, and so are those of its rounds.
  cut = 6.0 * num_rounds * _TAIL if is_upper else 0.0

  def create_pmf(
    losses: np.ndarray, probabilities: np.ndarray
  ) -> pld_pmf.PLDPmf:
    """Losses of one direction, with their probabilities, on the grid."""
    # At the upper end these are integers but for rounding errors.
    cells = np.floor(losses / step + 1e-6).astype(int)
    first = int(cells.min())
    found = np.bincount(cells - first, weights=probabilities)
    return pld_pmf.DensePLDPmf(step, first, found, cut, is_upper)

  return privacy_loss_distribution.PrivacyLossDistribution(
    create_pmf(logs, moments), create_pmf(-logs, chances)
  )


def bound_epsilon(
  events: tuple[tuple[_Event, int], ...],
  delta: float,
  *,
  is_upper: bool = True,
) -> float:
  """Returns the epsilon of an end of the bracket.

  Args:
    events: Pairs of a pass and the number of such passes, at any noise; at
      least one pair.
    delta: At which epsilon is wanted, in (0, 1).
    is_upper: Whether to return the upper end, which is a valid bound, or the
      lower end, below which no epsilon holds.

  Returns:
    Epsilon; at the upper end infinity if delta is too small to tell. Below a
    noise multiplier of 0.05 the bracket is from 0 to the cost if everybody knew
    a user's round.
  """
  noise = min(noise for event, _ in events for noise, _ in event.slots)
  if noise < _SMALLEST_NOISE:
    # This is the cost if everybody knew which round a user is in.
    count = sum(count for _, count in events)
    known = gaussian_accountant.epsilon_of(noise, delta, count=count)
    return known if is_upper else 0.0
  # Rounding may have added so much to delta, or taken it away.
  lost = pld_accountant.lost_delta(count for _, count in events)
  left = delta - lost if is_upper else min(delta + lost, 1.0)
  if left <= 0.0:
    return math.inf
  return compose(events, is_upper).get_epsilon_for_delta(left)


class RandomAllocationAccountant(gaussian_accountant.AnyRelationAccountant):
  """Accountant of `RandomAllocationDpEvent`s, and of nothing else.

  Privacy:
    Unit, neighbouring relation: those of the event.
    Sensitivity: 1.
    DpEvent: `RandomAllocationDpEvent`s; `NonPrivateDpEvent`.
  """

  _events: tuple[tuple[_Event, int], ...] = ()
  _is_private = True

  def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
    """Keeps passes, which are composed when delta or epsilon is asked for."""
    is_private = not isinstance(event, dp_accounting.NonPrivateDpEvent)
    if is_private and not isinstance(event, _Event):
      return self.CompositionErrorDetails(event, "Unsupported event.")
    if do_compose:
      self._is_private &= is_private
      self._events += ((event, count),)
    return None

  @property
  def lost_delta(self) -> float:
    """The most by which a delta may be too small, for all passes so far."""
    return pld_accountant.lost_delta(count for _, count in self._events)

  def get_delta(self, target_epsilon: Any) -> Any:
    """Returns the delta of the upper end of the bracket.

    It needs at least one pass, and noise in all of them.

    Args:
      target_epsilon: One number, or ascending numbers `[n]`.

    Returns:
      Delta in [0, 1], one for each epsilon; `lost_delta` is added to it.
    """
    found = compose(self._events).get_delta_for_epsilon(target_epsilon)
    return np.minimum(found + self.lost_delta, 1.0)

  def get_epsilon(self, target_delta: float) -> float:
    """Returns the upper end of the bracket.

    Args:
      target_delta: In (0, 1).

    Returns:
      Epsilon, at least 0; infinity without noise, or if delta is within
      rounding errors.
    """
    if not self._events:
      return 0.0
    if not self._is_private:
      return math.inf
    return bound_epsilon(self._events, target_delta)
