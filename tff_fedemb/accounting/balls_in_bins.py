"""Cost of putting each user in one of b bins at random: Monte-Carlo bounds.

Chua et al. 2024, "Balls-and-Bins Sampling for DP-SGD" (arXiv 2412.16802);
Choquette-Choo et al. 2024, "Near Exact Privacy Amplification for Matrix
Mechanisms" (arXiv 2410.06266), whose accounting this is but for how it samples.

A user takes part in the rounds of their bin, j, j + b, j + 2 b, ... What they
change is at most m_j, the sum of these columns (`monte_carlo`).
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import signal
from scipy import special

from tff_fedemb.accounting import monte_carlo
from tff_fedemb.mechanisms import toeplitz
from tff_fedemb.participation import random_allocation

_BATCH = 2**14
# Bins that are told apart; of more, every second or third ... one.
_MAX_BINS = 48

# Inner products of bins, and the share of users that are in bins like these.
_Grams = Sequence[tuple[np.ndarray, float]]


@dataclasses.dataclass(frozen=True)
class BallsInBinsDpEvent(monte_carlo.MixtureDpEvent):
  """A whole run in which each user is in one of some bins, in secret.

  Privacy:
    Unit: one user's updates in all rounds of their bin.
    Neighbouring relation: a user's slot stays empty, as the participation has
      it.
    Sensitivity: 1 in a round.
    DpEvent: a mixture of Gaussians against one Gaussian (`monte_carlo`).

  Attributes:
    num_bins: Their number, at least 1; round t is of bin t mod `num_bins`.
  """

  num_bins: int

  def gram(self, bins: np.ndarray) -> np.ndarray:
    """Returns inner products of what a user of some bins changes.

    Args:
      bins: Int `[n]`, ascending.

    Returns:
      Float64 `[n, n]`, in squares of the noise.
    """
    changes = np.zeros((len(bins), self.rounds))
    for row, first in zip(changes, bins, strict=True):
      starts = np.zeros(self.rounds)
      starts[first :: self.num_bins] = 1.0
      row[:] = signal.oaconvolve(starts, self.first_column)[: self.rounds]
    return changes @ changes.T / self.noise_multiplier**2

  @property
  def is_secret(self) -> bool:
    return self.num_bins > 1

  @functools.cached_property
  def largest_square(self) -> float:
    # Bin 0 has the most rounds, and of columns the longest.
    return float(self.gram(np.array([0]))[0, 0])

  @property
  def num_samples(self) -> int:
    return 2**20

  @functools.cached_property
  def grams(self) -> _Grams:
    """Inner products of bins, and the share of users in bins like these."""
    # The bound assumes that all know a user's bin but for a multiple of this.
    # The bins left to guess are so far apart; from the first on they cost most.
    stride = -(-self.num_bins // _MAX_BINS)
    most, larger = divmod(self.num_bins, stride)
    gram = self.gram(np.arange(0, self.num_bins, stride))
    # So many users' cosets have one bin more to hide among.
    share = larger * (most + 1) / self.num_bins
    grams = [(gram, share), (gram[:most, :most], 1.0 - share)]
    return [(some, share) for some, share in grams if share]

  def sample_removals(
    self,
    usual_loss: float,
    count: int,
  ) -> monte_carlo.Samples:
    """Samples releases with the user, who moves them by power times as much.

    R is a mixture of N(power m_j), with weights by which R / Q is at least a
    constant times the mean of exp(power u_j), where P / Q is that of exp(u_j):
    the mean of powers is at least the power of the mean.
    """
    power = max(usual_loss / self.grams[0][0].max() + 0.5, 1.0)
    log_scales = []
    weights = []
    for gram, _ in self.grams:
      logs = 0.5 * (power**2 - power) * np.diag(gram)
      log_scales.append(special.logsumexp(logs) - math.log(len(logs)))
      weights.append(special.softmax(logs))
    parts = []
    for number, noise, generator in _draw(
      self.grams, count, monte_carlo.REMOVALS
    ):
      gram = self.grams[number][0]
      bins = generator.choice(len(gram), len(noise), p=weights[number])
      logs = noise + power * gram[bins] - 0.5 * np.diag(gram)
      loss, log_density = _log_means(logs, power)
      log_weights = loss - log_density + log_scales[number]
      parts.append((loss[loss > 0.0], log_weights[loss > 0.0]))
    return monte_carlo.Samples.of(parts, count, power - 1.0, max(log_scales))

  def sample_additions(
    self,
    usual_loss: float,
    count: int,
  ) -> monte_carlo.Samples:
    """Samples releases without the user, moved away from what users change.

    R is N(-power mean(m_j)); the mean of exp(u_j) is at least exp(mean(u_j)),
    so that a large loss bounds how far a release was moved.
    """
    gram = self.grams[0][0]
    power = max((usual_loss - 0.5 * np.diag(gram).mean()) / gram.mean(), 0.0)
    log_scales = []
    for gram, _ in self.grams:
      square = np.diag(gram).mean()
      log_scales.append(0.5 * power * square + 0.5 * power**2 * gram.mean())
    parts = []
    for number, noise, _ in _draw(self.grams, count, monte_carlo.ADDITIONS):
      gram = self.grams[number][0]
      logs = noise - power * gram.mean(axis=1) - 0.5 * np.diag(gram)
      loss = -_log_means(logs, 1.0)[0]
      log_weights = power * logs.mean(axis=1) + log_scales[number]
      parts.append((loss[loss > 0.0], log_weights[loss > 0.0]))
    return monte_carlo.Samples.of(parts, count, power, max(log_scales))


def create_event(
  noise_multiplier: float,
  strategy: toeplitz.ToeplitzStrategy | None,
  num_bins: int,
  rounds: int,
) -> BallsInBinsDpEvent | random_allocation.RandomAllocationDpEvent:
  """Returns the event of a whole run.

  Privacy:
    As `BallsInBinsDpEvent`. Of independent noise all rounds of a bin are one
    Gaussian mechanism, and whoever is in one of them is in no other.

  Args:
    noise_multiplier: As there, like all others.
    strategy: None for independent noise.
    num_bins: Their number.
    rounds: Number of rounds.
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
  """Yields the number of a matrix and numbers `[n, b]` with its covariance."""
  generator = monte_carlo.create_generator(count, stream)
  counts = generator.multinomial(count, [share for _, share in grams])
  for number, left in enumerate(counts):
    # Bins may be so much alike that there is no Cholesky factor.
    values, vectors = np.linalg.eigh(grams[number][0])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    for first in range(0, left, _BATCH):
      size = (min(_BATCH, left - first), len(root))
      yield number, generator.standard_normal(size) @ root.T, generator


def _log_means(logs: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
  """Logarithms of the means of exp(logs) and exp(power logs), by row."""
  largest = logs.max(axis=1, keepdims=True)
  logs = logs - largest
  largest = largest[:, 0]
  first = np.log(np.exp(logs).mean(axis=1)) + largest
  return first, np.log(np.exp(power * logs).mean(axis=1)) + power * largest
