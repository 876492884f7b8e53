"""Tests of the EMNIST-like file against SQLite and TensorFlow Federated."""

import collections
import contextlib
import itertools
import os
import re
import sqlite3

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.synthetic import emnist

_NUM_USERS = 4
_SEED = 3


def _rows(path, query="SELECT * FROM examples ORDER BY rowid"):
  with contextlib.closing(sqlite3.connect(path)) as connection:
    return connection.execute(query).fetchall()


def _label(proto):
  features = tf.train.Example.FromString(proto).features.feature
  return features["label"].int64_list.value[0]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  directory = tmp_path_factory.mktemp("emnist")
  return emnist.write_emnist(directory, num_users=_NUM_USERS, seed=_SEED)


def test_tff_loads_its_digits(path):
  train, test = tff.simulation.datasets.emnist.load_data(
    cache_dir=os.path.dirname(path)
  )
  # The element type of the real data.
  expected = collections.OrderedDict(
    label=tf.TensorSpec((), tf.int32),
    pixels=tf.TensorSpec((28, 28), tf.float32),
  )
  assert train.element_type_structure == expected
  assert len(train.client_ids) == _NUM_USERS
  assert train.client_ids == test.client_ids
  assert all(re.fullmatch(r"f\d{4}_\d\d", i) for i in train.client_ids)
  examples = train.create_tf_dataset_from_all_clients().batch(10_000)
  (found,) = examples.as_numpy_iterator()
  assert set(found["label"]) == set(range(10))
  assert found["pixels"].min() >= 0.0
  np.testing.assert_array_equal(found["pixels"].max(axis=(1, 2)), 1.0)


def test_examples_are_counted_and_digits_have_their_splits(path):
  protos = collections.defaultdict(list)
  for split_name, client_id, proto in _rows(path):
    protos[split_name, client_id].append(proto)
  counts = _rows(
    path, "SELECT split_name, client_id, num_examples FROM client_metadata"
  )
  assert len(counts) == _NUM_USERS * 4
  assert len({num for split, _, num in counts if split == "all_train"}) > 2
  assert {(split, client): num for split, client, num in counts} == {
    key: len(some) for key, some in protos.items()
  }
  clients = {client_id for _, client_id in protos}
  for part, client_id in itertools.product(("train", "test"), clients):
    everything = protos[f"all_{part}", client_id]
    digits = [proto for proto in everything if _label(proto) < 10]
    assert digits
    assert protos[f"digits_only_{part}", client_id] == digits


def test_a_writer_is_the_same_whatever_the_number_of_users(path, tmp_path):
  fewer = emnist.write_emnist(tmp_path, num_users=2, seed=_SEED)
  rows = _rows(fewer)
  assert rows == _rows(path)[: len(rows)]
  assert len({client_id for _, client_id, _ in rows}) == 2
