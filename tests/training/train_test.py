"""Tests of whole runs where a program has more to do than train."""

import asyncio

import numpy as np

import tff_fedemb as fe

_LABELS, _USERS = np.arange(24) % 4, np.arange(24) // 3


def _create_spec():
  vectors = np.random.default_rng(0).normal(size=[24, 6]).astype(np.float32)
  test = vectors[:8], _LABELS[:8]
  return fe.RunSpec(
    task=fe.ArrayTask(vectors, _LABELS, _USERS, test=test),
    algorithm=fe.FedEmb(
      backbone=fe.Backbone(backbone="dense", embedding_dim=4)
    ),
    participation=fe.Poisson(users_per_round=4),
    mechanism=fe.ClipOnly(clip_norm=0.3),
    rounds=1,
  )


def test_trains_where_an_event_loop_runs(tmp_path):
  async def program():
    # As a cell of a notebook does, and as a server would.
    first = fe.train(_create_spec(), run_dir=tmp_path / "run")
    again = await asyncio.to_thread(
      fe.train, _create_spec(), run_dir=tmp_path / "run"
    )
    return first, again

  first, again = asyncio.run(program())
  assert first.recall_at_far(0.1) == again.recall_at_far(0.1) >= 0
