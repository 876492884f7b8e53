"""Rounds of one process on two runtimes, and whether they are the same."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_fedemb import runtime
from tff_fedemb.runtime import base

# Those of before a round, which has its metrics, and those after it.
History = list[tuple[Any, Any]]


def _run(started, process, rounds, start) -> History:
  """States, the first of them without metrics, in TFF's structures."""
  state = started.initialize(process)
  if start is not None:
    state = started.load_state(start)
  found = [(started.structured_state(state), ())]
  for client_ids in rounds:
    state, metrics = started.next(state, client_ids)
    found.append((started.structured_state(state), metrics))
  return found


def compare(
  process: tff.templates.IterativeProcess,
  reference: base.Runtime,
  rounds: Sequence[Sequence[str]],
  *,
  same_start: bool = False,
  tolerance: float = 1e-5,
) -> History:
  """Compares the rounds of two runtimes; returns what `in_process` did.

  Containers, types and shapes must be the same.

  Args:
    process: What to run.
    reference: TFF's runtime.
    rounds: The clients of each round.
    same_start: Whether both begin with one state: some processes draw it.
    tolerance: Tolerance of the numbers, absolute and relative; 0 for the same
      bits.
  """
  with runtime.create_runtime(concurrent_clients=2) as started:
    found = _run(started, process, rounds, None)
  expected = _run(
    reference, process, rounds, found[0][0] if same_start else None
  )
  # The part that one runtime took over from the other is the same.
  pairs = [history[int(same_start) :] for history in (found, expected)]
  tree.assert_same_structure(*pairs, check_types=True)
  for (path, one), (_, other) in zip(
    *map(tree.flatten_with_path, pairs), strict=True
  ):
    assert type(one) is type(other), path
    # A scalar string comes as `bytes`.
    assert np.asarray(one).dtype == np.asarray(other).dtype, path
    assert np.shape(one) == np.shape(other), path
    if isinstance(other, bytes):
      assert one == other, path
    else:
      np.testing.assert_allclose(
        one, other, rtol=tolerance, atol=tolerance, err_msg=str(path)
      )
  return found
