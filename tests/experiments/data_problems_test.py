"""Tests of what a run says of data that cannot be used."""

import dataclasses

import pandas as pd
import pytest

from experiments import data_problems
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.program import training
from tff_fedemb.runtime import base

_UNREADABLE = "not an image that can be decoded"


@dataclasses.dataclass
class _Task:
  """As much of a task as its problems need."""

  bad_examples: bad_examples.BadExamples
  find_bad_examples: object = None
  warnings: tuple[str, ...] = ()


def _create_task(num_bad=0, **fields):
  bad = bad_examples.BadExamples("skip")
  for number in range(num_bad):
    bad.add(f"train/{number}", "empty")
  return _Task(bad, **fields)


def _find(client_id):
  """Of users a, b and c, the second has two bad records."""
  return {"b": [f"b record {i}: {_UNREADABLE}" for i in (1, 4)]}.get(
    client_id, []
  )


def test_nothing_to_describe():
  assert data_problems.describe(_create_task()) == []


def test_warnings_and_what_was_left_out_are_described():
  task = _create_task(7, warnings=("class 3 is missing.", "one more."))
  assert data_problems.describe(task) == [
    "warning: class 3 is missing.",
    "warning: one more.",
    "left out 7 bad examples: train/0: empty; train/1: empty; train/2: empty;"
    " train/3: empty; train/4: empty; and 2 more.",
  ]


def test_warnings_are_described_alone():
  task = _create_task(warnings=("class 3 is missing.",))
  assert data_problems.describe(task) == ["warning: class 3 is missing."]


def test_bad_examples_of_clients_in_order():
  task = _create_task(find_bad_examples=_find)
  assert data_problems.find_in_clients(task, []) == []
  assert data_problems.find_in_clients(task, ["a", "b", "c", "b"]) == (
    2 * [f"b record 1: {_UNREADABLE}", f"b record 4: {_UNREADABLE}"]
  )
  assert data_problems.find_in_clients(_create_task(), ["b"]) == []


def test_client_with_bad_examples_is_explained_in_one_line():
  error = base.ClientError("b", ValueError("Unknown image file format"))
  with pytest.raises(errors.DataError) as caught:
    data_problems.explain(_create_task(find_bad_examples=_find), error)
  assert str(caught.value) == (
    f"data must be readable, found 2 bad examples: b record 1: {_UNREADABLE};"
    f" b record 4: {_UNREADABLE}. --on_bad_example=skip leaves out what is"
    " bad; the same command goes on from the last whole round once the data"
    " are mended."
  )
  assert caught.value.__cause__ is error


@pytest.mark.parametrize("find", [None, _find])
def test_another_error_is_left_to_the_caller(find):
  error = base.ClientError("a", MemoryError("too large"))
  task = _create_task(find_bad_examples=find)
  assert data_problems.explain(task, error) is None


def _rounds(*num_skipped):
  return pd.DataFrame({training.NUM_SKIPPED_EXAMPLES: num_skipped})


def test_summary_of_fine_data():
  assert data_problems.summarize(_create_task(), _rounds(0, 0)) == {
    "warnings": [],
    "num_bad_examples": 0,
    "bad_examples": [],
    "num_skips_over_rounds": 0,
  }


def test_summary_counts_all_and_lists_the_first():
  task = _create_task(120, warnings=("class 3 is missing.",))
  found = data_problems.summarize(task, _rounds(2.0, 0.0, 3.0))
  assert found == {
    "warnings": ["class 3 is missing."],
    "num_bad_examples": 120,
    "bad_examples": [f"train/{number}: empty" for number in range(100)],
    "num_skips_over_rounds": 5,
  }
  # It goes to a JSON file.
  assert type(found["num_skips_over_rounds"]) is int
