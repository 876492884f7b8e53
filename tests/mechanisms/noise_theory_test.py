"""Tests of what the tests of noise would catch, and of their theory."""

import math

import numpy as np
import pytest

from tests.mechanisms import noise_theory

_ROUNDS = 14
_MATRICES = {
  "independent": np.eye(_ROUNDS),
  "restarts": noise_theory.tree_noise_matrix(_ROUNDS, 5),
  "blt": np.linalg.inv(
    noise_theory.blt_matrix((0.9, 0.4), (0.25, 0.35), _ROUNDS)
  ),
}


def _repeat(fresh):
  # In a tree those of leaves that are released as they are.
  fresh[10, 1] = fresh[4, 1]


def _share_with_the_next_round(fresh):
  # A seed that moves on by one where each round uses two.
  fresh[1:, 0] = fresh[:-1, 1]


def _louder_round(fresh):
  fresh[9] *= 1.1


def _smooth(fresh):
  fresh[:, 0, 1:] += 0.05 * fresh[:, 0, :-1]


def _change_shape(fresh):
  # The same variance.
  fresh[...] = np.random.default_rng(1).laplace(
    0.0, math.sqrt(0.5), fresh.shape
  )


@pytest.mark.parametrize(
  ("change", "names", "alarm"),
  [
    (_repeat, _MATRICES, "any two tensors"),
    (_share_with_the_next_round, _MATRICES, "any two tensors"),
    (_louder_round, ["blt"], "variance in round 9"),
    (_smooth, ["blt"], "neighbours in tensor 0"),
    (lambda z: np.add(z, 0.04, z), ["independent"], "mean of tensor 1"),
    (_change_shape, ["independent"], "shape of tensor 0"),
    (lambda z: np.multiply(z, 0.95, z), _MATRICES, "variance"),
    (lambda z: np.multiply(z, 1.05, z), ["restarts"], "variance"),
  ],
)
def test_wrong_noise_raises_an_alarm(change, names, alarm):
  for name in names:
    matrix = _MATRICES[name]
    fresh = np.random.default_rng(1).normal(size=[matrix.shape[1], 2, 3_000])
    assert not noise_theory.alarms(np.tensordot(matrix, fresh, 1), matrix)
    change(fresh)
    assert alarm in noise_theory.alarms(np.tensordot(matrix, fresh, 1), matrix)
