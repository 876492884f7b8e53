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


@pytest.mark.parametrize("bytes_of_file", [1, 48, 2**20])
def test_clients_have_their_examples_of_any_place_in_order(
  tmp_path, monkeypatch, bytes_of_file
):
  monkeypatch.setattr(federated_clients, "_BYTES_OF_FILE", bytes_of_file)
  clients = federated_clients.ClientExamples(
    tmp_path, _FEATURES, _LABELS, _USERS
  )
  assert clients.client_ids == ["a", "b", "b2", "d'é\n", "large"]
  num_files = {1: 5, 48: 3, 2**20: 1}[bytes_of_file]
  assert len(list(tmp_path.iterdir())) == num_files
  for client_id in clients.client_ids:
    dataset = clients.create_dataset(tf.constant(client_id))
    assert dataset.element_spec["x"].shape == [None, 3]
    batches = list(dataset.as_numpy_iterator())
    own = client_id == _USERS
    found = np.concatenate([batch["x"] for batch in batches])
    np.testing.assert_array_equal(found, _FEATURES[own].astype(np.float32))
    found = np.concatenate([batch["y"] for batch in batches])
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, _LABELS[own])


@pytest.mark.parametrize("client_id", ["c", "", "a ", "A"])
def test_unknown_clients_fail(tmp_path, client_id):
  clients = federated_clients.ClientExamples(
    tmp_path, _FEATURES[:6], _LABELS[:6], _USERS[:6]
  )
  with pytest.raises(tf.errors.InvalidArgumentError, match="client_id must be"):
    list(clients.create_dataset(tf.constant(client_id)))


@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e39])
def test_features_are_finite(tmp_path, number):
  features = _FEATURES.copy()
  features[4, 1] = number
  with pytest.raises(ValueError, match="must be finite numbers"):
    federated_clients.ClientExamples(tmp_path, features, _LABELS, _USERS)


@pytest.mark.parametrize(
  ("users", "expected"),
  [
    (["b", "a"], ["b", "a"]),
    (np.array(["b", "a"], object), ["b", "a"]),
    (np.array([7, 10], np.int32), ["7", "10"]),
  ],
)
def test_users(users, expected):
  assert federated_clients.check_users(users, 2).tolist() == expected


@pytest.mark.parametrize(
  "users",
  [["a"], ["a", "b", "c"], [["a", "b"]], [0.5, 1.0], ["a", ""], ["a", None]],
)
def test_refuses_users(users):
  with pytest.raises(ValueError, match="users must"):
    federated_clients.check_users(users, 2)
