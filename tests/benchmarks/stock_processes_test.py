"""The benchmark's linear regression is federated averaging."""

import numpy as np
import pytest

from benchmarks import cases
from benchmarks import stock_processes
from benchmarks import training_rounds
from tff_fedemb import runtime as runtimes


@pytest.mark.slow
def test_linear_regression():
  case = cases.Case(3, 1, 6, cases.LINEAR)
  kernel, bias = np.zeros([13, 1]), np.zeros([1])
  with runtimes.create_runtime() as started:
    state = started.initialize(training_rounds.build_process(case))
    for round_num in range(2):
      client_ids = case.client_ids(round_num)
      state, _ = started.next(state, client_ids)
      # A step's gradient is the mean over a client's rows, and the client
      # weighs as much as it has rows: all count alike.
      rows = [stock_processes.create_rows(int(name)) for name in client_ids]
      x, y = (np.concatenate(parts) for parts in zip(*rows, strict=True))
      rate = stock_processes.CLIENT_LEARNING_RATE * 2.0 / len(x)
      error = x @ kernel + bias - y
      kernel = kernel - rate * x.T @ error
      bias = bias - rate * error.sum(axis=0)
    found = started.structured_state(state).global_model_weights.trainable
  assert len(x) > 9
  for leaf, expected in zip(found, (kernel, bias), strict=True):
    np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-6)
