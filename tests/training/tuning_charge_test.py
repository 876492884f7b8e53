"""Tests of what a tuning and its copies cost a budget."""

import dataclasses
import json
import os
import shutil

import pytest

from tests.training import tunings
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning
from tff_fedemb.participation import poisson
from tff_fedemb.planning import budget
from tff_fedemb.records import run_directory
from tff_fedemb.training import tuning_charge

_USERS = 10_000
_TRIAL = ledger_lib.Ledger(
  poisson.Poisson(_USERS, 100), delta=1e-6, accountants=("rdp",)
).with_rounds(composition.Noise(2.0), 10)
_OPTIONS = {
  "run_id": "1",
  "users": "digest of the users",
  "selection": tuning.RepeatAndSelect(10, 1),
}


@pytest.fixture(name="path")
def _path(tmp_path):
  return _write_budget(tmp_path, 1e9, _USERS)


def _write_budget(tmp_path, epsilon, num_users):
  path = tmp_path / "budget.json"
  values = {"epsilon": epsilon, "delta": 1e-6, "num_users": num_users}
  path.write_text(json.dumps(values))
  return os.fspath(path)


def _open(path, run_dir):
  directory = run_directory.RunDirectory(run_dir, {})
  run_directory.make_private(run_dir / "trials")
  return tuning_charge.TuningCharge(path, directory, _TRIAL, _OPTIONS)


def _goes_on(charge):
  charge.write()
  charge.begin_trial()
  charge.begin_trial()
  charge.end()
  charge.directory.close()


def test_a_tuning_that_goes_on_is_charged_once(tmp_path, path):
  killed = _open(path, tmp_path / "a")
  killed.write()
  spent = budget.read(path).spent
  killed.begin_trial()
  killed.directory.close()
  _goes_on(_open(path, tmp_path / "a"))
  # It is told once more, and runs no trial.
  charge = _open(path, tmp_path / "a")
  charge.write()
  charge.end()
  found = budget.read(path)
  assert (len(found.charges), found.spent) == (1, spent)
  # As many marks as a program leaves, whatever the number of trials.
  assert len(found.charges[0].lines[0].split()) == 3


@pytest.mark.parametrize("is_first_to_end", [False, True])
def test_a_copy_is_charged_beside_the_tuning(tmp_path, path, is_first_to_end):
  one = _open(path, tmp_path / "a")
  one.write()
  spent = budget.read(path).spent
  one.begin_trial()
  shutil.copytree(tmp_path / "a", tmp_path / "b")
  if is_first_to_end:
    one.end()
  _goes_on(_open(path, tmp_path / "b"))
  if not is_first_to_end:
    one.end()
  both = budget.read(path)
  assert len(both.charges) == 2
  assert both.spent > spent


@pytest.mark.slow
def test_a_copy_that_would_overspend_releases_nothing(tmp_path, monkeypatch):
  task = dataclasses.replace(tunings.SPEC.task, held_out_users=True)
  spec = dataclasses.replace(tunings.SPEC, task=task)
  monkeypatch.setattr(tunings, "SPEC", spec)
  path = _write_budget(tmp_path, 1e9, 2)
  first, copy = (tunings.Tuning(tmp_path / name) for name in "ab")
  rate = tunings.INTERRUPTED
  with pytest.raises(KeyboardInterrupt):
    first.run([rate], 3, privacy_budget=path)
  shutil.copytree(first.path, copy.path)
  monkeypatch.delitem(tunings.ERRORS, rate)
  first.run([rate], privacy_budget=path)
  assert (first.path / run_directory.TUNING).exists()
  values = json.loads((tmp_path / "budget.json").read_text())
  values["epsilon"] = budget.read(path).spent
  (tmp_path / "budget.json").write_text(json.dumps(values))
  with pytest.raises(errors.FieldError, match=r"have enough left .* A copy of"):
    copy.run([rate], privacy_budget=path)
  assert not (copy.path / run_directory.TUNING).exists()
