"""Tests of which devices clients run on, with processors in place of GPUs."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime import builders
from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import base
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session


@tff.tensorflow.computation(np.str_)
def _work(client_id):
  """The sum 0 + 1 + 2 + 3 of multiples of the client, doubled until it is big.

  It has what clients have: strings, data sets, functions, loops, variables.
  """
  number = tf.strings.to_number(client_id)
  dataset = tf.data.Dataset.range(4).map(
    lambda x: tf.cast(x, tf.float32) * number
  )

  @tf.function
  def _double(value):
    while tf.reduce_sum(value) < 100.0:
      value = tf.linalg.matmul(value, [[2.0]])
    return value

  total = dataset.batch(3).reduce(0.0, lambda x, y: x + tf.reduce_sum(y))
  variable = tf.Variable([[0.0]])
  with tf.control_dependencies([variable.assign([[total]])]):
    return tf.reshape(_double(variable.read_value()), [])


# 6 x 3 x 2 x 2 x 2 = 144 is the first that is not below 100.
_RESULT_OF_CLIENT_3 = 144.0


@pytest.fixture
def used(monkeypatch):
  """Opens sessions on three processors; operations by session and device."""
  operations_by_session = []

  class _TracedSession(tf.compat.v1.Session):
    def __init__(self, *, graph, config):
      config.device_count["CPU"] = 3
      super().__init__(graph=graph, config=config)
      self._operations = collections.defaultdict(set)
      operations_by_session.append(self._operations)

    def run(self, fetches, feed_dict=None):
      metadata = tf.compat.v1.RunMetadata()
      result = super().run(
        fetches,
        feed_dict,
        options=tf.compat.v1.RunOptions(
          trace_level=tf.compat.v1.RunOptions.SOFTWARE_TRACE
        ),
        run_metadata=metadata,
      )
      for stats in metadata.step_stats.dev_stats:
        device = stats.device.rpartition("/device:")[2]
        for node in stats.node_stats:
          # 'name = Kind(inputs)', or nothing for what only begins a graph.
          kind = node.timeline_label.rpartition(" = ")[2].partition("(")[0]
          # Feeds and fetches pass through the first processor.
          if kind not in ("", "NoOp", "_Arg", "_Retval", "_Send", "_Recv"):
            self._operations[device].add(kind)
      return result

  monkeypatch.setattr(tf.compat.v1, "Session", _TracedSession)
  return operations_by_session


@pytest.mark.parametrize(
  ("device", "expected"),
  [
    ("", "CPU:0"),
    ("/device:CPU:1", "CPU:1"),
    # One that is not there, or cannot, is replaced.
    ("/device:GPU:1", "CPU:0"),
  ],
)
def test_everything_runs_on_the_device(used, device, expected):
  graph = computation_graph.import_computation("work", _work, device=device)
  session = graph_session.SessionPool([graph], num_threads=1)
  assert session(["3"]) == [_RESULT_OF_CLIENT_3]
  session.close()
  (operations,) = used
  assert set(operations) == {expected}
  # The loop inside of the function, and what is outside of it.
  assert operations[expected] >= {"Merge", "MakeIterator", "StringToNumber"}
  assert any("MatMul" in kind for kind in operations[expected])


def test_clients_are_bound_and_the_server_is_not(used):
  with runtime.create_runtime(concurrent_clients=2) as started:
    # One more than there are clients is of no use.
    started._client_devices = [f"/device:CPU:{index}" for index in (1, 2, 0)]
    state = started.initialize(builders.build_sums(_work))
    # Until both threads have been at work at once.
    for _ in range(100):
      _, total = started.next(state, ["3"] * 8)
      assert total == 8 * _RESULT_OF_CLIENT_3
      devices = collections.Counter(" ".join(each) for each in used)
      if devices["CPU:2"]:
        break
  # Preparing has nothing to do.
  assert set(devices) <= {"CPU:0", "CPU:1", "CPU:2", ""}
  assert devices["CPU:1"] == devices["CPU:2"] == 1


@pytest.mark.parametrize(
  ("num_gpus", "asked", "clients", "threads", "bound"),
  [
    (0, None, 4, 1, [""]),
    # Cores without a client of their own work for the others.
    (0, 1, 1, 4, [""]),
    (2, 5, 5, 1, ["/device:GPU:0", "/device:GPU:1"]),
  ],
)
def test_one_client_per_gpu_or_else_per_core(
  monkeypatch, num_gpus, asked, clients, threads, bound
):
  gpus = ["a GPU"] * num_gpus
  monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: gpus)
  monkeypatch.setattr(base, "count_cores", lambda: 4)
  started = runtime.create_runtime(concurrent_clients=asked)
  assert started.concurrent_clients == clients
  assert started._threads_per_client == threads
  assert started._client_devices == bound


def test_a_gpu_that_must_be_there(monkeypatch):
  monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
  assert runtime.RuntimeConfig(require_gpu=True).require_gpu
  with pytest.raises(errors.FieldError, match="runtime in_process"):
    runtime.RuntimeConfig(require_gpu=True, runtime="tff")
  monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
  with pytest.raises(errors.FieldError, match=r"^require_gpu .*found none"):
    runtime.RuntimeConfig(require_gpu=True)
