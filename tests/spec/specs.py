"""Specs of runs, and what a run that was asked for by one leaves."""

import json

from tff_fedemb.algorithms import registry as algorithms
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.participation import min_separation
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib

PARTICIPATION = min_separation.MinSeparation(
  num_users=100, users_per_round=10, min_separation=10
)


def create(task="emnist", *, algorithm="fedemb", mechanism=None, **fields):
  """Returns a spec; a task and an algorithm by name, a mechanism by `kind`."""
  if isinstance(task, str):
    task = task_lib.create_task(task)
  if mechanism is not None:
    options = dict(mechanism)
    mechanism = aggregators.AGGREGATORS.create(options.pop("kind"), **options)
  return spec_lib.RunSpec(
    task=task,
    algorithm=algorithms.ALGORITHMS.create(algorithm),
    mechanism=mechanism,
    **{"participation": PARTICIPATION} | fields,
  )


def write(path, *arguments, **options):
  """Writes `run.json` as training does."""
  values = create(*arguments, **options).to_json()
  (path / "run.json").write_text(json.dumps(values))
