"""Tests of packed symmetric matrices."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.features import symmetric


def _draw(dim: int) -> np.ndarray:
  matrix = np.random.default_rng(dim).normal(size=[dim, dim])
  return matrix + matrix.T


def test_two_by_two():
  root = np.sqrt(2.0)
  packed = symmetric.pack(tf.constant([[1.0, 3.0], [-9.0, 5.0]]))
  np.testing.assert_allclose(packed, [1.0, 3.0 * root, 5.0])
  np.testing.assert_allclose(
    symmetric.unpack(np.array([1.0, 3.0 * root, 5.0]), 2),
    [[1.0, 3.0], [3.0, 5.0]],
  )


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_round_trip_and_norm(dim):
  matrix = _draw(dim)
  packed = symmetric.pack(tf.constant(matrix))
  assert packed.shape == (symmetric.packed_size(dim),)
  np.testing.assert_allclose(np.linalg.norm(packed), np.linalg.norm(matrix))
  np.testing.assert_allclose(symmetric.unpack(packed, dim), matrix)


def test_independent_noise_is_symmetric_noise():
  """As `noise.Release.add_symmetric_noise`: std 1, and 1 / sqrt(2) beside.

  False alarms: below once in 10^6 runs. Of 500 standard normal numbers' mean
  square the standard error is 6.3 %, of 124,750 it is 0.4 %.
  """
  dim = 500
  noise = np.random.default_rng().normal(size=symmetric.packed_size(dim))
  matrix = symmetric.unpack(noise, dim)
  np.testing.assert_array_equal(matrix, matrix.T)
  assert np.mean(np.diagonal(matrix) ** 2) == pytest.approx(1.0, abs=0.35)
  above = matrix[np.triu_indices(dim, 1)]
  assert np.mean(above**2) == pytest.approx(0.5, rel=0.022)
