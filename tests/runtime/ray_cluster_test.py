"""Tests of a cluster of several machines: nodes of one, joined by address."""

import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime
from tff_fedemb.runtime import ray_cluster
from tff_fedemb.runtime import ray_map

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
internal_api = pytest.importorskip("ray._private.internal_api")

_MODEL_SIZE = 1_000_000
_MODEL_BYTES = 4 * _MODEL_SIZE
_NUM_CLIENTS = 30
# A client multiplies matrices so often, which takes half a second.
_MULTIPLICATIONS = 150


def _build_process() -> tff.templates.IterativeProcess:
  """A large model that clients are sent; what they send is one number.

  The order of the sum matters to it.
  """

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(
      tff.tensorflow.computation(lambda: tf.zeros([_MODEL_SIZE])), tff.SERVER
    )

  model_type = tff.TensorType(np.float32, [_MODEL_SIZE])

  @tff.tensorflow.computation(np.str_, model_type)
  def work(client_id, model):
    # Long enough that no machine does the work of all before others begin.
    ones = tf.ones([400, 400]) + model[0]
    product = tf.while_loop(
      lambda matrix: tf.constant(True),
      lambda matrix: [tf.linalg.matmul(matrix, ones) / 400.0],
      [ones],
      maximum_iterations=_MULTIPLICATIONS,
    )[0]
    nothing = tf.minimum(tf.abs(product[0, 0]), 0.0)
    number = tf.strings.to_number(client_id)
    return number / 3.0 + model[0] / 7.0 + nothing

  @tff.tensorflow.computation(model_type, np.float32)
  def update(model, total):
    return model + total

  @tff.federated_computation(
    tff.FederatedType(model_type, tff.SERVER),
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def next_round(model, client_ids):
    updates = tff.federated_map(
      work, (client_ids, tff.federated_broadcast(model))
    )
    total = tff.federated_sum(updates)
    return tff.federated_map(update, (model, total)), total

  return tff.templates.IterativeProcess(initialize, next_round)


@pytest.fixture
def cluster():
  """A head with one core and two more nodes with as many."""
  ray_cluster.import_ray()
  started = cluster_utils.Cluster(
    initialize_head=True,
    head_node_args={"num_cpus": 1, "include_dashboard": False},
  )
  for _ in range(2):
    started.add_node(num_cpus=1)
  yield started
  ray.shutdown()
  started.shutdown()


def _bytes_written(nodes):
  """Bytes that were ever written into the object store of each node."""
  return [
    internal_api.node_stats(
      node.node_ip_address, node.node_manager_port, include_memory_info=False
    ).store_stats.cumulative_created_bytes
    for node in nodes
  ]


@pytest.mark.slow
def test_machines_are_sent_the_model_once_a_round_and_come_and_go(
  cluster, monkeypatch
):
  process = _build_process()
  client_ids = [str(1.3**i) for i in range(_NUM_CLIENTS)]
  options = {"ray_address": cluster.address, "ray_clients_per_chunk": 1}
  nodes = [cluster.head_node, *cluster.worker_nodes]
  found = []
  with runtime.create_runtime("ray", **options) as started:
    state = started.initialize(process)
    for round_num in range(5):
      if round_num == 3:
        # The program is connected to one of them.
        connected = ray._private.worker._global_node.raylet_socket_name
        removed = next(
          node
          for node in cluster.worker_nodes
          if node.raylet_socket_name != connected
        )
        nodes.remove(removed)
        _remove_in_round(monkeypatch, cluster, removed)
      before = _bytes_written(nodes)
      state, total = started.next(state, client_ids)
      found.append(total)
      # However many chunks a machine runs, whose results are small. After a
      # death, another may have looked there for the model, and had no part.
      least = _MODEL_BYTES if round_num < 3 else 0
      for start, end in zip(before, _bytes_written(nodes), strict=True):
        assert least <= end - start < 1.01 * _MODEL_BYTES
    assert len(cluster.worker_nodes) == 1
    added = cluster.add_node(num_cpus=1)
    deadline = time.monotonic() + 300.0
    # It is sent the model as soon as it has chunks.
    while _bytes_written([added])[0] < _MODEL_BYTES:
      assert time.monotonic() < deadline
      state, total = started.next(state, client_ids)
      found.append(total)
  expected = []
  with runtime.create_runtime() as started:
    state = started.initialize(process)
    for _ in found:
      state, total = started.next(state, client_ids)
      expected.append(total)
  # One client a chunk: the sums are those of one process, bit for bit.
  np.testing.assert_array_equal(found, expected)


def _remove_in_round(monkeypatch, cluster, node):
  """Kills a node as soon as a chunk of the next round has come back."""
  fetch = ray_map.fetch

  def fetch_and_remove(*arguments, **options):
    results = fetch(*arguments, **options)
    if node in cluster.worker_nodes:
      cluster.remove_node(node, allow_graceful=False)
    return results

  monkeypatch.setattr(ray_map, "fetch", fetch_and_remove)
