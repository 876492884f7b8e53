"""What is wrong with a task's data, told where a run meets it."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tasks import task as task_lib
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.program import training
from tff_fedemb.runtime import base

# Of what was left out, in summary.json.
_NUM_LISTED = 100


def describe(task: task_lib.Task) -> list[str]:
  """What to tell before training, a line each."""
  lines = [f"warning: {line}" for line in task.warnings]
  left_out = task.bad_examples.lines
  if left_out:
    lines.append(f"left out {bad_examples.summarize(left_out)}.")
  return lines


def find_in_clients(
  task: task_lib.Task, client_ids: Sequence[str]
) -> list[str]:
  """Lines that name what cannot be used in some virtual clients' data."""
  if task.find_bad_examples is None:
    return []
  return [
    line for client in client_ids for line in task.find_bad_examples(client)
  ]


def explain(task: task_lib.Task, error: base.ClientError) -> None:
  """Says which examples made a client fail.

  Args:
    task: Whose data the client has.
    error: How it failed.

  Raises:
    DataError: If examples of the client cannot be used; otherwise the error is
      another one, and the caller's.
  """
  lines = find_in_clients(task, [error.client_id])
  if lines:
    raise errors.DataError(
      f"data must be readable, found {bad_examples.summarize(lines)}."
      " --on_bad_example=skip leaves out what is bad; the same command goes"
      " on from the last whole round once the data are mended."
    ) from error


def summarize(task: task_lib.Task, rounds: pd.DataFrame) -> dict[str, Any]:
  """What was left out of a run, for its summary.

  Args:
    task: The run's.
    rounds: Its metrics, a row a round.

  Returns:
    JSON values by name.
  """
  return {
    "warnings": list(task.warnings),
    "num_bad_examples": len(task.bad_examples),
    "bad_examples": list(task.bad_examples.lines[:_NUM_LISTED]),
    # An example counts in every round that has met it.
    "num_skips_over_rounds": int(rounds[training.NUM_SKIPPED_EXAMPLES].sum()),
  }
