"""How noise should be distributed, and whether it is, over rounds and numbers.

The noise of T rounds is R Z, R [T, m], the rows of Z independent and standard
normal. R is worked out here without the library's help. What was released is
whitened, with the Cholesky factor of R R^T; if it is as it should be, that
leaves independent standard normal numbers, whatever R is.
"""

from collections.abc import Iterator, Mapping, Sequence
import itertools

import numpy as np
from scipy import linalg
from scipy import stats

from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy

FALSE_ALARM_RATE = 1e-6


def _starts(rounds: int, restart_every: int | None) -> list[int]:
  """First round of each tree."""
  return [*range(0, rounds, restart_every or rounds)]


def all_participations(
  rounds: int, min_separation: int, most: int, first: int = 0
) -> Iterator[list[int]]:
  """Yields every way to be in at most so many rounds, so far apart."""
  yield []
  for start in range(first, rounds if most else first):
    for rest in all_participations(
      rounds, min_separation, most - 1, start + min_separation
    ):
      yield [start, *rest]


def node_matrix(rounds: int, restart_every: int | None = None) -> np.ndarray:
  """Which rounds are below which complete node, [nodes, rounds]."""
  rows = []
  starts = _starts(rounds, restart_every)
  for start, end in itertools.pairwise([*starts, rounds]):
    length = 1
    while length <= end - start:
      for first in range(start, end - length + 1, length):
        row = np.zeros(rounds)
        row[first : first + length] = 1.0
        rows.append(row)
      length *= 2
  return np.array(rows)


def tree_noise_matrix(
  rounds: int, restart_every: int | None = None
) -> np.ndarray:
  """R of the efficient tree, [rounds, nodes].

  Each node is an observation of the sum of its rounds, with noise of unit
  variance. The estimate of a prefix sum is the best linear unbiased one (Gauss
  and Markov) from the nodes that are complete by then, in the present tree. A
  round's noise is what the estimate's changes by.
  """
  nodes = node_matrix(rounds, restart_every)
  starts = _starts(rounds, restart_every)
  prefixes = np.zeros((rounds, len(nodes)))
  for t in range(rounds):
    start = max(first for first in starts if first <= t)
    # Every round of a complete node lies between the restart and now.
    complete = nodes[:, start : t + 1].sum(axis=1) == nodes.sum(axis=1)
    design = nodes[complete, start : t + 1]
    prefixes[t, complete] = np.linalg.pinv(design).sum(axis=0)
  before = np.roll(prefixes, 1, axis=0)
  before[starts] = 0.0
  return prefixes - before


def toeplitz_matrix(column: Sequence[float], rounds: int) -> np.ndarray:
  """The strategy C of a first column, [rounds, rounds]."""
  padded = np.zeros(rounds)
  padded[: len(column)] = column[:rounds]
  return linalg.toeplitz(padded, np.zeros(rounds))


def blt_matrix(
  decays: Sequence[float], weights: Sequence[float], rounds: int
) -> np.ndarray:
  """C of a BLT, [rounds, rounds]."""
  powers = np.power.outer(np.asarray(decays), np.arange(rounds - 1))
  return toeplitz_matrix([1.0, *(np.asarray(weights) @ powers)], rounds)


def noise_matrix(
  strategy: strategy_lib.Strategy | None, rounds: int
) -> np.ndarray:
  """R of what a strategy says it is, which is None for independent noise."""
  match strategy:
    case None:
      return np.eye(rounds)
    case tree_strategy.TreeStrategy():
      return tree_noise_matrix(rounds, strategy.restart_every)
    case blt_strategy.BltStrategy():
      matrix = blt_matrix(strategy.decays, strategy.weights, rounds)
    case banded_strategy.BandedToeplitzStrategy():
      matrix = toeplitz_matrix(strategy.coefficients, rounds)
  return np.linalg.inv(matrix)


def _two_sided(distribution, value: float, *freedom: int) -> float:
  """A p-value of a distribution; SciPy takes 4 ms to freeze one."""
  return 2.0 * min(
    distribution.cdf(value, *freedom), distribution.sf(value, *freedom)
  )


def _p_value_of_correlation(correlation: float, count: int) -> float:
  """Exact for independent normal numbers."""
  if abs(correlation) >= 1.0:
    return 0.0
  statistic = correlation * np.sqrt((count - 2) / (1.0 - correlation**2))
  return _two_sided(stats.t, statistic, count - 2)


def _p_value_of_pairs(first: np.ndarray, second: np.ndarray) -> float:
  """As `stats.pearsonr`, in a tenth of its time."""
  correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
  return _p_value_of_correlation(correlation, first.size)


def p_values(noise: np.ndarray, matrix: np.ndarray) -> Mapping[str, float]:
  """P-values of noise that is that of a matrix, and fresh.

  Args:
    noise: `[rounds, tensors, numbers]`, in standard deviations of a row of Z.
    matrix: R.

  Returns:
    One for each round's variance (chi-square) and for that of all together;
    one for the largest correlation between any two rounds and tensors, with
    Bonferroni's correction; for each difference of rounds, their correlation;
    for each tensor, that of neighbouring numbers, the mean and the shape
    (Kolmogorov and Smirnov).
  """
  # Independent and standard normal if R is right.
  factor = np.linalg.cholesky(matrix @ matrix.T)
  flat = noise.reshape(len(noise), -1)
  white = linalg.solve_triangular(factor, flat, lower=True).reshape(noise.shape)
  num_rounds, num_tensors, length = white.shape
  values = {
    "variance": _two_sided(stats.chi2, np.square(white).sum(), white.size)
  }
  for t in range(num_rounds):
    values[f"variance in round {t}"] = _two_sided(
      stats.chi2, np.square(white[t]).sum(), white[t].size
    )
  correlations = np.atleast_2d(np.corrcoef(white.reshape(-1, length)))
  pairs = correlations[np.triu_indices(len(correlations), k=1)]
  if pairs.size:
    values["any two tensors"] = len(pairs) * _p_value_of_correlation(
      np.abs(pairs).max(), length
    )
  # All pairs together: a correlation too weak to be seen in one.
  for lag in range(1, num_rounds):
    values[f"rounds {lag} apart"] = _p_value_of_pairs(white[lag:], white[:-lag])
  for i in range(num_tensors):
    numbers = white[:, i].ravel()
    values[f"neighbours in tensor {i}"] = _p_value_of_pairs(
      white[:, i, 1:], white[:, i, :-1]
    )
    values[f"mean of tensor {i}"] = _two_sided(
      stats.norm, numbers.mean() * np.sqrt(numbers.size)
    )
    values[f"shape of tensor {i}"] = stats.kstest(numbers, "norm").pvalue
  return values


def alarms(noise: np.ndarray, matrix: np.ndarray) -> dict[str, float]:
  """The p-values that are too small for all together to be by chance.

  With Bonferroni's correction: if everything is as it should be, there is any
  alarm at all at most with probability `FALSE_ALARM_RATE`.
  """
  values = p_values(noise, matrix)
  threshold = FALSE_ALARM_RATE / len(values)
  # Not the other way around: NaN is an alarm.
  return {
    name: value for name, value in values.items() if not value >= threshold
  }
