"""Tests of what `--smoke` stands for."""

import pathlib
import re

import pytest

from experiments import smoke
from tasks import registry as tasks
from tasks.synthetic import registry as synthetic

_FLAGFILES = pathlib.Path("binaries/flagfiles")
_BENCHMARKS = ("emnist", "gld", "inaturalist", "digiface")
_ALGORITHMS = ("fedemb", "fedavg", "ftrl", "centralized")


def _names(arguments):
  return [pathlib.Path(a.partition("=")[2]).as_posix() for a in arguments]


def test_without_it_nothing_changes():
  arguments = ["--flagfile=a.flags", "--rounds=3"]
  assert smoke.expand(arguments) == arguments


@pytest.mark.parametrize(
  "arguments",
  [
    ["--flagfile=x/gld_fedemb.flags"],
    ["--flagfile", "x/gld_fedemb.flags"],
    ["--smoke", "--flagfile=x/gld_fedemb.flags"],
  ],
)
def test_its_flags_are_right_behind_the_flagfile(arguments):
  later = ["--rounds=3", "-smoke=true"]
  expanded = smoke.expand(["--seed=1", *arguments, *later])
  assert expanded[: len(arguments) + 1] == ["--seed=1", *arguments]
  assert expanded[-2:] == later
  inserted = expanded[len(arguments) + 1 : -2]
  assert [name.split("/")[-1] for name in _names(inserted)] == [
    "gld.flags",
    "gld_fedemb.flags",
  ]
  for name in _names(inserted):
    assert pathlib.Path(name).is_file()


@pytest.mark.parametrize("arguments", [[], ["--flagfile=x/omniglot.flags"]])
def test_another_flagfile_is_refused(arguments):
  with pytest.raises(ValueError, match="smoke must be given with --flagfile"):
    smoke.expand([*arguments, "--smoke"])


@pytest.mark.parametrize("benchmark", _BENCHMARKS)
@pytest.mark.parametrize("algorithm", _ALGORITHMS)
def test_every_benchmark_and_algorithm_has_both_flagfiles(benchmark, algorithm):
  name = f"{benchmark}_{algorithm}.flags"
  flags = (_FLAGFILES / name).read_text()
  assert re.findall(r"^--task=(.*)$", flags, re.MULTILINE) == [benchmark]
  assert (_FLAGFILES / "smoke" / name).is_file()
  assert benchmark in tasks.TASKS
  assert benchmark in synthetic.WRITERS


def test_smoke_data_of_an_unknown_task_are_refused(tmp_path):
  with pytest.raises(ValueError, match=r"task must be one of .*'omniglot'"):
    smoke.prepare_data("omniglot", str(tmp_path))
