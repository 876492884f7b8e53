"""Scores of canaries, and the lower bound of epsilon that they give.

DeLong et al. 1988, "Comparing the Areas under Two or More Correlated Receiver
Operating Characteristic Curves", for the variance of an area.
"""

import dataclasses
import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from tff_fedemb import errors

MIN_SCORES = 2
# A lower bound of epsilon, and what it was found with.
Found = tuple[float, dict[str, float]]


def _check(name: str, values: Any) -> np.ndarray:
  values = np.asarray(values)
  if values.ndim != 1 or values.dtype.kind not in "biuf":
    raise errors.FieldError(
      name, "be real numbers [n]", f"{values.dtype} {list(values.shape)}"
    )
  if len(values) < MIN_SCORES:
    raise errors.FieldError(name, f"be at least {MIN_SCORES}", len(values))
  values = values.astype(np.float64)
  if np.isnan(values).any():
    raise errors.FieldError(
      name,
      "be numbers",
      f"NaN in {np.isnan(values).sum():,} of {len(values):,}",
    )
  return values


@dataclasses.dataclass(frozen=True)
class Scores:
  """What an attack says of each canary: the higher, the more likely included.

  Attributes:
    in_scores: Float64 `[n]`, of the canaries that were included.
    out_scores: Float64 `[m]`, of those that were not.

  Raises:
    errors.FieldError: If they are too few, not numbers or NaN.
  """

  in_scores: np.ndarray
  out_scores: np.ndarray

  def __post_init__(self):
    for name in ("in_scores", "out_scores"):
      object.__setattr__(self, name, _check(name, getattr(self, name)))

  @classmethod
  def of_coins(cls, values: np.ndarray, included: np.ndarray) -> "Scores":
    """Scores `[n]` of canaries, and whether each was included, bool `[n]`."""
    return cls(values[included], values[~included])

  def __len__(self) -> int:
    return len(self.in_scores) + len(self.out_scores)

  def _create_generator(self) -> np.random.Generator:
    """A generator that depends on the values alone.

    Not on their order in a file, nor on which of them were included, so that
    the same scores always give the same bound.
    """
    pooled = np.sort(np.concatenate([self.in_scores, self.out_scores]))
    # The sum makes 0 of -0, which is another number of the same value.
    digest = hashlib.sha256((pooled + 0.0).tobytes()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))

  def halves(self) -> tuple["Scores", "Scores"]:
    """Two random halves, of as many of either kind.

    Raises:
      errors.FieldError: If a half would have too few.
    """
    rng = self._create_generator()
    parts = []
    for values in (self.in_scores, self.out_scores):
      values = rng.permutation(np.sort(values))
      parts.append((values[: len(values) // 2], values[len(values) // 2 :]))
    (in_first, in_second), (out_first, out_second) = parts
    return Scores(in_first, out_first), Scores(in_second, out_second)

  def true_positive_rates(
    self, false_positive_rates: npt.ArrayLike
  ) -> list[float]:
    """Shares of members whose score is above that of all but so many others.

    Args:
      false_positive_rates: Shares of others, in [0, 1], `[n]`.
    """
    thresholds = np.quantile(
      self.out_scores, np.subtract(1.0, false_positive_rates), method="higher"
    )
    return np.mean(self.in_scores[:, np.newaxis] > thresholds, axis=0).tolist()

  def area(self, significance: float) -> tuple[float, tuple[float, float]]:
    """How often a member scores higher than another, ties halved: the AUC.

    Args:
      significance: Probability that the interval is wrong.

    Returns:
      The area under the curve, and an interval by DeLong's variance.
    """
    members, others = np.sort(self.in_scores), np.sort(self.out_scores)

    def placements(values, among):
      below = np.searchsorted(among, values)
      both = below + np.searchsorted(among, values, "right")
      return both / (2 * len(among))

    above_others = placements(members, others)
    area = float(np.mean(above_others))
    variance = np.var(above_others, ddof=1) / len(members)
    variance += np.var(placements(others, members), ddof=1) / len(others)
    reach = stats.norm.isf(significance / 2) * math.sqrt(variance)
    return area, (max(area - reach, 0.0), min(area + reach, 1.0))

  def ranked(self) -> np.ndarray:
    """Whether each canary was included, the highest score first.

    Among equal scores the order is random: anything else could tell who was
    included.
    """
    values = np.concatenate([self.in_scores, self.out_scores])
    included = np.arange(len(values)) < len(self.in_scores)
    ties = self._create_generator().random(len(values))
    return included[np.lexsort((ties, -values))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowerBound:
  """With probability 1 - significance epsilon is at least this.

  Attributes:
    epsilon_lower: The bound; 0 says nothing.
    method: Its name.
    delta: At which epsilon is bounded.
    significance: Probability that the bound is wrong, at most.
    num_in: Canaries that were included.
    num_out: Canaries that were not.
    assumes: What has to be true for the bound.
    details: What the method found, by name.
  """

  epsilon_lower: float
  method: str
  delta: float
  significance: float
  num_in: int
  num_out: int
  assumes: str
  details: dict[str, float]

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold."""
    return dataclasses.asdict(self)
