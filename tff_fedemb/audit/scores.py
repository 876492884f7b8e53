"""Scores of canaries: of those that were included, and of the others."""

import dataclasses
import hashlib
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
  """Scores of canaries by an attack: the higher, the more likely included.

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
    self,
    false_positive_rates: npt.ArrayLike,
  ) -> list[float]:
    """Shares of members whose score is above that of all but so many others.

    Args:
      false_positive_rates: Shares of others, in [0, 1], `[n]`.
    """
    thresholds = np.quantile(
      self.out_scores, np.subtract(1.0, false_positive_rates), method="higher"
    )
    return np.mean(self.in_scores[:, np.newaxis] > thresholds, axis=0).tolist()

  @property
  def area(self) -> float:
    """How often a member scores higher than another, ties halved: the AUC."""
    members = len(self.in_scores)
    others = len(self.out_scores)
    ranks = stats.rankdata(np.concatenate([self.in_scores, self.out_scores]))
    above = ranks[:members].mean() - (members + 1) / 2
    return float(above / others)

  def ranked(self) -> np.ndarray:
    """Whether each canary was included, the highest score first.

    Among equal scores the order is random: anything else could tell who was
    included.
    """
    values = np.concatenate([self.in_scores, self.out_scores])
    included = np.arange(len(values)) < len(self.in_scores)
    ties = self._create_generator().random(len(values))
    return included[np.lexsort((ties, -values))]
