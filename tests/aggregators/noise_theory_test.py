"""Tests of what the tests of noise would catch, and of their theory."""

import itertools
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


@pytest.mark.parametrize("name", sorted(_MATRICES))
def test_sound_noise_raises_no_alarm(name):
  _, noise = _draw(_MATRICES[name])
  assert not noise_theory.alarms(noise, _MATRICES[name])


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


@pytest.mark.parametrize("name", sorted(_MATRICES))
@pytest.mark.parametrize("scale", [0.95, 1.05])
def test_wrong_level_raises_an_alarm(name, scale):
  _, noise = _draw(_MATRICES[name])
  assert "variance" in noise_theory.alarms(scale * noise, _MATRICES[name])


def test_wrong_level_of_one_round_raises_an_alarm():
  fresh, _ = _draw(_BLT)
  fresh[9] *= 1.1
  assert "variance in round 9" in noise_theory.alarms(
    np.tensordot(_BLT, fresh, 1), _BLT
  )


@pytest.mark.parametrize("name", sorted(_MATRICES))
def test_reused_noise_raises_an_alarm(name):
  fresh, _ = _draw(_MATRICES[name])
  # In a tree those of leaves that are released as they are.
  fresh[10, 1] = fresh[4, 1]
  assert "any two tensors" in noise_theory.alarms(
    np.tensordot(_MATRICES[name], fresh, 1), _MATRICES[name]
  )


@pytest.mark.parametrize("name", sorted(_MATRICES))
def test_shared_seeds_raise_an_alarm(name):
  # Both tensors from one seed in one round; and a part of it in all rounds.
  fresh, _ = _draw(_MATRICES[name])
  fresh[6, 0] = fresh[6, 1]
  assert "any two tensors" in noise_theory.alarms(
    np.tensordot(_MATRICES[name], fresh, 1), _MATRICES[name]
  )
  # A seed that moves on by one where each round uses two.
  fresh, _ = _draw(_MATRICES[name])
  fresh[1:, 0] = fresh[:-1, 1]
  assert "any two tensors" in noise_theory.alarms(
    np.tensordot(_MATRICES[name], fresh, 1), _MATRICES[name]
  )


def test_neighbours_that_share_raise_an_alarm():
  fresh, _ = _draw(_BLT)
  fresh[:, 0, 1:] += 0.05 * fresh[:, 0, :-1]
  assert "neighbours in tensor 0" in noise_theory.alarms(
    np.tensordot(_BLT, fresh, 1), _BLT
  )


@pytest.mark.parametrize(
  ("stated", "run"), itertools.permutations(sorted(_MATRICES), 2)
)
def test_wrong_strategy_raises_an_alarm(stated, run):
  _, noise = _draw(_MATRICES[run])
  assert noise_theory.alarms(noise, _MATRICES[stated])


def test_wrong_sign_raises_an_alarm():
  flipped = list(_COLUMN)
  flipped[2] = -flipped[2]
  wrong = np.linalg.inv(noise_theory.toeplitz_matrix(flipped, _ROUNDS))
  _, noise = _draw(wrong)
  assert noise_theory.alarms(noise, _MATRICES["banded"])
  wrong = np.linalg.inv(
    noise_theory.blt_matrix(_DECAYS, (_WEIGHTS[0], -_WEIGHTS[1]), _ROUNDS)
  )
  _, noise = _draw(wrong)
  assert noise_theory.alarms(noise, _BLT)


@pytest.mark.parametrize("error", [0.9, 1.1])
def test_wrong_parameter_raises_an_alarm(error):
  wrong = np.linalg.inv(
    noise_theory.blt_matrix(_DECAYS, (error * _WEIGHTS[0], 0.35), _ROUNDS)
  )
  _, noise = _draw(wrong)
  assert "rounds 1 apart" in noise_theory.alarms(noise, _BLT)


def test_wrong_shape_or_mean_raises_an_alarm():
  laplace = np.random.default_rng(1).laplace(
    0.0, math.sqrt(0.5), [_ROUNDS, _NUM_TENSORS, _LENGTH]
  )
  assert "shape of tensor 0" in noise_theory.alarms(laplace, np.eye(_ROUNDS))
  _, noise = _draw(np.eye(_ROUNDS))
  assert "mean of tensor 1" in noise_theory.alarms(
    noise + 0.04, np.eye(_ROUNDS)
  )
