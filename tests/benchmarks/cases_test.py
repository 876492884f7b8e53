"""Tests of the ratios and bounds of the benchmark."""

import dataclasses
import re
from unittest import mock

from benchmarks import cases
from benchmarks import results

_LENET = "lenet_10x20x20"


def test_goals_are_of_cases_that_there_are():
  goals = results.read_goals()
  assert len(goals) == 34
  for name in {*goals.case, *goals.other_case} - {""}:
    assert re.sub("_(bfloat16_math|mixed_bfloat16)$", "", name) in cases.CASES


def test_groups_are_of_cases_that_there_are_and_can_be_selected():
  config = cases.TrainingBenchmarkConfig(output_json="f.json")
  with mock.patch.object(cases.importlib.util, "find_spec"):
    groups = cases.select_groups(config)
  names = {
    command[4]
    for group in groups
    for entry, command in group.commands.items()
    if entry[1] != cases.PFL_RESEARCH
  }
  assert names == set(cases.CASES)
  few = cases.select_groups(
    cases.TrainingBenchmarkConfig(
      output_json="f.json", cases=("lenet_10x2x16",)
    )
  )
  assert [[entry[1] for entry in group.commands] for group in few] == [
    ["in_process"],
    ["bare", "tff"],
  ]


def test_ray_is_measured_where_it_is_or_if_it_is_asked_for():
  def count(prefixes):
    config = cases.TrainingBenchmarkConfig(output_json="f", cases=prefixes)
    groups = cases.select_groups(config)
    on_ray = [g for g in groups if any(r == "ray" for _, r in g.commands)]
    return len(groups), len(on_ray)

  with mock.patch.object(cases.importlib.util, "find_spec", return_value=None):
    number, on_ray = count(())
    assert on_ray == 0
    assert count(("ray",)) == (4, 4)
  with mock.patch.object(cases.importlib.util, "find_spec"):
    assert count(()) == (number + 4, 4)


def test_another_framework_does_the_work_of_the_case():
  config = cases.TrainingBenchmarkConfig(output_json="f.json")
  with mock.patch.object(cases.subprocess, "run"):
    groups = cases.select_groups(
      dataclasses.replace(config, pfl_python="/some/python")
    )
  sizes = {
    entry: (command[0], *command[-8:])
    for group in groups
    for entry, command in group.commands.items()
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
