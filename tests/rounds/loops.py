"""Training loops for tests, without a process unless one is given."""

from tff_fedemb.data import population
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
