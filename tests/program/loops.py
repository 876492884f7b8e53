"""Training loops of tests, of no process unless one is given."""

from tff_fedemb.data import population
from tff_fedemb.program import checkpoints
from tff_fedemb.program import metrics
from tff_fedemb.program import training


def create(directory, runtime, *, chain, trace, draw, config, **others):
  """Creates the loop of a run in a directory; others are fields of it."""
  fields = {
    "process": None,
    "evaluate_fn": lambda weights: {},
    "say": lambda line: None,
    **others,
  }
  return training.TrainingLoop(
    runtime=runtime,
    users=population.Population(trace.num_users),
    draw=draw,
    chain=chain,
    trace=trace,
    checkpoints=checkpoints.Checkpoints(directory / "checkpoints"),
    metrics=metrics.MetricsLog(directory),
    config=training.TrainingConfig(**config),
    **fields,
  )
