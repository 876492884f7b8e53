"""Test of a cluster of several machines: nodes of one, joined by address."""

import numpy as np
import pytest

from tests.runtime import ray_trouble
from tff_fedemb import runtime
from tff_fedemb.runtime import ray_cluster

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

# One client a chunk, so that the sums are those of one process.
_CLIENT_IDS = [str(0.1 * 1.3**i) for i in range(30)]


@pytest.fixture(name="cluster")
def _cluster():
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


@pytest.mark.slow
def test_no_bit_depends_on_machines_that_come_and_go(
  cluster, process, monkeypatch
):
  rounds = [_CLIENT_IDS] * 3
  fetch, fetched = ray_cluster.Cluster.fetch, []

  def fetch_and_change(*arguments, **options):
    results = fetch(*arguments, **options)
    fetched.append(results)
    if len(fetched) == 5:
      # The program is connected to one of them.
      connected = ray._private.worker._global_node.raylet_socket_name
      removed = next(
        node
        for node in cluster.worker_nodes
        if node.raylet_socket_name != connected
      )
      cluster.remove_node(removed, allow_graceful=False)
    elif len(fetched) == 40:
      cluster.add_node(num_cpus=1)
    return results

  monkeypatch.setattr(ray_cluster.Cluster, "fetch", fetch_and_change)
  with runtime.create_runtime(
    "ray", ray_address=cluster.address, ray_clients_per_chunk=1
  ) as started:
    found = ray_trouble.run(started, process, rounds)
    # The head takes a while to notice a death.
    ray_trouble.wait_until(lambda: started._cluster.count_workers() == 3)
  with runtime.create_runtime() as started:
    expected = ray_trouble.run(started, process, rounds)
  np.testing.assert_equal(found, expected)
