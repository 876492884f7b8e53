"""Cost of putting each user in one of b bins at random: samples of losses.

Chua et al. 2024, "Balls-and-Bins Sampling for DP-SGD" (arXiv 2412.16802);
Choquette-Choo et al. 2024, "Near Exact Privacy Amplification for Matrix
Mechanisms" (arXiv 2410.06266), who account for it in the same way but draw
their samples differently.

A user takes part in the rounds of their bin, j, j + b, j + 2 b, ... They change
the released C x + Z by at most m_j, the sum of these columns of |C|. The run
therefore loses no more than a mixture of the N(m_j, z^2) loses against N(0,
z^2). docs/privacy.md has the proof, which covers users who answer to earlier
releases. `monte_carlo` bounds epsilon by the samples that are drawn here.
"""

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import functools
import math

import dp_accounting
import numpy as np
from scipy import optimize
from scipy import signal
from scipy import special

from tff_fedemb.mechanisms import toeplitz
from tff_fedemb.participation import random_allocation

_BATCH = 2**14
# With more bins, only every second (or third, ...) counts as a hiding place.
_MAX_BINS = 48
# Streams of random numbers.
_REMOVALS = 0
_ADDITIONS = 1

# Inner products of bins, and the share of users that are in bins like these.
_Grams = Sequence[tuple[np.ndarray, float]]


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
    count: Number of samples drawn, including those that do not matter.
    slope: How fast the largest possible weight falls with the loss, at least 0.
    log_scale: Logarithm of the largest possible weight at a loss of 0.
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
    """Joins samples that come in parts, and keeps those that matter.

    At an epsilon of 0 or more, a sample whose loss is not positive adds nothing
    to delta, so it is only counted.

    Args:
      parts: Losses `[k]` and logarithms of weights `[k]`, at least one pair;
        only positive losses matter.
      count: See the class.
      slope: See the class.
      log_scale: See the class.

    Returns:
      The samples, with those of positive losses in the order of the parts.
    """
    losses = []
    log_weights = []
    for some_losses, some_log_weights in parts:
      is_positive = some_losses > 0.0
      losses.append(some_losses[is_positive])
      log_weights.append(some_log_weights[is_positive])
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
    Variables", theorem 1, inequality 2.1: the summands are in [0, 1] once they
    are divided by the largest that a weight allows.

    Args:
      epsilon: At least the smallest of the losses.
      log_failure: Logarithm of the probability that it is too small.
      growth: Factor on the number of samples: above 1, the result predicts the
        delta that so much larger samples would give.

    Returns:
      An upper bound of delta, in [0, 1]; wrong with at most that probability if
      `growth` is 1.
    """
    log_most = self.log_scale + _log_largest(self.slope, epsilon)
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


def _log_largest(slope: float, epsilon: float) -> float:
  """The logarithm of the largest exp(-slope t) (1 - exp(epsilon - t))."""
  at_peak = special.xlogy(slope, slope / (slope + 1.0)) - math.log1p(slope)
  return float(at_peak) - slope * epsilon


@dataclasses.dataclass(frozen=True)
class BallsInBinsDpEvent(dp_accounting.DpEvent):
  """A whole run in which each user is in one of some bins, in secret.

  Privacy:
    Unit: one user's updates in all rounds of their bin.
    Neighbouring relation: a user's slot stays empty, as the participation has
      it.
    Sensitivity: 1 in a round.
    DpEvent: a mixture of Gaussians against one Gaussian (see the module).

  Attributes:
    noise_multiplier: Standard deviation of a row of Z over the sensitivity.
    strategy: How noise is correlated; None if it is not.
    rounds: Number of rounds, at least 1.
    num_bins: Number of bins, at least 1; round t is of bin t mod `num_bins`.
  """

  noise_multiplier: float
  # Its repr would print thousands of numbers.
  strategy: toeplitz.ToeplitzStrategy | None = dataclasses.field(repr=False)
  rounds: int
  num_bins: int

  @functools.cached_property
  def first_column(self) -> np.ndarray:
    """The first column of |C|, float64 `[k]`, without zeros at its end.

    It is `[1.0]` for independent noise; k is at most the number of rounds.
    """
    if self.strategy is None:
      return np.ones(1)
    column = np.abs(self.strategy.first_column(self.rounds))
    return np.trim_zeros(column, "b")

  def gram(self, bins: np.ndarray) -> np.ndarray:
    """Returns inner products of what users of some bins change.

    Entry (i, j) is m_i . m_j / z^2, where m_j are the changes in all rounds by
    a user of the j-th of these bins. The losses of all bins depend on the noise
    through numbers with this covariance alone.

    Args:
      bins: Int `[n]`, ascending, each in [0, `num_bins`).

    Returns:
      Float64 `[n, n]`, in squares of the noise.
    """
    changes = np.zeros((len(bins), self.rounds))
    for row, first in zip(changes, bins, strict=True):
      starts = np.zeros(self.rounds)
      starts[first :: self.num_bins] = 1.0
      change = signal.oaconvolve(starts, self.first_column)
      row[:] = change[: self.rounds]
    return changes @ changes.T / self.noise_multiplier**2

  @functools.cached_property
  def largest_square(self) -> float:
    """Largest square of all |m_j|, in squares of the noise.

    If everybody knew the bin of a user, the run would cost as much as one
    Gaussian mechanism whose noise multiplier is 1 over its root.
    """
    # Bin 0 has the most rounds, and the longest parts of their columns.
    return float(self.gram(np.array([0]))[0, 0])

  @functools.cached_property
  def grams(self) -> _Grams:
    """Inner products of bins, and the share of users in bins like these.

    With more than 48 bins, only every second (or third, ...) counts as a
    possible hiding place. The bound stays valid, because it gives away more
    about a user.
    """
    # The bound assumes that everybody knows a user's bin up to a multiple of
    # this. The bins left to guess are so far apart; those from bin 0 on cost
    # most.
    stride = -(-self.num_bins // _MAX_BINS)
    most, larger = divmod(self.num_bins, stride)
    gram = self.gram(np.arange(0, self.num_bins, stride))
    # The share of users who have one bin more to hide among than the others.
    share = larger * (most + 1) / self.num_bins
    grams = []
    if share:
      grams.append((gram, share))
    if share < 1.0:
      grams.append((gram[:most, :most], 1.0 - share))
    return grams

  def sample_removals(
    self,
    usual_loss: float,
    count: int,
  ) -> Samples:
    """Samples releases with the user, who moves them by power times as much.

    R is a mixture of N(power m_j), with weights by which R / Q is at least a
    constant times the mean of exp(power u_j), where P / Q is that of exp(u_j):
    the mean of powers is at least the power of the mean.

    Args:
      usual_loss: Near the epsilon that is sought; positive.
      count: How many samples to draw; it also seeds them.

    Returns:
      Losses log(P / Q), weighed for the density P with the user.
    """
    largest_gram, _ = self.grams[0]
    power = max(usual_loss / largest_gram.max() + 0.5, 1.0)
    log_scales = []
    weights = []
    for gram, _ in self.grams:
      logs = 0.5 * (power**2 - power) * np.diag(gram)
      log_scale = special.logsumexp(logs) - math.log(len(logs))
      log_scales.append(log_scale)
      weights.append(special.softmax(logs))
    parts = []
    for number, noise, generator in _draw(self.grams, count, _REMOVALS):
      gram, _ = self.grams[number]
      bins = generator.choice(len(gram), len(noise), p=weights[number])
      logs = noise + power * gram[bins] - 0.5 * np.diag(gram)
      losses, log_densities = _log_means(logs, 1.0, power)
      parts.append((losses, losses - log_densities + log_scales[number]))
    return Samples.of(parts, count, power - 1.0, max(log_scales))

  def sample_additions(
    self,
    usual_loss: float,
    count: int,
  ) -> Samples:
    """Samples releases without the user, moved away from what users change.

    R is N(-power mean(m_j)); the mean of exp(u_j) is at least exp(mean(u_j)),
    so that a large loss bounds how far a release was moved.

    Args:
      usual_loss: Near the epsilon that is sought; positive.
      count: How many samples to draw; it also seeds them.

    Returns:
      Losses log(Q / P), weighed for the density Q without the user.
    """
    gram, _ = self.grams[0]
    square = np.diag(gram).mean()
    power = (usual_loss - 0.5 * square) / gram.mean()
    power = max(power, 0.0)
    log_scales = []
    for gram, _ in self.grams:
      square = np.diag(gram).mean()
      log_scale = 0.5 * power * square + 0.5 * power**2 * gram.mean()
      log_scales.append(log_scale)
    parts = []
    for number, noise, _ in _draw(self.grams, count, _ADDITIONS):
      gram, _ = self.grams[number]
      logs = noise - power * gram.mean(axis=1) - 0.5 * np.diag(gram)
      (gains,) = _log_means(logs, 1.0)
      log_weights = power * logs.mean(axis=1) + log_scales[number]
      parts.append((-gains, log_weights))
    return Samples.of(parts, count, power, max(log_scales))


def create_event(
  noise_multiplier: float,
  strategy: toeplitz.ToeplitzStrategy | None,
  num_bins: int,
  rounds: int,
) -> BallsInBinsDpEvent | random_allocation.RandomAllocationDpEvent:
  """Returns the event of a whole run.

  Privacy:
    As `BallsInBinsDpEvent`. With independent noise, all rounds of a bin are one
    Gaussian mechanism, and a user in one of them is in no other.

  Args:
    noise_multiplier: Standard deviation of the noise over the sensitivity of a
      round, positive.
    strategy: How noise is correlated; None for independent noise.
    num_bins: Number of bins, at least 1.
    rounds: Number of rounds, at least 1.

  Returns:
    `BallsInBinsDpEvent` for correlated noise. `RandomAllocationDpEvent` for
    independent noise: a bin of n rounds is one mechanism of noise multiplier
    `noise_multiplier / sqrt(n)`, infinite if the run ends before its first
    round.
  """
  if strategy is not None:
    return BallsInBinsDpEvent(noise_multiplier, strategy, rounds, num_bins)
  fewest, more = divmod(rounds, num_bins)
  slots = []
  for count, bins in ((fewest + 1, more), (fewest, num_bins - more)):
    if bins:
      noise = noise_multiplier / math.sqrt(count) if count else math.inf
      slots.append((noise, bins))
  return random_allocation.RandomAllocationDpEvent(tuple(slots))


def _draw(
  grams: _Grams,
  count: int,
  stream: int,
) -> Iterator[tuple[int, np.ndarray, np.random.Generator]]:
  """Yields the number of a matrix and numbers `[n, b]` with its covariance.

  The same count always gives the same numbers, so that an account can be
  repeated. Smaller samples, which decide where to draw these, have another
  count and therefore other numbers.

  Args:
    grams: Covariances `[b, b]`, and the share of the samples for each.
    count: Number of samples in all; it also seeds the generator.
    stream: Stream of random numbers; each direction has its own.

  Yields:
    The index of a matrix in `grams`, numbers for n of its samples, and the
    generator, for further draws.
  """
  generator = np.random.Generator(np.random.SFC64((count, stream)))
  shares = [share for _, share in grams]
  for number, left in enumerate(generator.multinomial(count, shares)):
    # Bins may be so much alike that there is no Cholesky factor.
    values, vectors = np.linalg.eigh(grams[number][0])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    for first in range(0, left, _BATCH):
      size = (min(_BATCH, left - first), len(root))
      yield number, generator.standard_normal(size) @ root.T, generator


def _log_means(logs: np.ndarray, *powers: float) -> list[np.ndarray]:
  """Logarithms of the means of exp(power x logs) over each row, for each power.

  Args:
    logs: `[n, b]`, a row for each sample.
    *powers: Powers, each above 0.

  Returns:
    An array `[n]` for each power.
  """
  largest = logs.max(axis=1)
  logs = logs - largest[:, np.newaxis]
  found = []
  for power in powers:
    means = np.exp(power * logs).mean(axis=1)
    found.append(np.log(means) + power * largest)
  return found
