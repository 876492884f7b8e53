"""Tests of what a tuning releases and charges, and what these tell."""

import dataclasses
import json
import os

import numpy as np
import pytest

from tests.records import exported_bytes
from tests.training import tunings
from tff_fedemb import errors
from tff_fedemb.accounting import tuning
from tff_fedemb.planning import budget
from tff_fedemb.records import export
from tff_fedemb.records import model_card
from tff_fedemb.records import run_directory
from tff_fedemb.spec import array_task
from tff_fedemb.training import tuning as tuning_run


class _Exporting(tunings.Tuning):
  """A tuning of one model in all trials, of which one is told to be best."""

  def __init__(self, path, best):
    super().__init__(path)
    self._best = f"{best:03d}"
    self.interrupts = False

  def train(self, spec, *, run_dir, task, is_trial):
    backbone = exported_bytes.create_small()
    if self.interrupts and run_dir.name == self._best:
      raise KeyboardInterrupt
    super().train(spec, run_dir=run_dir, task=task, is_trial=is_trial)
    if run_dir.name != self._best:
      return
    path = run_dir / run_directory.SAVED_MODEL
    card = model_card.read(path / model_card.PATH)
    export.export_backbone(backbone, path, card)
    summary = json.loads((run_dir / "summary.json").read_text())
    validation = summary["evaluation"]["validation"]
    validation["recall_at_far"]["0.001"] = 0.9
    (run_dir / "summary.json").write_text(json.dumps(summary))


@pytest.mark.slow
def test_released_bytes_tell_neither_the_best_nor_the_number(tmp_path):
  released = []
  num_trials = (5, 6, 7, 5, 5)
  for best in range(5):
    run = _Exporting(tmp_path / str(best), best)
    run.interrupts = best == 3
    if run.interrupts:
      with pytest.raises(KeyboardInterrupt):
        run.run([0.1], num_trials[best])
      run.interrupts = False
    run.run([0.1], num_trials[best])
    assert len(run.calls) >= num_trials[best]
    released.append(exported_bytes.read(run.path / "release"))
  assert "saved_model/saved_model.pb" in released[0]
  assert all(each == released[0] for each in released)


def test_trials_have_no_budget_of_their_own(tmp_path):
  spec = dataclasses.replace(tunings.SPEC, privacy_budget="budget.json")
  with pytest.raises(
    errors.FieldError, match="privacy_budget must not be given to the trials"
  ):
    tuning_run.TuningRun(
      tuning_run.TuningConfig(run_dir=tmp_path / "tuning"), spec, {}
    )
  # Whose choice no epsilon accounts for is charged to no budget either.
  config = tuning_run.TuningConfig(
    run_dir=tmp_path / "tuning", privacy_budget="budget.json"
  )
  with pytest.raises(errors.FieldError, match="selection_users must be given"):
    tuning_run.TuningRun(config, tunings.SPEC, {})
  assert not (tmp_path / "tuning").exists()


def test_a_tuning_is_charged_once_whatever_its_number_of_trials(tmp_path):
  users = [f"user_{number}" for number in range(4)]
  task = array_task.ArrayTask(
    np.repeat(tunings.IMAGES, 2, axis=0),
    np.repeat(tunings.LABELS, 2),
    users,
    test=(tunings.IMAGES, tunings.LABELS),
    held_out_users=True,
  )
  spec = dataclasses.replace(tunings.SPEC, task=task)
  path = tmp_path / "budget.json"

  def write(epsilon):
    values = {"epsilon": epsilon, "delta": 1e-4, "num_users": 4}
    path.write_text(json.dumps(values))

  def create(name):
    return tuning_run.TuningRun(
      tuning_run.TuningConfig(
        run_dir=tmp_path / name, mean_trials=10, privacy_budget=os.fspath(path)
      ),
      spec,
      {},
    )

  write(1e-3)
  kept = []
  for _ in range(2):
    with pytest.raises(errors.FieldError, match="privacy_budget must") as error:
      create("a")
    # It does not keep the directory.
    kept.append(error)
  write(1e9)
  create("a")._directory.close()
  found = budget.read(path)
  (charge,) = found.charges
  assert charge.selection == tuning.RepeatAndSelect(10, 1)
  trial = charge.ledger
  assert found.spent == pytest.approx(
    charge.selection.epsilon(dataclasses.replace(trial, delta=1e-4))
  )
  assert "trials" not in str(charge.run_dir)
  assert "a tuning" in found.to_text()
  # The same tuning again is not charged again; another one is.
  create("a")._directory.close()
  assert len(budget.read(path).charges) == 1
  create("b")._directory.close()
  both = budget.read(path)
  assert len(both.charges) == 2
  assert found.spent < both.spent < 2 * found.spent + 1e-9
