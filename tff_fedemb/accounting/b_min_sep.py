"""What users cost who flip a coin a round, but for b - 1 after each of theirs.

Dong and Ganesh 2026, "Privacy Amplification for BandMF via b-Min-Sep
Subsampling" (arXiv 2602.09338). The rounds of a user are at least b apart, so
that the columns of a matrix of at most b bands that they change do not overlap:
the likelihood ratio of all ways to take part together is found by going through
the rounds once, backwards. Releases are sampled by copies of a user (docs/
privacy.md), for bounds that hold whatever was sampled.
"""

import collections
from collections.abc import Iterator
import dataclasses
import functools
import math

import numpy as np
from scipy import sparse
from scipy import special

from tff_fedemb.accounting import monte_carlo

# Numbers of a user's likelihood ratios that are held at once, and in all.
_BATCH = 2**22
_MAX_SIZE = 2**25
# Copies of a user are so many as have no more states together, and in all
# rounds.
_MAX_STATES = 2**13
_MAX_TABLE = 2**24
# Above the first no epsilon has its best power; the other, times a number of
# a column, keeps weights in range. With less noise than lets any power stay in
# range nothing is protected.
_MIN_POWER = 1.05
_MAX_POWER = 200.0
_MAX_CHANGE = 36.0
_NUM_POWERS = 24


@dataclasses.dataclass(frozen=True)
class BMinSepDpEvent(monte_carlo.MixtureDpEvent):
  """A whole run, each of whose users takes part now and then, in secret.

  Privacy:
    Unit: one user's updates in all rounds that they are in.
    Neighbouring relation: a user's slot stays empty, as the participation has
      it.
    Sensitivity: 1 in a round.
    DpEvent: a mixture of Gaussians against one Gaussian (`monte_carlo`).

  Attributes:
    min_separation: Rounds from one of a user's to the next, at least 1 and at
      least the bands of a matrix.
    sampling_probability: That a user is in a given round, the same in all; at
      most 1 / `min_separation`.
  """

  min_separation: int
  sampling_probability: float

  @functools.cached_property
  def column(self) -> np.ndarray:
    """Change of this and later rounds by an update, in units of noise."""
    return self.first_column / self.noise_multiplier

  @functools.cached_property
  def squares(self) -> np.ndarray:
    """`[rounds]` squared norms of the columns, the last of which are cut."""
    sums = np.cumsum(np.square(self.column))
    left = np.arange(self.rounds, 0, -1)
    return sums[np.minimum(left, sums.size) - 1]

  @property
  def coin(self) -> float:
    """Probability that a user takes part in a round who may."""
    chance = self.sampling_probability
    return min(chance / (1.0 - (self.min_separation - 1) * chance), 1.0)

  @property
  def is_secret(self) -> bool:
    in_range = _MIN_POWER * self.column.max() < _MAX_CHANGE
    return self.sampling_probability < 1.0 and in_range

  @functools.cached_property
  def largest_square(self) -> float:
    # No column is longer than an earlier one.
    return float(self.squares[:: self.min_separation].sum())

  @property
  def num_samples(self) -> int:
    return max(min(_MAX_SIZE // self.rounds, 2**18), 2**12)

  def log_ratios(self, exponents: np.ndarray) -> np.ndarray:
    """Returns logarithms of mean_x exp(sum of the exponents of x's rounds).

    Args:
      exponents: `[rounds, n]`.

    Returns:
      `[n]`.
    """
    separation = self.min_separation
    with np.errstate(divide="ignore"):
      heads = np.log(self.coin)
      tails = np.log1p(-self.coin)
      # Some have to wait from the start on, as if they had taken part before.
      chances = np.full(separation, self.sampling_probability)
      chances[0] = 1.0 - (separation - 1) * self.sampling_probability
      first = np.log(np.maximum(chances, 0.0))[:, np.newaxis]
    # Row t mod b holds the mean over what comes from round t on, for a user who
    # may take part in it.
    means = np.zeros((separation, exponents.shape[1]))
    for t in reversed(range(self.rounds)):
      later = means[(t + 1) % separation] + tails
      now = means[t % separation] + exponents[t] + heads
      means[t % separation] = np.logaddexp(now, later)
    return special.logsumexp(first + means, axis=0)

  def sample_removals(
    self,
    usual_loss: float,
    count: int,
  ) -> monte_carlo.Samples:
    """Samples releases with n copies of the user, who move them too far.

    R is a mixture of N(k (m_x1 + ... + m_xn), 1), with weights by which R / Q
    is a constant times the n-th power of the mean of exp(k u_x). That is at
    least the power n k of the mean of exp(u_x), P / Q, and the nearer to it the
    more copies there are.
    """
    # Those by which the weight of the usual loss is least.
    best = min(self._copies, key=lambda copies: copies.log_most(usual_loss))
    return _sample_by(best, count)

  def sample_additions(
    self,
    usual_loss: float,
    count: int,
  ) -> monte_carlo.Samples:
    """Samples releases without the user, moved away from what users change.

    R is N(-power mean(m_x), 1), where the mean is that of users who are in
    fewer rounds, by a law at a divergence of d. The mean of exp(u_x) is at
    least exp(mean(u_x) - d), so that a large loss bounds how far a release was
    moved.
    """
    mean = np.full(self.rounds, self.column.sum())
    mean[: self.column.size] = np.cumsum(self.column)
    found = []
    for chance in self.sampling_probability * np.geomspace(1.0, 0.02, 64):
      fixed = self._divergence(chance) + 0.5 * chance * self.squares.sum()
      if fixed == math.inf:
        continue
      square = np.square(chance * mean).sum()
      power = max((usual_loss - fixed) / square, 0.0)
      log_scale = power * fixed + 0.5 * power**2 * square
      log_most = log_scale + monte_carlo.log_largest(power, usual_loss)
      found.append((log_most, log_scale, power, chance))
    _, log_scale, power, chance = min(found)
    at_zero = log_scale - power * self._divergence(chance)
    parts = []
    for size, generator in _batches(count, self.rounds, monte_carlo.ADDITIONS):
      shift = np.repeat(-power * chance * mean[:, np.newaxis], size, axis=1)
      exponents = self.exponents(shift, generator)
      loss = -self.log_ratios(exponents)
      kept = loss > 0.0
      sums = exponents[:, kept].sum(axis=0)
      parts.append((loss[kept], power * chance * sums + at_zero))
    return monte_carlo.Samples.of(parts, count, power, log_scale)

  def _divergence(self, chance: float) -> float:
    """Kullback and Leibler's, from users who are in a round with a chance."""
    waits = self.min_separation - 1
    free = 1.0 - waits * chance
    others = 1.0 - waits * self.sampling_probability
    coin = chance / free
    of_start = special.rel_entr(free, others) + waits * special.rel_entr(
      chance, self.sampling_probability
    )
    of_coin = special.rel_entr(coin, self.coin) + special.rel_entr(
      max(1.0 - coin, 0.0), 1.0 - self.coin
    )
    return float(of_start + self.rounds * free * of_coin)

  def exponents(
    self,
    shift: np.ndarray,
    generator: np.random.Generator,
  ) -> np.ndarray:
    """Samples <y, c> - |c|^2 / 2 of each column c, y being normal.

    Args:
      shift: `[rounds, n]` means of y.
      generator: Generator of what is added to them.
    """
    columns = sparse.diags(
      [np.full(self.rounds, entry) for entry in self.column],
      range(self.column.size),
      shape=(self.rounds, self.rounds),
      format="csr",
    )
    releases = shift + generator.standard_normal(shift.shape)
    return columns @ releases - 0.5 * self.squares[:, np.newaxis]

  @functools.cached_property
  def _copies(self) -> "list[Copies]":
    """Those that are tried, of as many numbers as can be held."""
    states = self.min_separation + 1
    most = min(_MAX_POWER, _MAX_CHANGE / self.column.max())
    powers = np.geomspace(_MIN_POWER, most, _NUM_POWERS)
    found = [Copies(self, 1, power) for power in powers]
    number = 2
    while (
      states**number <= _MAX_STATES
      and states**number * number * self.rounds <= _MAX_TABLE
    ):
      found += [
        Copies(self, number, power) for power in powers if power >= number
      ]
      number += 1
    return found


@dataclasses.dataclass(frozen=True)
class Copies:
  """Copies of a user, who take part together more than users do.

  Each is idle, or where in a column they are, 0 ... b - 1: they may take part
  if they are idle or at its end. With numbers x_i of what they change in a
  round, what comes out weighs exp((k sum(x_i))^2 / 2 - k sum(x_i^2) / 2).

  Attributes:
    event: The run.
    number: How many.
    power: Power of the likelihood ratio, at least as large.
  """

  event: BMinSepDpEvent
  number: int
  power: float

  @property
  def scale(self) -> float:
    """By how much each moves a release, k."""
    return self.power / self.number

  def _changes(self, t: int) -> np.ndarray:
    """Change of round t by a copy in each state."""
    changes = np.zeros(self.event.min_separation + 1)
    # Who waits from the start on has never been there.
    seen = self.event.column[: t + 1]
    changes[: seen.size] = seen
    return changes

  def _sum(self, values: np.ndarray) -> np.ndarray:
    """Adds up a number by state over all copies: `[states] * number`."""
    return functools.reduce(np.add.outer, [values] * self.number)

  def _log_weights(self, t: int) -> np.ndarray:
    changes = self._changes(t)
    both = self.scale * self._sum(changes)
    return 0.5 * both**2 - 0.5 * self.scale * self._sum(np.square(changes))

  def _one_earlier(self, values: np.ndarray, axis: int) -> np.ndarray:
    """Means over the next round of one copy, by the state before it."""
    coin = self.event.coin
    first, middle, last = np.split(values, [1, -1], axis)
    free = coin * first + (1.0 - coin) * last
    return np.concatenate([middle, free, free], axis)

  def _backwards(self) -> Iterator[tuple[int, np.ndarray, float]]:
    """Yields a round, weights of all from it on by states there, and log."""
    shape = (self.event.min_separation + 1,) * self.number
    values = np.ones(shape)
    log_scale = 0.0
    for t in reversed(range(self.event.rounds)):
      values = values * np.exp(self._log_weights(t))
      largest = values.max()
      values /= largest
      log_scale += math.log(largest)
      yield t, values, log_scale
      for axis in range(self.number):
        values = self._one_earlier(values, axis)

  @functools.cached_property
  def _first(self) -> np.ndarray:
    """Probabilities of states in round 0, of copies as users are."""
    chance = self.event.sampling_probability
    states = np.full(self.event.min_separation + 1, chance)
    states[-1] = max(1.0 - self.event.min_separation * chance, 0.0)
    return functools.reduce(np.multiply.outer, [states] * self.number)

  @functools.cached_property
  def log_scale(self) -> float:
    """Logarithm of the mean of all weights."""
    _, values, log_scale = collections.deque(self._backwards(), maxlen=1).pop()
    return log_scale + math.log((self._first * values).sum())

  def log_most(self, loss: float) -> float:
    """Logarithm of the most that a sample may count for at a loss."""
    return self.log_scale + monte_carlo.log_largest(self.power - 1.0, loss)

  def draw(
    self,
    count: int,
  ) -> Iterator[tuple[np.ndarray, np.random.Generator]]:
    """Yields by how much releases are moved, `[rounds, n]`.

    Args:
      count: How many in all, and the seed.
    """
    event = self.event
    shape = (event.min_separation + 1,) * self.number
    chances: dict[int, list[np.ndarray]] = {}
    for t, values, _ in self._backwards():
      chances[t] = self._chances(values)
    first = (self._first * values).ravel()
    # Where each state of a copy leads to, as what is added to the whole's.
    state = np.arange(event.min_separation + 1)
    stays = np.minimum(state + 1, event.min_separation)
    stays[-2:] = event.min_separation
    places = np.indices(shape).reshape(self.number, -1)
    strides = len(state) ** np.arange(self.number)[::-1, np.newaxis]
    to_start = (-places * strides).astype(np.int32)
    to_other = ((stays - state)[places] * strides).astype(np.int32)
    for size, generator in _batches(count, event.rounds, monte_carlo.REMOVALS):
      shift = np.empty((event.rounds, size))
      at = generator.choice(first.size, size, p=first / first.sum())
      for t in range(event.rounds):
        for i, chance in enumerate(chances[t] if t else ()):
          starts = generator.random(size) < chance[at]
          at = at + np.where(starts, to_start[i][at], to_other[i][at])
        shift[t] = self.scale * self._sum(self._changes(t)).ravel()[at]
      yield shift, generator

  def _chances(self, values: np.ndarray) -> list[np.ndarray]:
    """Chances of each copy in turn to take part, by what those before did.

    Args:
      values: Weights of all from a round on, by states there.

    Returns:
      For each copy, by the states of those before in the round, and of itself
      and those after before it; 0 where it cannot.
    """
    found = []
    coin = self.event.coin
    for axis in reversed(range(self.number)):
      by_state = np.moveaxis(values, axis, 0)
      starts = coin * by_state[0]
      idle = (1.0 - coin) * by_state[-1]
      chance = np.zeros_like(by_state)
      with np.errstate(invalid="ignore"):
        chance[-2:] = starts / (starts + idle)
      found.append(np.moveaxis(chance, 0, axis).ravel())
      values = self._one_earlier(values, axis)
    return found[::-1]


# Losses close to each other have the same copies.
@functools.lru_cache(maxsize=4)
def _sample_by(copies: Copies, count: int) -> monte_carlo.Samples:
  event = copies.event
  parts = []
  for shift, generator in copies.draw(count):
    exponents = event.exponents(shift, generator)
    loss = event.log_ratios(exponents)
    kept = loss > 0.0
    density = event.log_ratios(copies.scale * exponents[:, kept])
    log_weights = loss[kept] - copies.number * density + copies.log_scale
    parts.append((loss[kept], log_weights))
  return monte_carlo.Samples.of(
    parts, count, copies.power - 1.0, copies.log_scale
  )


def _batches(
  count: int,
  rounds: int,
  stream: int,
) -> Iterator[tuple[int, np.random.Generator]]:
  """Yields sizes of batches, and where their numbers are from."""
  generator = monte_carlo.create_generator(count, stream)
  batch = max(_BATCH // rounds, 1)
  for first in range(0, count, batch):
    yield min(batch, count - first), generator
