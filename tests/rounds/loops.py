"""Training loops for tests, without a process unless one is given."""

import contextlib
import functools

from tff_fedemb.data import population
from tff_fedemb.participation import participation_trace
from tff_fedemb.records import run_directory
from tff_fedemb.records import sampling_key
from tff_fedemb.rounds import loop


def create(directory, runtime, *, trace, config, **others):
  """Creates the loop of a run in a directory; `others` are its fields."""
  fields = {
    "process": None,
    "evaluate_fn": lambda weights: {},
    "say": lambda line: None,
    **others,
  }
  return loop.TrainingLoop(
    directory=directory,
    runtime=runtime,
    users=population.Population(trace.num_users),
    trace=trace,
    config=loop.TrainingConfig(**config),
    **fields,
  )


@contextlib.contextmanager
def start(directory, planned, runtime, **others):
  """Starts the loop of a run whose users are drawn from its key."""
  claim = planned.participation
  with participation_trace.TraceWriter(
    directory / run_directory.TRACE, claim.num_users
  ) as trace:
    key = sampling_key.read_or_create(
      directory / run_directory.CHECKPOINTS, is_new=not trace.num_rounds
    )
    draw = functools.partial(claim.sample, key=key)
    started = create(directory, runtime, trace=trace, draw=draw, **others)
    started.start(lambda weights: weights)
    yield started
