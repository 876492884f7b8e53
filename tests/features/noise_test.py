"""Tests of Gaussian releases."""

import numpy as np
import pytest
from scipy import stats

from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import noise


def _releases(*planned, seed=0, **noise_multipliers):
  """Releases of one kind each, by name; more where they are planned."""
  planned = planned or tuple(map(budget_lib.PlannedRelease, noise_multipliers))
  budget = budget_lib.Budget(planned, noise_multipliers, 1.0, 1e-5)
  if not isinstance(seed, np.random.SeedSequence):
    seed = np.random.SeedSequence(seed)
  return noise.Releases(budget, seed)


def _draw(releases, name, parts=1):
  """All numbers of a release's noise, standardised."""
  release = releases.open(name, sensitivity=5.0, parts=parts)
  drawn = [release.add_noise(np.zeros([20, 50])) for _ in range(parts)]
  return np.concatenate([part.ravel() / part.std() for part in drawn])


def test_numbers_are_normal_to_the_tails():
  """False alarms: once in 10^6 runs."""
  generator = np.random.Generator(np.random.Philox())
  drawn = noise.standard_normal(generator, (401, 501))
  assert drawn.shape == (401, 501)
  assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-6

  class Bits:
    """Words of the radius and of the angle."""

    def __init__(self, *words):
      self._words = np.array(words, np.uint64)

    def integers(self, low, high, shape, dtype):
      return np.broadcast_to(self._words[:, np.newaxis], shape)

  # sqrt(-2 ln 2^-129); 1 less (2^20 + 1/2) 2^-128 has twice that as its square.
  largest = noise.standard_normal(Bits(0, 0, 0), (2,))
  np.testing.assert_allclose(largest, [(258 * np.log(2)) ** 0.5, 0], atol=1e-12)
  last = 2**64 - 1
  smallest = noise.standard_normal(Bits(last, last - 2**20, 0), (1,))
  np.testing.assert_allclose(smallest, (2 * (2**20 + 0.5)) ** 0.5 * 2.0**-64)


def test_sum_and_noise_are_on_a_common_grid():
  # The largest power of two up to 3 x 2^-10 / sqrt(2 x 5) is 2^-11.
  for value in (0.1, 0.3, 1e6 + 0.3):
    releases = _releases(sums=1.5, seed=None)
    release = releases.open("sums", sensitivity=3.0, parts=2)
    for _ in range(2):
      steps = release.add_noise(np.full(5, value)) * 2.0**11
      np.testing.assert_array_equal(steps, np.round(steps))


def test_symmetric_noise():
  dim = 500
  total = np.add.outer(np.arange(dim), np.arange(dim)).astype(float)
  release = _releases(sums=1.5).open("sums", sensitivity=2.0)
  released = release.add_symmetric_noise(total)
  np.testing.assert_array_equal(released, released.T)
  drawn = released - total
  # 500 numbers: the standard error is 3.2 %; 124,750: 0.2 %. Bounds at five.
  assert abs(np.diag(drawn).std() / 3.0 - 1) < 0.16
  off_diagonal = drawn[np.triu_indices(dim, 1)]
  assert abs(off_diagonal.std() / (3.0 / 2**0.5) - 1) < 0.01


def test_noise_norm_is_about_the_spectral_norm():
  # Fluctuations are of the order d^(-2/3) = 2 %.
  release = _releases(sums=0.7).open("sums", sensitivity=1.0)
  drawn = release.add_symmetric_noise(np.zeros([300, 300]))
  norm = np.linalg.norm(drawn, ord=2)
  assert noise.noise_norm(0.7, 300) == pytest.approx(norm, rel=0.1)


def test_without_noise_it_is_a_copy():
  total = np.ones([2, 2], np.float32)
  release = _releases(sums=0.0).open("sums", sensitivity=1.0, parts=2)
  released = release.add_noise(total)
  assert released.dtype == np.float64
  released[0] = 7.0
  np.testing.assert_array_equal(total, np.ones([2, 2]))
  matrix = np.array([[1.0, 2.0], [2.0, 5.0]])
  np.testing.assert_array_equal(release.add_symmetric_noise(matrix), matrix)


@pytest.mark.parametrize(
  "seed",
  [np.random.SeedSequence(2**100), np.random.SeedSequence(1, spawn_key=(1,))],
)
def test_names_have_noise_of_their_own(seed):
  # One the beginning of the other, and of other orders of letters.
  names = ("sum", "sums", "mus", "s")
  releases = _releases(**dict.fromkeys(names, 1.0), seed=seed)
  drawn = [_draw(releases, name) for name in names]
  drawn.append(_draw(_releases(sum=1.0, seed=3), "sum"))
  # Every part of every release is new.
  planned = budget_lib.PlannedRelease("parts", count=2)
  releases = _releases(planned, parts=1.0, seed=seed)
  for _ in range(2):
    drawn += [*_draw(releases, "parts", parts=2).reshape([2, 1000])]
  # And so are children of the seed.
  for child in seed.spawn(2):
    drawn.append(_draw(_releases(sum=1.0, seed=child), "sum"))
  # The seed alone, in nobody's release, must not be one's noise either.
  drawn.append(np.random.default_rng(seed).standard_normal(1000))
  # This is six standard errors for 1,000 numbers.
  correlations = np.corrcoef(drawn) - np.eye(len(drawn))
  assert np.abs(correlations).max() < 0.19


def test_no_more_than_was_said_and_accounted():
  releases = _releases(budget_lib.PlannedRelease("steps", count=2), steps=1.0)
  releases.open("steps", sensitivity=1.0)
  release = releases.open("steps", sensitivity=1.0, parts=2)
  release.add_noise(np.zeros(3))
  release.add_symmetric_noise(np.zeros([3, 3]))
  for add in (release.add_noise, release.add_symmetric_noise):
    with pytest.raises(RuntimeError, match="release steps must have as many"):
      add(np.zeros([3, 3]))
  for name, planned in (("steps", 2), ("other", 0)):
    with pytest.raises(RuntimeError, match=f"{name} must .* {planned} times"):
      releases.open(name, sensitivity=1.0)


@pytest.mark.parametrize(
  ("noise_multiplier", "sensitivity", "message"),
  [
    (0.0, 0.0, "sensitivity of sums must be positive"),
    (1.0, np.inf, "sensitivity of sums must be positive"),
    (1.0, np.nan, "sensitivity of sums must be positive"),
    (1e-200, 1e-200, "noise on sums must be a positive"),
    (1e200, 1e200, "noise on sums must be a positive"),
  ],
)
def test_noise_must_be_a_number(noise_multiplier, sensitivity, message):
  releases = _releases(sums=noise_multiplier)
  with pytest.raises(ValueError, match=message):
    releases.open("sums", sensitivity=sensitivity)
  assert releases.to_json() == []


def test_projection_by_hand():
  # Eigenvalues 3 and -1, at (1, 1) and (1, -1).
  projected = noise.project_to_psd(np.array([[1.0, 2.0], [2.0, 1.0]]))
  np.testing.assert_allclose(projected, np.full([2, 2], 1.5), atol=1e-14)
  # A positive definite matrix is symmetrised in a copy, and otherwise kept.
  matrix = np.array([[2.0, 3.0], [-1.0, 2.0]])
  projected = noise.project_to_psd(matrix)
  np.testing.assert_array_equal(projected, [[2.0, 1.0], [1.0, 2.0]])
  assert not np.shares_memory(projected, matrix)
