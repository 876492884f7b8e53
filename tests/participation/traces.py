"""A small trace of participation, for tests."""

import numpy as np

from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace


def group(*groups):
  """The virtual clients of a round."""
  return [np.array(group) for group in groups]


def write(path, num_users, rounds):
  """Records rounds in a new trace."""
  with participation_trace.TraceWriter(path, num_users) as writer:
    for r, clients in enumerate(rounds):
      writer.record(r, clients)


def check(claim, rounds):
  """Checks a claim against the virtual clients of each round of a run."""
  recorded = (
    participation_trace.RecordedRound.of(number, clients)
    for number, clients in enumerate(rounds)
  )
  observed = participation_check.observe(claim.num_users, recorded)
  claim.check_trace(observed, rounds=len(rounds))


NUM_USERS = 100
ROUNDS = [group([5, 3], [99]), [], group([0], [3], [98]), group([3, 70, 1])]
