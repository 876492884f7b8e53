"""What users cost who are put in one of b bins at random: Monte-Carlo bounds.

Chua et al. 2024, "Balls-and-Bins Sampling for DP-SGD" (arXiv 2412.16802);
Choquette-Choo et al. 2024, "Near Exact Privacy Amplification for Matrix
Mechanisms" (arXiv 2410.06266), whose accounting this is but for how it samples.

A user takes part in the rounds of their bin, j, j + b, j + 2 b, ... What they
change of C x + Z is at most m_j, the sum of these columns of |C|: the run loses
no more than a mixture of N(m_j, z^2) loses against N(0, z^2). docs/privacy.md
has the proof, for what users send in answer to what was released before, and
how sure the estimate is.
"""

import bisect
from collections.abc import Iterator, Sequence
import dataclasses
import math

import dp_accounting
import numpy as np
from scipy import optimize
from scipy import signal
from scipy import special

from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.strategies import toeplitz

# Of delta, the probability that the estimate is wrong.
FAILURE_SHARE = 1e-3
# Above this epsilon nothing is amplified that would protect anybody.
EPSILON_LIMIT = 50.0

# Those of the last step are what an epsilon rests on.
_NUM_SAMPLES = (2**14, 2**16, 2**20)
# Losses of adding a user are bounded well with fewer.
_FEWER = 16
_BATCH = 2**14
_REMOVALS, _ADDITIONS = 0, 1
# Bins that are told apart; of more, every second or third ... one.
_MAX_BINS = 48
# Epsilons that are tried, as shares of that without amplification.
_SHARES = np.geomspace(0.02, 0.999, 2**13)

# Inner products of bins, and the share of users that are in bins like these.
_Grams = Sequence[tuple[np.ndarray, float]]


@dataclasses.dataclass(frozen=True)
class BallsInBinsDpEvent(dp_accounting.DpEvent):
  """A whole run, each of whose users is in one of some bins, in secret.

  Privacy:
    Unit: one user's updates in all rounds of their bin.
    Neighbouring relation: add or remove a user.
    Sensitivity: 1 in a round.
    DpEvent: a mixture of Gaussians against one Gaussian (see the module).

  Attributes:
    noise_multiplier: Standard deviation of a row of Z over the sensitivity.
    strategy: How noise is correlated; None if it is not.
    num_bins: Their number, at least 1; round t is of bin t mod `num_bins`.
    rounds: Number of rounds, at least 1.
  """

  noise_multiplier: float
  # Of so many numbers that nobody would read them.
  strategy: toeplitz.ToeplitzStrategy | None = dataclasses.field(repr=False)
  num_bins: int
  rounds: int

  def gram(self, bins: np.ndarray) -> np.ndarray:
    """Returns inner products of what a user of some bins changes.

    Args:
      bins: Int `[n]`, ascending.

    Returns:
      Float64 `[n, n]`, in squares of the noise.
    """
    column = np.eye(1, self.rounds)[0]
    if self.strategy is not None:
      column = np.abs(self.strategy.first_column(self.rounds))
    changes = np.zeros((len(bins), self.rounds))
    for row, first in zip(changes, bins, strict=True):
      starts = np.zeros(self.rounds)
      starts[first :: self.num_bins] = 1.0
      used = np.trim_zeros(column, "b")
      row[:] = signal.oaconvolve(starts, used)[: self.rounds]
    return changes @ changes.T / self.noise_multiplier**2


class BallsInBinsAccountant(dp_accounting.PrivacyAccountant):
  """Accountant of one `BallsInBinsDpEvent`, and of nothing else.

  Privacy:
    Unit, neighbouring relation: those of the event.
    Sensitivity: 1.
    DpEvent: `BallsInBinsDpEvent` once; `NonPrivateDpEvent`. With a probability
      of `FAILURE_SHARE` delta, over samples that know nothing of any data, an
      epsilon is too small; what is left of delta is what it is estimated for.
  """

  def __init__(
    self,
    neighboring_relation: dp_accounting.NeighboringRelation = (
      dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    ),
  ):
    """Creates an empty accountant."""
    super().__init__(neighboring_relation)
    self._event: dp_accounting.DpEvent | None = None

  def _maybe_compose(self, event, count, do_compose):
    match event:
      case dp_accounting.NoOpDpEvent():
        return None
      case dp_accounting.NonPrivateDpEvent():
        pass
      case BallsInBinsDpEvent() if count <= 1 and self._event is None:
        pass
      case _:
        return self.CompositionErrorDetails(
          invalid_event=event, error_message="Unsupported event."
        )
    if do_compose:
      self._event = event
    return None

  def get_epsilon(self, target_delta: float) -> float:
    """Returns an epsilon that holds at `target_delta`."""
    match self._event:
      case None:
        return 0.0
      case BallsInBinsDpEvent():
        return bound_epsilon(self._event, target_delta)
    return math.inf


def bound_epsilon(event: BallsInBinsDpEvent, delta: float) -> float:
  """Returns an epsilon that holds at `delta`, as the accountant has it.

  Privacy:
    As `BallsInBinsAccountant`.

  Args:
    event: The run.
    delta: In (0, 1).

  Returns:
    The smallest that the samples support; at most that of the bin that costs
    most, known to everybody, which is exact.
  """
  # As if all knew a user's bin but for a multiple of this. What is left to
  # guess are bins as far apart, of which those from the first on cost most.
  stride = -(-event.num_bins // _MAX_BINS)
  most, larger = divmod(event.num_bins, stride)
  gram = event.gram(np.arange(0, event.num_bins, stride))
  accountant = gaussian_accountant.GaussianAccountant()
  accountant.compose(dp_accounting.GaussianDpEvent(1.0 / math.sqrt(gram.max())))
  known = accountant.get_epsilon(delta)
  if event.num_bins == 1 or not 0.0 < known <= EPSILON_LIMIT:
    return known
  # So many users' cosets have one bin more to hide among.
  share = larger * (most + 1) / event.num_bins
  grams = [(gram, share), (gram[:most, :most], 1.0 - share)]
  grams = [(some, share) for some, share in grams if share]
  # The last one is drawn where the others have found epsilon to be.
  found = known
  for count in _NUM_SAMPLES:
    found = _bound(grams, delta, known, usual=found, count=count)
  return found


def _bound(
  grams: _Grams, delta: float, known: float, *, usual: float, count: int
) -> float:
  """Returns an epsilon that so many samples support.

  Args:
    grams: Of the bins.
    delta: In (0, 1).
    known: Epsilon without amplification.
    usual: Near the result; of the result's samples it must not be a function.
    count: Number of samples, and the seed of them: another one each time.
  """
  epsilons = known * _SHARES
  sides = (
    _sample_removals(grams, usual, epsilons[0], count),
    _sample_additions(grams, usual, epsilons[0], count // _FEWER),
  )
  # Any of them may be wrong: Bonferroni.
  log_failure = math.log(delta * FAILURE_SHARE / (len(sides) * len(epsilons)))

  def holds(epsilon: float) -> bool:
    deltas = (side.bound_delta(epsilon, log_failure) for side in sides)
    return max(deltas) <= delta * (1.0 - FAILURE_SHARE)

  # They fall with epsilon.
  found = bisect.bisect_left(epsilons, True, key=holds)
  return float(epsilons[found]) if found < len(epsilons) else known


@dataclasses.dataclass(frozen=True)
class _Samples:
  """Samples of a likelihood ratio, drawn where privacy losses are large.

  Of the releases y with density Q, or P, those that make up a delta are rare.
  They are drawn with a density R instead, and weigh w(y) = Q(y) / R(y), or
  P(y) / R(y); delta is the mean of w (1 - exp(epsilon - loss))+. The weight of
  a loss is at most exp(log_scale - slope x loss).

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

  def bound_delta(self, epsilon: float, log_failure: float) -> float:
    """Returns a delta at which `epsilon` holds in this direction.

    Hoeffding 1963, "Probability Inequalities for Sums of Bounded Random
    Variables", theorem 1, inequality 2.1.

    Args:
      epsilon: At least the smallest of the losses.
      log_failure: Logarithm of the probability that it is too small.
    """
    # The largest value of exp(-slope t) (1 - exp(-t)).
    slope = self.slope
    log_largest = special.xlogy(slope, slope / (slope + 1)) - math.log1p(slope)
    log_largest += self.log_scale - slope * epsilon
    above = self.losses > epsilon
    values = np.exp(self.log_weights[above] - log_largest)
    values *= -np.expm1(epsilon - self.losses[above])
    share = min(float(values.sum()) / self.count, 1.0)

    def excess(larger: float) -> float:
      entropy = special.rel_entr(share, larger)
      entropy += special.rel_entr(1.0 - share, 1.0 - larger)
      return self.count * entropy + log_failure

    # At the largest number below 1 the entropy is large, unless share is.
    most = 1.0 - 2.0**-53
    if excess(most) > 0.0:
      most = optimize.brentq(excess, share, most, xtol=1e-300, rtol=1e-12)
    return math.exp(min(log_largest + math.log(most) + 1e-9, 0.0))


def _draw(
  grams: _Grams, count: int, stream: int
) -> Iterator[tuple[int, np.ndarray, np.random.Generator]]:
  """Yields the number of a matrix and numbers `[n, b]` with its covariance."""
  # Always the same, so that an account can be computed again, but not those by
  # which it was decided where these are to be drawn.
  generator = np.random.Generator(np.random.SFC64((count, stream)))
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


def _sample_removals(
  grams: _Grams, usual_loss: float, smallest_loss: float, count: int
) -> _Samples:
  """Samples releases with the user, who moves them by power times as much.

  R is a mixture of N(power m_j), with weights by which R / Q is at least a
  constant times the mean of exp(power u_j), where P / Q is that of exp(u_j):
  the mean of powers is at least the power of the mean.

  Args:
    grams: Of the bins.
    usual_loss: Near the epsilon that is sought.
    smallest_loss: Others do not matter.
    count: How many.
  """
  power = max(usual_loss / grams[0][0].max() + 0.5, 1.0)
  log_scales, weights = [], []
  for gram, _ in grams:
    logs = 0.5 * (power**2 - power) * np.diag(gram)
    log_scales.append(special.logsumexp(logs) - math.log(len(logs)))
    weights.append(special.softmax(logs))
  losses, log_weights = [], []
  for number, noise, generator in _draw(grams, count, _REMOVALS):
    gram = grams[number][0]
    bins = generator.choice(len(gram), len(noise), p=weights[number])
    logs = noise + power * gram[bins] - 0.5 * np.diag(gram)
    loss, log_density = _log_means(logs, power)
    kept = loss > smallest_loss
    losses.append(loss[kept])
    log_weights.append((loss - log_density)[kept] + log_scales[number])
  return _Samples(
    np.concatenate(losses),
    np.concatenate(log_weights),
    count,
    power - 1.0,
    max(log_scales),
  )


def _sample_additions(
  grams: _Grams, usual_loss: float, smallest_loss: float, count: int
) -> _Samples:
  """Samples releases without the user, moved away from what users change.

  R is N(-power mean(m_j)); the mean of exp(u_j) is at least exp(mean(u_j)), so
  that a large loss bounds how far a release was moved.

  Args:
    grams: Of the bins.
    usual_loss: Near the epsilon that is sought.
    smallest_loss: Others do not matter.
    count: How many.
  """
  gram = grams[0][0]
  power = max((usual_loss - 0.5 * np.diag(gram).mean()) / gram.mean(), 0.0)
  log_scales = [
    0.5 * power * np.diag(gram).mean() + 0.5 * power**2 * gram.mean()
    for gram, _ in grams
  ]
  losses, log_weights = [], []
  for number, noise, _ in _draw(grams, count, _ADDITIONS):
    gram = grams[number][0]
    logs = noise - power * gram.mean(axis=1) - 0.5 * np.diag(gram)
    loss = -_log_means(logs, 1.0)[0]
    kept = loss > smallest_loss
    losses.append(loss[kept])
    log_weights.append(power * logs[kept].mean(axis=1) + log_scales[number])
  return _Samples(
    np.concatenate(losses),
    np.concatenate(log_weights),
    count,
    power,
    max(log_scales),
  )
