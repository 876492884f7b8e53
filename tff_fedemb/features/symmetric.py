"""Symmetric matrices as vectors of half as many numbers, norms preserved.

The upper triangle row by row, with what is off the diagonal times sqrt(2): the
L2 norm of the vector is the Frobenius norm of the matrix. Independent noise on
the vector is, on the matrix, that of `noise.Release.add_symmetric_noise`.
"""

import math

import numpy as np
import tensorflow as tf

_ROOT = math.sqrt(2.0)


def packed_size(dim: int) -> int:
  """Returns d (d + 1) / 2: numbers of a packed `[d, d]` matrix."""
  return dim * (dim + 1) // 2


def pack(matrix: tf.Tensor) -> tf.Tensor:
  """Packs a symmetric matrix.

  Args:
    matrix: `[d, d]`, d known when tracing; what is below the diagonal is not
      read.

  Returns:
    `[d (d + 1) / 2]`.
  """
  dim = matrix.shape[0]
  scaled = tf.linalg.set_diag(_ROOT * matrix, tf.linalg.diag_part(matrix))
  # Made on the spot: a constant of indices would be in every copy of the graph.
  is_upper = tf.linalg.band_part(tf.ones([dim, dim], tf.bool), 0, -1)
  return tf.ensure_shape(tf.boolean_mask(scaled, is_upper), [packed_size(dim)])


def unpack(vector: np.ndarray, dim: int) -> np.ndarray:
  """Inverse of `pack`.

  Args:
    vector: `[d (d + 1) / 2]`.
    dim: d.

  Returns:
    The symmetric matrix, float64 `[d, d]`.
  """
  upper = np.zeros([dim, dim])
  upper[np.triu_indices(dim)] = vector
  matrix = (upper + upper.T) / _ROOT
  matrix[np.diag_indices(dim)] = np.diagonal(upper)
  return matrix
