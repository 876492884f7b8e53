"""Tests of what a model says of itself."""

import dataclasses
import json

import numpy as np
import pytest

from tests.evaluation import clusters
from tff_fedemb import errors
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.evaluation import verification
from tff_fedemb.participation import fixed_size
from tff_fedemb.records import model_card


def _result():
  """The result for images that are at most as alike as their classes are."""
  return verification.evaluate_pairs(
    *clusters.draw(12, 4, spread=0.3),
    false_accept_rates=model_card.FALSE_ACCEPT_RATES,
  )


def _card(on_training_users=True, privacy=None):
  return model_card.ModelCard(
    image_shape=(6, 5, 1),
    embedding_dim=8,
    verification=model_card.describe_verification(
      _result(), source="test images", on_training_users=on_training_users
    ),
    privacy=privacy,
    training={"command": "python -m binaries.run_federated --seed=3"},
  )


class TestThresholds:
  def test_as_far_as_the_pairs_allow(self):
    # 48 * 47 / 2 - 12 * 6 = 1,056 pairs of two classes.
    result, found = _result(), _card().verification
    assert found["num_negative_pairs"] == 1_056
    assert list(found["at_far"]) == ["0.01", "0.001"]
    assert list(found["left_out"]) == ["0.0001"]
    assert "1,056 pairs" in found["left_out"]["0.0001"]
    assert found["at_far"]["0.01"]["threshold"] == result.threshold_at_far[0.01]
    assert found["at_far"]["0.01"]["recall"] == result.recall_at_far[0.01]
    assert found["at_far"]["0.01"]["warning"] is None
    assert "1.1 expected" in found["at_far"]["0.001"]["warning"]

  def test_none_where_too_many_embeddings_coincide(self):
    embeddings, labels = clusters.draw(12, 4, spread=0.3)
    # One image of each class is the same: 66 of 1,056 pairs of two classes.
    embeddings[np.unique(labels, return_index=True)[1]] = embeddings[0]
    result = verification.evaluate_pairs(
      embeddings, labels, false_accept_rates=model_card.FALSE_ACCEPT_RATES
    )
    found = model_card.describe_verification(
      result, source="test images", on_training_users=False
    )
    assert not found["at_far"]
    assert "no threshold keeps to the rate" in found["left_out"]["0.01"]

  def test_one_that_is_missing_names_those_that_are_there(self):
    card = _card()
    assert card.threshold(0.001)["recall"] >= 0
    with pytest.raises(errors.FieldError) as error:
      card.threshold(1e-4)
    assert str(error.value).startswith(
      "far must be a rate of which the model has a threshold: 0.01, 0.001,"
      " found 0.0001 (1,056 pairs"
    )
    with pytest.raises(errors.FieldError, match="threshold: none, found"):
      dataclasses.replace(card, verification=None).threshold(0.1)


def test_privacy_is_the_reports_but_for_the_trace():
  report = ledger_lib.Ledger(
    fixed_size.FixedSize(100, 10), delta=1e-3, accountants=("rdp",)
  ).report()
  report = dataclasses.replace(report, participation_checked="who was drawn")
  said = model_card.describe_privacy(report)
  assert said.pop("epsilon") == report.to_json()["epsilon"]
  assert "participation_checked" not in said
  for name in ("delta", "unit", "neighboring_relation", "statement"):
    assert said[name] == getattr(report, name)
  assert said["not_covered"] == list(report.not_covered)
  assert "who was drawn" not in json.dumps(said["warnings"])


class TestFiles:
  def test_what_is_written_is_read(self, tmp_path):
    path = tmp_path / "card.json"
    assert model_card.read(path) is None
    card = _card(privacy={"epsilon": "inf"})
    model_card.write(card, path)
    assert model_card.read(path) == card

  @pytest.mark.parametrize(
    ("change", "message"),
    [
      (lambda values: "{", "Expecting property name"),
      (lambda values: [], "must have what it is made of"),
      (lambda values: {**values, "image_shape": None}, "must have what"),
      (
        lambda values: {**values, "preprocessing": {"name": "stretch"}},
        "preprocessing 'middle_crop', found 'stretch'",
      ),
    ],
  )
  def test_damaged_ones_are_named(self, tmp_path, change, message):
    changed = change(_card().to_json())
    path = tmp_path / "card.json"
    path.write_text(
      changed if isinstance(changed, str) else json.dumps(changed)
    )
    with pytest.raises(errors.DataError, match=message) as error:
      model_card.read(path)
    assert str(error.value).startswith(f"{path} must be a model card: ")
