"""A small trace of participation, for tests."""

import numpy as np

from tff_fedemb.data import participation_trace


def group(*groups):
  """The virtual clients of a round."""
  return [np.array(group) for group in groups]


def write(path, num_users, rounds):
  """Records rounds in a new trace."""
  with participation_trace.TraceWriter(path, num_users) as writer:
    for r, clients in enumerate(rounds):
      writer.record(r, clients)


NUM_USERS = 100
ROUNDS = [
  group([5, 3], [99]),
  [],
  group([0], [3], [98]),
  group([3, 70, 1]),
]
