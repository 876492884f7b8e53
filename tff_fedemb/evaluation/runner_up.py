"""Thresholds for a score that subtracts a share of the runner-up.

A probe that is similar to many people is similar to some of a gallery, too. Its
score is its similarity with the most similar identity less a share of its
similarity with the next one. The gallery then serves as the cohort, so the
score needs no other people, unlike `cohorts`. It does not change which identity
is most similar. In galleries of some fifty identities and more it finds more
enrolled people at the same rate of accepted strangers.

Rates are means over random galleries of the held-out classes, whose other
classes are strangers.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import rates as rates_lib

# Chosen on galleries of 30 to 100 characters of Omniglot.
WEIGHT = 0.4
_SIZES = (50, 100, 200, 500, 1000)
# Share of the classes in the largest gallery: the others are strangers.
_LARGEST_SHARE = 0.7
_NUM_GALLERIES = 50
# Similarities to look at for each size of gallery, and probes at least.
_MOST_SIMILARITIES = 2**25
_LEAST_PROBES = 2_000


@dataclasses.dataclass(frozen=True)
class Thresholds:
  """Thresholds of the score for galleries of one size.

  Attributes:
    thresholds: For each rate, the smallest score at which no more strangers
      are accepted; `None` if accepting the highest one is too much.
    gain: Share of the enrolled people's probes that this score finds beyond
      those that the similarity alone finds at the same rates; mean over rates.
      Negative if it finds fewer.
  """

  thresholds: list[float | None]
  gain: float


def measure(
  measured: identification.Identification, rates: Sequence[float]
) -> dict[int, Thresholds]:
  """Measures thresholds for galleries as large as the classes allow.

  Args:
    measured: All similarities of the held-out classes.
    rates: Shares of strangers' probes to accept, each in (0, 1).

  Returns:
    Thresholds by size of gallery, ascending, for sizes of 50 up to 70 % of the
    classes, at most 1,000; none if there are fewer than 72 classes.
  """
  largest = min(int(_LARGEST_SHARE * measured.num_classes), _SIZES[-1])
  galleries = {}
  for size in sorted({*_SIZES, largest}):
    if _SIZES[0] <= size <= largest:
      galleries[size] = _Galleries(measured, size)
  if galleries:
    for rows, best, mates in measured.blocks():
      for some in galleries.values():
        some.add(rows, best, mates)
  return {size: some.measure(rates) for size, some in galleries.items()}


class _Galleries:
  """Scores of probes in 50 random galleries of one size.

  Attributes are lists with an array for each block and gallery: score and
  weight of strangers `[2, p]`; score, similarity and weight of mates `[3, p]`.
  """

  def __init__(self, measured: identification.Identification, size: int):
    """Draws galleries, and probes if there are many.

    Args:
      measured: All similarities of the classes.
      size: Identities of a gallery.
    """
    generator = np.random.default_rng(0)
    self._measured, self._size = measured, size
    self._members = [
      np.sort(generator.permutation(measured.num_classes)[:size])
      for _ in range(_NUM_GALLERIES)
    ]
    num_probes = _MOST_SIMILARITIES // (size * _NUM_GALLERIES)
    probes = generator.permutation(len(measured.classes))
    self._is_probe = np.zeros(len(probes), bool)
    self._is_probe[probes[: max(num_probes, _LEAST_PROBES)]] = True
    self._strangers: list[np.ndarray] = []
    self._mates: list[np.ndarray] = []

  def add(self, rows: slice, best: np.ndarray, mates: np.ndarray) -> None:
    """Adds scores of some rows, as from `Identification.blocks`.

    Args:
      rows: Rows of the probes.
      best: Similarities with all identities, `[rows, num_classes]`.
      mates: Similarities with their own identity, `[rows]`.
    """
    measured = self._measured
    chosen = np.flatnonzero(self._is_probe[rows])
    best, mates, chosen = best[chosen], mates[chosen], chosen + rows.start
    for members in self._members:
      is_mate = np.isin(measured.classes[chosen], members)
      # A probe's own identity is at -inf.
      first, second = _two_highest(np.take(best, members, axis=1))
      score = first - WEIGHT * second
      of_strangers = np.stack([score, measured.weights[chosen]])
      self._strangers.append(of_strangers[:, ~is_mate])
      # A probe most similar to another identity is found at no threshold.
      alone = np.where(mates > first, mates, -np.inf)
      score = alone - WEIGHT * first
      of_mates = np.stack([score, alone, measured.mate_weights[chosen]])
      self._mates.append(of_mates[:, is_mate])

  def measure(self, rates: Sequence[float]) -> Thresholds:
    """Returns the thresholds and their gain, once all rows were added.

    Args:
      rates: Shares of strangers' probes to accept.

    Returns:
      A threshold for each rate, and the gain.
    """
    strangers = np.concatenate(self._strangers, axis=1)
    mates = np.concatenate(self._mates, axis=1)
    scores, weights = strangers[:, np.argsort(-strangers[0])]
    accepted = np.cumsum(weights) / weights.sum()
    thresholds, gains = [], []
    for rate in rates:
      threshold = rates_lib.find_threshold(scores, accepted, rate)
      alone = self._measured.threshold(rate, self._size)
      thresholds.append(threshold)
      gains.append(
        _share(mates[0], threshold, mates[2])
        - _share(mates[1], alone, mates[2])
      )
    return Thresholds(thresholds, float(np.mean(gains)))


def _two_highest(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the highest value of each row and the next one, `[rows]` each.

  Overwrites the highest value of each row in place.
  """
  highest = np.arange(len(values)), values.argmax(axis=1)
  first = values[highest]
  values[highest] = -np.inf
  return first, values.max(axis=1)


def _share(
  values: np.ndarray, threshold: float | None, weights: np.ndarray
) -> float:
  """Weighted share of the values that reach a threshold; 0 without one."""
  if threshold is None:
    return 0.0
  return float(np.average(values >= threshold, weights=weights))
