"""Tests of the cases of the benchmark."""

import json
from unittest import mock

import pytest

from benchmarks import cases
from benchmarks import results
from tff_fedemb import errors


def test_goals_are_of_cases_that_there_are():
  goals = results.read_goals()
  for name in {*goals.case, *goals.other_case} - {""}:
    assert name in cases.CASES


def _select(*prefixes, **options):
  """Commands by case and runtime, group by group."""
  return cases.select_groups(
    results.BenchmarkConfig(output_json="f.json", cases=prefixes, **options)
  )


@pytest.mark.parametrize("found", [None, "installed"])
def test_what_is_missing_is_measured_if_it_is_asked_for(found):
  with (
    mock.patch.object(cases.importlib.util, "find_spec", return_value=found),
    mock.patch.object(
      cases.precision_lib, "has_bfloat16", return_value=bool(found)
    ),
  ):
    names = {name for group in _select() for name, _ in group}
    assert names == {
      name
      for name in cases.CASES
      if found or not ("ray_" in name or "bfloat16" in name)
    }
    assert [len(group) for group in _select("ray")] == [2] * 4


def test_another_framework_does_the_work_of_the_case():
  groups = _select(pfl_python="/some/python")
  commands = {
    case: command
    for group in groups
    for (case, runtime), command in group.items()
    if runtime == cases.PFL_RESEARCH
  }
  assert len(commands) == 4
  for name, (python, *_, module, case) in commands.items():
    assert (python, module) == ("/some/python", "benchmarks.pfl_round")
    assert cases.Case(**json.loads(case)).steps == cases.CASES[name].steps


def test_names_cases_that_there_are():
  with pytest.raises(errors.FieldError, match=r"lenet_10x20x20.*found 'vgg'"):
    _select("lenet", "vgg")
