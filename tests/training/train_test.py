"""Tests of whole runs where a program has more to do than train."""

import asyncio
import dataclasses
import json

import numpy as np
import pytest

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


def _create_spoiling_spec(**fields):
  """Steps along one direction alone, in which four classes do not differ."""
  rng = np.random.default_rng(1)
  alike = np.ones([24, 6]) + 0.01 * rng.normal(size=[24, 6])
  test = 8.0 * np.eye(6)[_LABELS] + rng.normal(size=[24, 6])
  task = fe.ArrayTask(
    alike.astype(np.float32),
    _LABELS,
    _USERS,
    test=(test.astype(np.float32), _LABELS),
  )
  return dataclasses.replace(
    _create_spec(),
    task=task,
    server_optimizer=fe.SgdMomentum(learning_rate=1e4),
    rounds=3,
    evaluate_every=1,
    sampling_seed=1,
    **fields,
  )


@pytest.mark.slow
def test_hands_over_the_start_where_training_spoils_it(tmp_path, capfd):
  best = fe.train(_create_spoiling_spec(), run_dir=tmp_path / "best")
  spec = _create_spoiling_spec(keep="last")
  last = fe.train(spec, run_dir=tmp_path / "last")
  kept = best.summary["kept"]
  assert kept["round"] == 0
  # The same rounds ran, and what they led to is told, not handed over.
  assert kept["last"]["test"] == last.summary["recall_at_far"]
  assert (
    best.summary["recall_at_far"] == (best.summary["recall_at_far_untrained"])
  )
  assert best.recall_at_far(0.1) > last.recall_at_far(0.1)
  card = tmp_path / "best/release/saved_model/assets.extra/model_card.json"
  assert json.loads(card.read_text())["training"]["kept"]["round"] == 0
  said = capfd.readouterr()
  assert "Kept: the start, best" in said.out + said.err


def test_protected_users_choose_nothing(tmp_path):
  noise = fe.Gaussian(noise_multiplier=1.0, clip_norm=0.3)
  spec = dataclasses.replace(_create_spec(), mechanism=noise, keep="best")
  with pytest.raises(fe.FieldError, match="keep must be last where images"):
    fe.train(spec, run_dir=tmp_path / "run")
  assert not (tmp_path / "run").exists()
