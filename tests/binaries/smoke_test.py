"""Tests of what `--smoke` stands for."""

import pytest

from binaries import smoke
from tff_fedemb import errors

_WHOLE, _SMALL = (
  f"binaries/flagfiles/{name}.flags"
  for name in ("gld_fedemb", "smoke/gld_fedemb")
)


def test_without_it_nothing_changes():
  arguments = [f"--flagfile={_WHOLE}", "--rounds=3", "--nosmoke"]
  assert smoke.expand(arguments) == arguments


@pytest.mark.parametrize(
  ("arguments", "expanded"),
  [
    ([f"--flagfile={_SMALL}"], [f"--flagfile={_SMALL}"]),
    (["--flagfile", _WHOLE], ["--flagfile", _SMALL]),
    (["--smoke", f"--flagfile={_WHOLE}"], ["--smoke", f"--flagfile={_SMALL}"]),
  ],
)
def test_small_flagfile_takes_the_place_of_the_whole(arguments, expanded):
  later = ["--rounds=3", "-smoke=true"]
  assert smoke.expand(["--seed=1", *arguments, *later]) == [
    "--seed=1",
    *expanded,
    *later,
  ]


@pytest.mark.parametrize(
  "arguments", [[], ["--flagfile=binaries/flagfiles/omniglot.flags"]]
)
def test_another_flagfile_is_refused(arguments):
  with pytest.raises(errors.FieldError, match="smoke must be given with --fl"):
    smoke.expand([*arguments, "--smoke"])


def test_smoke_data_of_an_unknown_task_are_refused(tmp_path):
  with pytest.raises(errors.FieldError, match=r"task must be one of .*'omnig"):
    smoke.prepare_data("omniglot", str(tmp_path))
