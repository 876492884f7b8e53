"""Tests of `fe.train` where a program has more to do than train."""

import asyncio
import shutil

import pytest

from tests.training import tiny_specs
import tff_fedemb as fe
from tff_fedemb.report import account


@pytest.mark.slow
def test_trains_where_an_event_loop_runs(tmp_path):
  async def program():
    # As a cell of a notebook does, and as a server would.
    first = fe.train(tiny_specs.create(), run_dir=tmp_path / "run")
    again = await asyncio.to_thread(
      fe.train, tiny_specs.create(), run_dir=tmp_path / "run"
    )
    return first, again

  first, again = asyncio.run(program())
  assert first.recall_at_far(0.1) == again.recall_at_far(0.1) >= 0


@pytest.mark.slow
def test_a_complete_run_exports_only_to_where_it_can(tmp_path):
  def train(path):
    return fe.train(
      tiny_specs.create(),
      run_dir=tmp_path / "run",
      export_backbone=path and str(tmp_path / path),
    )

  train(None)
  # A lost model is written again, as it was.
  weights = tmp_path / "run/release/saved_model/variables"
  before = {path.name: path.read_bytes() for path in weights.iterdir()}
  shutil.rmtree(weights)
  train(None)
  after = {path.name: path.read_bytes() for path in weights.iterdir()}
  assert after == before
  account.check_release(tmp_path / "run")
  with pytest.raises(fe.FieldError, match="export_backbone must be a path wh"):
    train("none/backbone")
  assert not (tmp_path / "none").exists()
  for _ in range(2):
    # The second time, it is there.
    train("backbone")
  assert (tmp_path / "backbone/saved_model.pb").exists()
