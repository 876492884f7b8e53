"""Scores of canaries: of those that were included, and of the others."""

import dataclasses
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from tff_fedemb import errors

MIN_SCORES = 2
# An assumption of methods that bound by rates or areas.
INDEPENDENT = (
  "scores are independent: each canary had a computation of its own, or a"
  " direction in so many dimensions that canaries hardly meet"
)
# A lower bound of epsilon, and the numbers that it was found with.
Found = tuple[float, dict[str, float]]


def _check(name: str, values: Any) -> np.ndarray:
  """Returns scores as float64 `[n]`, or says what is wrong with them.

  Args:
    name: Name in an error.
    values: Any array of real numbers; infinite ones are allowed.

  Raises:
    errors.FieldError: If they are too few, not numbers or NaN.
  """
  values = np.asarray(values)
  if values.ndim != 1 or values.dtype.kind not in "biuf":
    raise errors.FieldError(
      name, "be real numbers [n]", f"{values.dtype} {list(values.shape)}"
    )
  if len(values) < MIN_SCORES:
    raise errors.FieldError(name, f"be at least {MIN_SCORES}", len(values))
  values = values.astype(np.float64)
  num_missing = np.isnan(values).sum()
  if num_missing:
    raise errors.FieldError(
      name, "be numbers", f"NaN in {num_missing:,} of {len(values):,}"
    )
  return values


@dataclasses.dataclass(frozen=True)
class Scores:
  """Scores of canaries by an attack: the higher, the more likely included.

  Attributes:
    in_scores: Float64 `[n]`, of the canaries that were included; n is at least
      `MIN_SCORES`.
    out_scores: Float64 `[m]`, of those that were not; m is at least
      `MIN_SCORES`.

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
    """Creates scores from those of all canaries and their coins.

    Args:
      values: Scores `[n]`.
      included: Whether each canary was included, bool `[n]`.

    Returns:
      The scores, by whether the canary was included.

    Raises:
      errors.FieldError: As the class, or if the coins are not true or false.
    """
    # Numbers would be taken for indices.
    if included.dtype != bool or included.shape != values.shape:
      must = f"be true or false, {list(values.shape)}"
      found = f"{included.dtype} {list(included.shape)}"
      raise errors.FieldError("included", must, found)
    return cls(values[included], values[~included])

  def __len__(self) -> int:
    """Number of all canaries."""
    return len(self.in_scores) + len(self.out_scores)

  def _create_generator(self) -> np.random.Generator:
    """A generator that depends on the values, not on their order or coins.

    The same scores therefore always give the same bound.
    """
    pooled = np.sort(np.concatenate([self.in_scores, self.out_scores]))
    # -0 and 0 are the same score in other bytes; adding 0 makes both 0.
    digest = hashlib.sha256((pooled + 0.0).tobytes()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))

  def halves(self) -> tuple["Scores", "Scores"]:
    """Returns two random halves, each with half of either kind.

    The same scores are always cut in the same way, whatever their order.

    Returns:
      Both halves; of an odd number, the second has one more.

    Raises:
      errors.FieldError: If a half would have too few scores.
    """
    for name in ("in_scores", "out_scores"):
      number = len(getattr(self, name))
      if number < 2 * MIN_SCORES:
        must = f"be at least {2 * MIN_SCORES}, for two halves"
        raise errors.FieldError(name, must, number)
    rng = self._create_generator()
    in_scores = rng.permutation(np.sort(self.in_scores))
    out_scores = rng.permutation(np.sort(self.out_scores))
    half_in = len(in_scores) // 2
    half_out = len(out_scores) // 2
    first = Scores(in_scores[:half_in], out_scores[:half_out])
    second = Scores(in_scores[half_in:], out_scores[half_out:])
    return first, second

  def true_positive_rates(
    self,
    false_positive_rates: npt.ArrayLike,
  ) -> list[float]:
    """Returns the shares of members that a threshold finds.

    Args:
      false_positive_rates: Shares of the others that are above the threshold,
        at most; in [0, 1], `[n]`.

    Returns:
      The shares of members above the same thresholds, in [0, 1], `[n]`.
    """
    shares_below = np.subtract(1.0, false_positive_rates)
    thresholds = np.quantile(self.out_scores, shares_below, method="higher")
    is_found = self.in_scores[:, np.newaxis] > thresholds
    return np.mean(is_found, axis=0).tolist()

  @property
  def area(self) -> float:
    """Area under the curve: how often a member scores higher than another.

    A tie counts as half.
    """
    members = len(self.in_scores)
    others = len(self.out_scores)
    ranks = stats.rankdata(np.concatenate([self.in_scores, self.out_scores]))
    above = ranks[:members].mean() - (members + 1) / 2
    return float(above / others)

  def ranked(self) -> np.ndarray:
    """Returns whether each canary was included, best score first.

    The order of equal scores is random: another order could tell who was
    included.

    Returns:
      Bool `[n]`, for all canaries.
    """
    values = np.concatenate([self.in_scores, self.out_scores])
    included = np.arange(len(values)) < len(self.in_scores)
    ties = self._create_generator().random(len(values))
    return included[np.lexsort((ties, -values))]
