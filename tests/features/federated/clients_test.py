"""Tests of clients' examples."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.features.federated import clients as federated_clients

_RNG = np.random.default_rng(3)
_FEATURES = _RNG.normal(size=[1_700, 3])
_LABELS = _RNG.integers(0, 2**31, size=1_700)
# One of them has more examples than are read at a time.
_USERS = np.array(["b", "a", "d'é\n", "b2", "b", "a"] + ["large"] * 1_694)


def test_clients_have_their_examples_in_order(tmp_path):
  clients = federated_clients.ClientExamples(
    tmp_path, _FEATURES, _LABELS, _USERS
  )
  names = ["a", "b", "b2", "d'é\n", "large"]
  for client_id, name in zip(clients.client_ids, names, strict=True):
    dataset = clients.create_dataset(tf.constant(client_id))
    assert dataset.element_spec["x"].shape == [None, 3]
    batches = list(dataset.as_numpy_iterator())
    own = name == _USERS
    found = np.concatenate([batch["x"] for batch in batches])
    np.testing.assert_array_equal(found, _FEATURES[own].astype(np.float32))
    found = np.concatenate([batch["y"] for batch in batches])
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, _LABELS[own])


@pytest.mark.parametrize("client_id", ["5", "a", "00"])
def test_unknown_clients_fail(tmp_path, client_id):
  clients = federated_clients.ClientExamples(
    tmp_path, _FEATURES, _LABELS, _USERS
  )
  with pytest.raises(tf.errors.NotFoundError):
    list(clients.create_dataset(tf.constant(client_id)))


@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e39])
def test_features_are_finite(tmp_path, number):
  features = _FEATURES.copy()
  features[4, 1] = number
  with pytest.raises(ValueError, match="must be finite numbers"):
    federated_clients.ClientExamples(tmp_path, features, _LABELS, _USERS)
