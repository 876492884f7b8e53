"""A bound on the cost of a run in which a user's rounds depend on each other.

A user's rounds are drawn in secret, one of many ways to take part, x. What they
change of C x + Z is at most m_x, a sum of columns of |C|: the run loses no more
than a mixture of N(m_x, z^2) loses against N(0, z^2). docs/privacy.md has the
proof, for what users send in answer to what was released before, and how sure
the estimate is. Choquette-Choo et al. 2024, "Near Exact Privacy Amplification
for Matrix Mechanisms" (arXiv 2410.06266), account for it so, but for how
releases are sampled, which each way to draw rounds has of its own.
"""

import abc
import bisect
from collections.abc import Iterable
import dataclasses
import functools
import math

import dp_accounting
import numpy as np
from scipy import optimize
from scipy import special

from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.mechanisms import toeplitz

# Share of delta that is the probability of a wrong estimate.
FAILURE_SHARE = 1e-3

# A search for the least noise chooses a run by its estimate, on samples that
# others had as well. So the estimates of all runs that may be chosen have to
# hold together: noise multipliers have five digits, in nine decades, and there
# are 64 ways to take part, numbers of bands and readings of the sensitivity.
NUM_CHOICES = 9 * 90_000 * 64
# Losses of adding a user are bounded well with fewer samples.
_FEWER = 16
REMOVALS = 0
ADDITIONS = 1
# A cell is tried on so many times fewer samples before it is given all of them.
_FEWER_AT_FIRST = 16
# Epsilons that are tried are those of cells, each with samples of its own that
# are drawn where its losses are; whatever delta is, they are the same.
_CELL = 1.25
_IN_CELL = np.geomspace(1.0, _CELL, 2**8, endpoint=False)
# Cells from that of epsilon without amplification downwards.
_NUM_CELLS = 48


@dataclasses.dataclass(frozen=True)
class Samples:
  """Samples of a likelihood ratio, drawn where privacy losses are large.

  Releases y with density Q, or P, that make up a delta are rare. They are drawn
  with a density R instead, and weigh w(y) = Q(y) / R(y), or P(y) / R(y); delta
  is the mean of w (1 - exp(epsilon - loss))+. The weight of a loss is at most
  exp(log_scale - slope x loss).

  Attributes:
    losses: `[n]` privacy losses, of those that matter.
    log_weights: `[n]` logarithms of their weights.
    count: How many there were with those that do not matter.
    slope: Non-negative.
    log_scale: See above.
  """

  losses: np.ndarray
  log_weights: np.ndarray
  count: int
  slope: float
  log_scale: float

  @classmethod
  def of(
    cls,
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
    count: int,
    slope: float,
    log_scale: float,
  ) -> "Samples":
    """Samples of losses and weights that come in parts."""
    losses = []
    log_weights = []
    for some_losses, some_log_weights in parts:
      losses.append(some_losses)
      log_weights.append(some_log_weights)
    return cls(
      np.concatenate(losses),
      np.concatenate(log_weights),
      count,
      slope,
      log_scale,
    )

  def bound_delta(
    self,
    epsilon: float,
    log_failure: float,
    *,
    growth: int = 1,
  ) -> float:
    """Returns a delta at which `epsilon` holds in this direction.

    Hoeffding 1963, "Probability Inequalities for Sums of Bounded Random
    Variables", theorem 1, inequality 2.1.

    Args:
      epsilon: At least the smallest of the losses.
      log_failure: Logarithm of the probability that it is too small.
      growth: Above 1, what it is likely to be with so many times the samples.
    """
    log_most = self.log_scale + log_largest(self.slope, epsilon)
    above = self.losses > epsilon
    values = np.exp(self.log_weights[above] - log_most)
    values *= -np.expm1(epsilon - self.losses[above])
    share = min(float(values.sum()) / self.count, 1.0)

    def excess(larger: float) -> float:
      entropy = special.rel_entr(share, larger)
      entropy += special.rel_entr(1.0 - share, 1.0 - larger)
      return growth * self.count * entropy + log_failure

    # At the largest number below 1 the entropy is large, unless share is.
    most = 1.0 - 2.0**-53
    if excess(most) > 0.0:
      most = optimize.brentq(excess, share, most, xtol=1e-300, rtol=1e-12)
    return math.exp(min(log_most + math.log(most) + 1e-9, 0.0))


def create_generator(count: int, stream: int) -> np.random.Generator:
  """Returns where the numbers of samples are from.

  Always the same, so that an account can be computed again, but not those by
  which it was decided where these are to be drawn.

  Args:
    count: Number of samples.
    stream: `REMOVALS` or `ADDITIONS`.
  """
  return np.random.Generator(np.random.SFC64((count, stream)))


def log_largest(slope: float, epsilon: float) -> float:
  """Logarithm of the largest exp(-slope t) (1 - exp(epsilon - t)).

  Args:
    slope: Non-negative.
    epsilon: Any.
  """
  at_peak = special.xlogy(slope, slope / (slope + 1.0)) - math.log1p(slope)
  return float(at_peak) - slope * epsilon


@dataclasses.dataclass(frozen=True)
class MixtureDpEvent(dp_accounting.DpEvent, abc.ABC):
  """A whole run whose users have rounds that nobody knows.

  Privacy:
    Unit: one user's updates in all rounds that they are in.
    Neighbouring relation: a user's slot stays empty, as the participation has
      it.
    Sensitivity: 1 in a round.
    DpEvent: a mixture of Gaussians against one Gaussian (see the module).

  Attributes:
    noise_multiplier: Standard deviation of a row of Z over the sensitivity.
    strategy: How noise is correlated; None if it is not.
    rounds: Number of rounds, at least 1.
  """

  noise_multiplier: float
  # It prints so many numbers that nobody would read them.
  strategy: toeplitz.ToeplitzStrategy | None = dataclasses.field(repr=False)
  rounds: int

  @functools.cached_property
  def first_column(self) -> np.ndarray:
    """The first column of |C|, without zeros at its end."""
    if self.strategy is None:
      return np.ones(1)
    return np.trim_zeros(np.abs(self.strategy.first_column(self.rounds)), "b")

  @property
  @abc.abstractmethod
  def is_secret(self) -> bool:
    """Whether there is more than one way to take part."""

  @property
  @abc.abstractmethod
  def largest_square(self) -> float:
    """Largest square of all |m_x|, in squares of the noise."""

  @property
  @abc.abstractmethod
  def num_samples(self) -> int:
    """How many samples an epsilon rests on."""

  @abc.abstractmethod
  def sample_removals(self, usual_loss: float, count: int) -> Samples:
    """Samples releases of a run, as if a user was removed.

    Args:
      usual_loss: Near the epsilon that is sought; positive.
      count: How many; and the seed of them.
    """

  @abc.abstractmethod
  def sample_additions(self, usual_loss: float, count: int) -> Samples:
    """The same as if a user was added; arguments as before."""


class MonteCarloAccountant(gaussian_accountant.AnyRelationAccountant):
  """Accountant of one `MixtureDpEvent`, and of nothing else.

  Privacy:
    Unit, neighbouring relation: those of the event.
    Sensitivity: 1.
    DpEvent: `MixtureDpEvent` once; `NonPrivateDpEvent`. With a probability
      of `FAILURE_SHARE` delta, over samples that know nothing of any data, an
      epsilon is too small, also of the best of `NUM_CHOICES` runs; what is left
      of delta is what it is estimated for.
  """

  _event: dp_accounting.DpEvent | None = None

  def _maybe_compose(self, event, count, do_compose):
    is_mixture = isinstance(event, MixtureDpEvent)
    is_first = count <= 1 and self._event is None
    if do_compose:
      self._event = event
    elif not (
      isinstance(event, dp_accounting.NonPrivateDpEvent)
      or (is_mixture and is_first)
    ):
      return self.CompositionErrorDetails(event, "Unsupported event.")
    return None

  def get_epsilon(self, target_delta: float) -> float:
    """Returns an epsilon that holds at `target_delta`."""
    if isinstance(self._event, MixtureDpEvent):
      return bound_epsilon(self._event, target_delta)
    return 0.0 if self._event is None else math.inf


# A report asks for the same run again.
@functools.lru_cache(maxsize=64)
def bound_epsilon(event: MixtureDpEvent, delta: float) -> float:
  """Returns an epsilon that holds at `delta`, as the accountant has it.

  Privacy:
    As `MonteCarloAccountant`.

  Args:
    event: The run.
    delta: In (0, 1).

  Returns:
    The smallest that the samples support; at most that of the rounds that cost
    most, known to everybody, which is exact.
  """
  noise = 1.0 / math.sqrt(event.largest_square)
  known = gaussian_accountant.epsilon_of(noise, delta)
  if not event.is_secret or not 0.0 < known < math.inf:
    return known
  # A smaller delta leaves fewer cells, and fewer that are worth their samples.
  # Epsilon therefore never falls as delta shrinks.
  last = math.floor(math.log(known, _CELL))
  for number in range(last + 1 - _NUM_CELLS, last + 1):
    found = _search_cell(event, delta, _CELL**number * _IN_CELL)
    if found is not None:
      return min(found, known)
  return known


@dataclasses.dataclass(frozen=True)
class _Support:
  """Samples of both directions, which are drawn once they are needed."""

  event: MixtureDpEvent
  usual_loss: float
  delta: float
  log_failure: float
  count: int
  growth: int = 1

  @functools.cached_property
  def additions(self) -> Samples:
    return self.event.sample_additions(self.usual_loss, self.count // _FEWER)

  @functools.cached_property
  def removals(self) -> Samples:
    return self.event.sample_removals(self.usual_loss, self.count)

  def holds_at(self, epsilon: float) -> bool:
    """Whether the samples of both directions support an epsilon."""
    # Removals are sampled last: often they are not needed.
    is_supported = self._supports(self.additions, epsilon)
    return is_supported and self._supports(self.removals, epsilon)

  def _supports(self, samples: Samples, epsilon: float) -> bool:
    found = samples.bound_delta(epsilon, self.log_failure, growth=self.growth)
    return found <= self.delta * (1.0 - FAILURE_SHARE)


def _search_cell(
  event: MixtureDpEvent,
  delta: float,
  epsilons: np.ndarray,
) -> float | None:
  """Returns the smallest of some epsilons that samples support, if any.

  Args:
    event: The run.
    delta: In (0, 1).
    epsilons: `[n]` ascending, close to each other.
  """
  usual = float(epsilons[len(epsilons) // 2])
  last = float(epsilons[-1])
  # Any of them may be wrong: Bonferroni.
  tried = 2 * _NUM_CELLS * len(epsilons) * NUM_CHOICES
  log_failure = math.log(delta) + math.log(FAILURE_SHARE / tried)

  every = _Support(event, usual, delta, log_failure, event.num_samples)
  fewer = dataclasses.replace(
    every, count=every.count // _FEWER_AT_FIRST, growth=_FEWER_AT_FIRST
  )
  if not fewer.holds_at(last) or not every.holds_at(last):
    return None
  first = bisect.bisect_left(epsilons, True, key=every.holds_at)
  return float(epsilons[first])
