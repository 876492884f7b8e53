"""Tests of `fe.train` where a program has more to do than train."""

import asyncio

import pytest

from tests.training import tiny_specs
import tff_fedemb as fe


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
