"""Tests of what the tests of noise would catch, and of their theory."""

import math

import numpy as np
import pytest

from tests.aggregators import noise_theory

_ROUNDS = 14
_NUM_TENSORS = 2
_LENGTH = 3_000
_RESTART_EVERY = 5
_DECAYS = (0.9, 0.4)
_WEIGHTS = (0.25, 0.35)
_COLUMN = (1.0, 0.5, 0.375)

_BLT = np.linalg.inv(noise_theory.blt_matrix(_DECAYS, _WEIGHTS, _ROUNDS))
_MATRICES = {
  "independent": np.eye(_ROUNDS),
  "tree": noise_theory.tree_noise_matrix(_ROUNDS),
  "restarts": noise_theory.tree_noise_matrix(_ROUNDS, _RESTART_EVERY),
  "blt": _BLT,
  "banded": np.linalg.inv(noise_theory.toeplitz_matrix(_COLUMN, _ROUNDS)),
}


def _draw(matrix, seed=1):
  """Z, and the noise of a matrix made from it."""
  fresh = np.random.default_rng(seed).normal(
    size=[matrix.shape[1], _NUM_TENSORS, _LENGTH]
  )
  return fresh, np.tensordot(matrix, fresh, 1)


def test_tree_by_hand():
  # Two rounds and their root. After the first, its own noise; after the
  # second, (root + (leaf + leaf) / 2) / 1.5 is the estimate of least variance.
  np.testing.assert_allclose(
    noise_theory.tree_noise_matrix(2),
    [[1.0, 0.0, 0.0], [1.0 / 3.0 - 1.0, 1.0 / 3.0, 2.0 / 3.0]],
    atol=1e-12,
  )
  # The root of four rounds: 1 / (2 - 2^-2).
  prefix = noise_theory.tree_noise_matrix(4).sum(axis=0)
  assert np.sum(np.square(prefix)) == pytest.approx(1.0 / 1.75)
  # A tree for each round has no node but leaves.
  np.testing.assert_allclose(
    noise_theory.tree_noise_matrix(3, 1), np.eye(3), atol=1e-12
  )


def test_strategies_by_hand():
  np.testing.assert_allclose(
    noise_theory.toeplitz_matrix([1.0, 0.5], 3),
    [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 1.0]],
  )
  np.testing.assert_allclose(
    noise_theory.blt_matrix([0.5, 0.25], [0.5, 0.25], 3),
    [[1.0, 0.0, 0.0], [0.75, 1.0, 0.0], [0.3125, 0.75, 1.0]],
  )


def test_rate_of_small_p_values_is_as_stated():
  # Whitened noise that is right has p-values that are uniform: of 40 x 11 (all
  # but the corrected one) about 5 % are below 0.05. If those of a draw were one
  # and the same, the share's standard error would be 3.4 %; they are not.
  values = []
  for seed in range(40):
    noise = np.random.default_rng(seed).normal(size=[4, 1, 500])
    found = noise_theory.p_values(noise, np.eye(4))
    values.extend(v for k, v in found.items() if k != "any two tensors")
  assert len(values) == 40 * 11
  assert np.mean(np.array(values) < 0.05) < 0.1


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
    (lambda z: np.multiply(z, 1.05, z), ["tree"], "variance"),
  ],
)
def test_wrong_noise_raises_an_alarm(change, names, alarm):
  for name in names:
    matrix = _MATRICES[name]
    fresh, _ = _draw(matrix)
    change(fresh)
    assert alarm in noise_theory.alarms(np.tensordot(matrix, fresh, 1), matrix)


@pytest.mark.parametrize("run", _MATRICES)
def test_wrong_strategy_raises_an_alarm_and_sound_noise_none(run):
  _, noise = _draw(_MATRICES[run])
  for stated, matrix in _MATRICES.items():
    assert bool(noise_theory.alarms(noise, matrix)) == (stated != run)


def test_wrong_parameter_raises_an_alarm():
  for matrix, stated in (
    (noise_theory.toeplitz_matrix((1.0, 0.5, -0.375), _ROUNDS), "banded"),
    (noise_theory.blt_matrix(_DECAYS, (0.9 * 0.25, 0.35), _ROUNDS), "blt"),
  ):
    _, noise = _draw(np.linalg.inv(matrix))
    assert "rounds 1 apart" in noise_theory.alarms(noise, _MATRICES[stated])
