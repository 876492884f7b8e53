"""Tests of the model that a run keeps, on weights of two numbers."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.records import chains
from tff_fedemb import errors
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import kept_model


def _weights(value):
  return tff.learning.models.ModelWeights(
    (np.full([2], value, np.float32),), (np.float32(value),)
  )


def _offer(kept, chain, number, *recalls, released=None):
  weights = _weights(number)
  if number:
    chain.record_round(number, f"users of {number}", weights)
  named = {str(place): recall for place, recall in enumerate(recalls)}
  kept.offer(number, named, released or weights)


@pytest.fixture(name="chain")
def _create_chain(tmp_path):
  (tmp_path / "checkpoints").mkdir()
  return chains.begin(tmp_path, chains.PLANNED)


def test_keeps_the_best_mean_and_the_later_of_equals(tmp_path, chain):
  kept = kept_model.KeptModel(tmp_path, chain)
  assert kept.best is None
  _offer(kept, chain, 0, 0.25, 0.5)
  assert (kept.best.round, kept.best.recall) == (0, 0.375)
  _offer(kept, chain, 1, 0.0, 0.5)
  assert kept.best.round == 0
  _offer(kept, chain, 2, 0.5, 0.25)
  assert kept.best.round == 2
  kept.save(2)
  # Later rounds run again after a restart, so their models are lost.
  _offer(kept, chain, 3, 1.0)
  assert kept.best.round == 3
  found = kept_model.KeptModel(tmp_path, chain)
  found.restore(2)
  assert (found.best.round, found.best.recall) == (2, 0.375)
  np.testing.assert_array_equal(found.best.weights.trainable[0], [2, 2])
  np.testing.assert_array_equal(found.best.weights.non_trainable[0], 2)
  # There is no checkpoint of round 2, so its best model goes.
  kept.save(3)
  (path,) = (tmp_path / "checkpoints").iterdir()
  assert path.name == "best_3.npz"


def test_refuses_another_start(tmp_path, chain):
  kept = kept_model.KeptModel(tmp_path, chain)
  _offer(kept, chain, 0, 0.5)
  kept.save(0)
  # A program that goes on reads the chain anew.
  again = kept_model.KeptModel(tmp_path, chain_lib.Chain(tmp_path))
  again.restore(0)
  assert again.best.round == 0
  (tmp_path / "other").mkdir()
  other_chain = chains.begin(tmp_path / "other", chains.PLANNED)
  other = kept_model.KeptModel(tmp_path, other_chain)
  _offer(other, other_chain, 0, 1.0, released=_weights(7))
  other.save(0)
  with pytest.raises(errors.FieldError, match="another one of round 0"):
    again.restore(0)


def test_refuses_what_no_round_released(tmp_path, chain):
  kept = kept_model.KeptModel(tmp_path, chain)
  _offer(kept, chain, 1, 0.5, released=_weights(7))
  kept.save(1)
  with pytest.raises(errors.FieldError, match="another one of round 1"):
    kept.restore(1)
  for damaged in (b"PK", b""):
    (tmp_path / "checkpoints" / "best_1.npz").write_bytes(damaged)
    with pytest.raises(errors.FieldError, match="whole files"):
      kept.restore(1)
