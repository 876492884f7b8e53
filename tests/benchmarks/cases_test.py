"""Tests of the ratios and bounds of the benchmark."""

import re
from unittest import mock

import pytest

from benchmarks import cases
from benchmarks import results

_LENET = "lenet_10x20x20"
_PRECISIONS = "_(bfloat16_math|mixed_bfloat16)$"


def test_goals_are_of_cases_that_there_are():
  goals = results.read_goals()
  assert len(goals) == 34
  for name in {*goals.case, *goals.other_case} - {""}:
    assert re.sub(_PRECISIONS, "", name) in cases.CASES


def _select(*prefixes, **options):
  """Commands by case and runtime, group by group."""
  config = results.BenchmarkConfig(
    output_json="f.json", cases=prefixes, **options
  )
  return [group.commands for group in cases.select_groups(config)]


@pytest.mark.parametrize("spec", [None, "installed"])
def test_groups_are_of_cases_that_there_are_and_can_be_selected(spec):
  """Ray is measured where it is installed, or if it is asked for."""
  find_spec = {"return_value": spec}
  with mock.patch.object(cases.importlib.util, "find_spec", **find_spec):
    names = {name for group in _select() for name, _ in group}
    names = {re.sub(_PRECISIONS, "", name) for name in names}
    assert names == {n for n in cases.CASES if spec or "ray_" not in n}
    assert [len(group) for group in _select("ray")] == [2] * 4
  found = [
    [runtime for _, runtime in group] for group in _select("lenet_10x2x16")
  ]
  assert found == [["in_process"], ["bare", "tff"]]


def test_another_framework_does_the_work_of_the_case():
  with mock.patch.object(cases.subprocess, "run"):
    groups = _select(pfl_python="/some/python")
  sizes = {
    entry: (command[0], *command[-8:])
    for group in groups
    for entry, command in group.items()
    if entry[1] == cases.PFL_RESEARCH
  }
  pfl = ("/some/python", "benchmarks.pfl_round")
  assert sizes == {
    (name, "pfl_research"): (*pfl, *work.split())
    for name, work in (
      (_LENET, "lenet 10 20 20 36 0.05 gaussian"),
      ("convnet_512x2x16", "convnet 512 2 16 36 0.05 gaussian"),
      ("cifar10_50x5x10", "simple_cnn 50 5 10 10 0.1 none"),
      ("cifar10_50x5x10_gaussian", "simple_cnn 50 5 10 10 0.1 gaussian"),
    )
  }
