"""Tests of how many clients share a call.

That the loops change no bit is in `in_process_test`, and that clients in a loop
share no variable in `graph_resources_test`.
"""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_fedemb.runtime import client_loops
from tff_fedemb.runtime import computation_graph


@pytest.mark.parametrize(
  ("shape", "expected"),
  [([10], 16), ([400_000], 5), ([25_000_000], 1), ([None], 1)],
)
def test_calls_hold_a_few_updates(shape, expected):
  @tff.tensorflow.computation(tff.TensorType(np.float32, shape))
  def double(values):
    return 2.0 * values

  graph = computation_graph.import_computation("work", double)
  assert client_loops.clients_per_call(graph) == expected
