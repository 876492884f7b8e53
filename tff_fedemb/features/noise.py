"""Gaussian releases of sums: all that a fit publishes of the data.

Balle and Wang 2018, "Improving the Gaussian Mechanism for Differential
Privacy"; for matrices Dwork et al. 2014, "Analyze Gauss". Noise is drawn as
in `mechanisms.secret_noise`: by Philox, whose key is 128 bits of the operating
system; with tails of up to 13.4 standard deviations, without gaps up to 10.5;
and rounded with the sum to a common grid.
"""

import collections
import dataclasses
import math
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb.features import budget as budget_lib

# Rounding to the grid raises the sensitivity by at most this share, and the
# standard deviation is raised by as much.
_ROUNDING = 2.0**-10
_UNIT = 2.0**-64
# Standard deviations up to which the gaps between radii are below 2^-51.
REACH = 10.5


def standard_normal(
  generator: np.random.Generator,
  shape: tuple[int, ...],
) -> np.ndarray:
  """Draws independent standard normal numbers, by Box and Muller 1958.

  Args:
    generator: Source of random bits, 192 for two numbers.
    shape: Shape of the numbers.

  Returns:
    Float64 of that shape.
  """
  size = math.prod(shape)
  num_pairs = (size + 1) // 2
  words = generator.integers(0, 2**64, [3, num_pairs], dtype=np.uint64)
  # Near 1, float64 has too few digits for 128 bits; the distance from 1 keeps
  # them, as numbers near 0 do.
  uniform = _to_unit_interval(words[0], words[1])
  missing = _to_unit_interval(~words[0], ~words[1])
  with np.errstate(divide="ignore"):
    logarithm = np.where(uniform < 0.5, np.log(uniform), np.log1p(-missing))
  radius = np.sqrt(-2.0 * logarithm)
  angle = words[2] * (2.0 * np.pi * _UNIT)
  numbers = [radius * np.cos(angle), radius * np.sin(angle)]
  return np.concatenate(numbers)[:size].reshape(shape)


def _to_unit_interval(high: np.ndarray, low: np.ndarray) -> np.ndarray:
  """Converts the upper and lower 64 bits of 128 to numbers in (0, 1)."""
  return (high + (low + 0.5) * _UNIT) * _UNIT


@dataclasses.dataclass
class Release:
  """One release, which may have several parts with independent noise.

  A sum that is too large to be held at once is released part by part. The
  sensitivity bounds one example's contribution to all parts together.

  Privacy:
    Unit, neighbouring relation: as `Releases`.
    Sensitivity: that given to `Releases.open`, in the L2 norm over all parts
      together.
    DpEvent: `GaussianDpEvent` with the standard deviation over the sensitivity,
      once for all parts; `NonPrivateDpEvent` if the standard deviation is 0.

  Attributes:
    name: Name of the release.
    stddev: Standard deviation of the noise, not negative; 0 for no noise.
    sensitivity: Largest L2 norm of one example's contribution, positive; the
      grid depends on it.
    parts: Number of parts, at least 1.
    rng: Source of the noise.
  """

  name: str
  stddev: float
  sensitivity: float
  parts: int
  rng: np.random.Generator

  def __post_init__(self):
    """Counts the parts that are left to release."""
    self._parts_left = self.parts

  def add_noise(self, total: np.ndarray) -> np.ndarray:
    """Returns a part with fresh noise on each of its numbers.

    Args:
      total: A sum over examples, any shape.

    Returns:
      Float64 of the same shape, on the grid; a copy if there is no noise.

    Raises:
      RuntimeError: If all parts that `open` announced were released.
    """
    if not self._parts_left:
      raise RuntimeError(
        f"release {self.name} must have as many parts as it was opened with,"
        " found another one."
      )
    self._parts_left -= 1
    if not self.stddev:
      return np.array(total, np.float64)
    # Rounding moves neighbouring sums apart by at most a step in each number.
    share = _ROUNDING / math.sqrt(max(self.parts * total.size, 1))
    exponent = math.floor(math.log2(self.sensitivity * share))
    grid = 2.0**exponent
    stddev = self.stddev * (1.0 + _ROUNDING)
    drawn = stddev * standard_normal(self.rng, np.shape(total))
    steps = np.round(total / grid) + np.round(drawn / grid)
    return steps * grid

  def add_symmetric_noise(self, total: np.ndarray) -> np.ndarray:
    """Returns a symmetric part with fresh, symmetric noise.

    The noise is the symmetric part of a matrix of independent numbers. Its
    standard deviation is `stddev` on the diagonal, and `stddev` / sqrt(2)
    elsewhere.

    Args:
      total: A sum of symmetric matrices `[d, d]`, one for each example, with
        Frobenius norms of at most the sensitivity.

    Returns:
      Float64 `[d, d]`.

    Raises:
      RuntimeError: If all parts that `open` announced were released.
    """
    return symmetrize(self.add_noise(total))


class Releases:
  """Makes the releases of one fit, and records them.

  Privacy:
    Unit: an example or a user; each contributes at most the stated sensitivity
      to a sum.
    Neighbouring relation: the slot of one of them stays empty.
    Sensitivity: that given to `open`, in the L2 norm over all parts together.
    DpEvent: those that `to_json` lists: a `GaussianDpEvent` for each release
      that was made. Releases outside the budget are refused.

  Every part of every release gets a new draw. Each kind of release has its own
  generator, so that two methods with the same seed get the same noise.

  Attributes:
    budget: Planned releases, and their noise.
  """

  def __init__(self, budget: budget_lib.Budget, seed: np.random.SeedSequence):
    """Initialises the releases.

    Args:
      budget: Planned releases, and their noise.
      seed: Seed of the noise; `SeedSequence()` without arguments has 128 secret
        bits of the operating system.
    """
    self.budget = budget
    self._planned = {x.name: x.count for x in budget.releases}
    self._rngs = {}
    for name in self._planned:
      own = np.random.SeedSequence(
        seed.entropy, spawn_key=seed.spawn_key + tuple(name.encode())
      )
      # Philox is counter-based and has a key of 128 bits.
      self._rngs[name] = np.random.Generator(np.random.Philox(own))
    self._counts: collections.Counter[str] = collections.Counter()

  def open(self, name: str, *, sensitivity: float, parts: int = 1) -> Release:
    """Begins a release.

    Args:
      name: Name of a planned release.
      sensitivity: Largest L2 norm of the terms of one example in all parts,
        positive.
      parts: Number of parts, at least 1.

    Returns:
      The release, to add the noise with.

    Raises:
      RuntimeError: If the budget has not accounted for it.
      ValueError: If the sensitivity is not a positive number, or the noise is
        too large or too small for a float64.
    """
    planned = self._planned.get(name, 0)
    if self._counts[name] >= planned:
      raise RuntimeError(
        f"release {name} must be made at most {planned} times, as accounted,"
        " found another one."
      )
    if not checks.is_number(sensitivity) or sensitivity <= 0:
      raise ValueError(
        f"sensitivity of {name} must be positive, found {sensitivity!r}."
      )
    noise_multiplier = self.budget.noise_multipliers[name]
    stddev = float(noise_multiplier) * float(sensitivity)
    # A standard deviation of 0 means no noise; tiny noise must not underflow to
    # it.
    if not math.isfinite(stddev) or bool(stddev) != bool(noise_multiplier):
      raise ValueError(
        f"standard deviation of the noise on {name} must be a positive"
        f" number, found {noise_multiplier!r} times {sensitivity!r}."
      )
    self._counts[name] += 1
    return Release(name, stddev, sensitivity, parts, self._rngs[name])

  def to_json(self) -> list[dict[str, Any]]:
    """Lists the releases that were made.

    Returns:
      JSON values of each kind: `name`, `count`, `noise_multiplier` and `event`,
      the text of the `DpEvent` of one of them.
    """
    multipliers = self.budget.noise_multipliers
    releases = []
    for name, count in self._counts.items():
      release = {
        "name": name,
        "count": count,
        "noise_multiplier": multipliers[name],
        "event": repr(budget_lib.event_of(multipliers[name])),
      }
      releases.append(release)
    return releases


def symmetrize(matrix: np.ndarray) -> np.ndarray:
  """Returns the mean of a matrix and its transpose.

  Args:
    matrix: `[d, d]`.
  """
  return (matrix + matrix.T) / 2


def project_to_psd(matrix: np.ndarray) -> np.ndarray:
  """Returns the closest positive semi-definite matrix, in Frobenius norm.

  Higham 1988, "Computing a Nearest Symmetric Positive Semidefinite Matrix": the
  symmetric part, with negative eigenvalues replaced by 0.

  Args:
    matrix: `[d, d]`, not necessarily symmetric.

  Returns:
    A new matrix `[d, d]`.
  """
  eigenvalues, vectors = np.linalg.eigh(symmetrize(matrix))
  if eigenvalues[0] >= 0:
    return symmetrize(matrix)
  return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T


def noise_norm(stddev: float, dim: int) -> float:
  """Estimates the spectral norm of the noise of `add_symmetric_noise`.

  This is the edge of the semicircle law (Wigner 1958) with off-diagonal
  standard deviation stddev / sqrt(2): sqrt(2 d) stddev. It depends on no data.

  Args:
    stddev: Standard deviation of the release.
    dim: d, number of rows.

  Returns:
    The norm, in the unit of the standard deviation; 0 without noise.
  """
  return stddev * (2.0 * dim) ** 0.5
