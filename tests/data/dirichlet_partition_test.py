"""Tests of made-up users: their sizes, their classes, and repeated draws."""

import numpy as np
import pytest
from scipy import stats

import tff_fedemb as fe
from tff_fedemb import errors

_LABELS = np.repeat(np.arange(10), [50, 150, *8 * [100]])


def _shares(users, labels=_LABELS):
  """Share of each class among a user's examples, `[users, classes]`."""
  counts = np.zeros([users.max() + 1, 10])
  np.add.at(counts, (users, labels), 1)
  return counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("num_users", [1, 3, 70, 1_000])
def test_sizes_differ_by_one_at_most(num_users):
  users = fe.partition_by_dirichlet(_LABELS, num_users=num_users)
  sizes = np.bincount(users, minlength=num_users)
  assert sizes.sum() == len(_LABELS)
  assert sizes.max() - sizes.min() <= 1


def test_many_alike_or_nearly_one_class_each():
  few = fe.partition_by_dirichlet(_LABELS, num_users=50, alpha=1e-3)
  assert np.median(_shares(few).max(axis=1)) == 1.0
  alike = fe.partition_by_dirichlet(_LABELS, num_users=10, alpha=1e6)
  of_all = np.bincount(_LABELS) / len(_LABELS)
  assert np.abs(_shares(alike) - of_all).max() < 0.15


def test_shares_have_the_variance_of_the_dirichlet_distribution():
  """With few of many examples taken, nothing runs out."""
  labels = np.tile([0, 1], 500_000)
  alpha, size = 3.0, 1_000
  users = fe.partition_by_dirichlet(labels, num_users=1_000, alpha=alpha)
  shares = np.bincount(users, weights=labels)[:300] / size
  # A beta-binomial: Dirichlet's two parts are alpha / 2 each.
  expected = stats.betabinom(size, alpha / 2, alpha / 2).std() / size
  assert np.std(shares) == pytest.approx(expected, rel=0.15)


def test_a_seed_makes_the_users_and_names_are_classes():
  users = fe.partition_by_dirichlet(_LABELS, num_users=9, seed=4)
  names = np.array(list("abcdefghij"))[_LABELS]
  same = fe.partition_by_dirichlet(names, num_users=9, seed=4)
  np.testing.assert_array_equal(users, same)
  other = fe.partition_by_dirichlet(_LABELS, num_users=9, seed=5)
  assert np.any(users != other)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"num_users": 0}, "num_users must be an integer of at least 1"),
    ({"num_users": 1_001}, "num_users must be at most 1,000"),
    ({"alpha": 0}, r"alpha must be in \[0.001, 1e\+06\]"),
    ({"seed": -1}, "seed must be an integer of at least 0"),
    ({"labels": _LABELS / 2}, "labels must be integers or strings"),
    ({"labels": []}, "num_users must be at most 0"),
  ],
)
def test_arguments_out_of_range_are_refused(changes, message):
  values = {"labels": _LABELS, "num_users": 5} | changes
  with pytest.raises(errors.FieldError, match=message):
    fe.partition_by_dirichlet(values.pop("labels"), **values)
