"""Tests of what is read of a finished run."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.spec import specs
from tff_fedemb import errors
from tff_fedemb.records import export
from tff_fedemb.records import model_card
from tff_fedemb.training import result as result_lib

_SHAPE = (12, 10, 1)
_SUMMARY = {
  "recall_at_far": {"0.001": 0.25, "0.1": 0.75},
  "privacy": {"epsilon": 2.5, "delta": 1e-3},
}


@pytest.fixture(name="result")
def _result(tmp_path):
  (tmp_path / "summary.json").write_text(json.dumps(_SUMMARY))
  return result_lib.Result(specs.create(), str(tmp_path))


def test_figures_are_those_of_the_summary(result, tmp_path):
  assert result.summary == _SUMMARY
  assert (result.epsilon, result.delta) == (2.5, 1e-3)
  assert result.recall_at_far() == 0.25
  assert result.recall_at_far(0.1) == 0.75
  with pytest.raises(errors.FieldError, match=r"0\.001, 0\.1, found 0\.2"):
    result.recall_at_far(0.2)
  text = str(result)
  assert "recall 0.2500 at FAR 0.001; 0.7500 at FAR 0.1" in text
  assert "epsilon 2.5 at delta 0.001" in text
  assert result.run_dir in text
  # Without noise.
  del result.__dict__["summary"]
  privacy = {"privacy": {"epsilon": "inf", "delta": 1e-3}}
  (tmp_path / "summary.json").write_text(json.dumps(privacy))
  assert result.epsilon == math.inf


def test_an_unfinished_run_has_no_figures(tmp_path):
  result = result_lib.Result(specs.create(), str(tmp_path))
  with pytest.raises(errors.FieldError, match="run_dir must hold a finished"):
    str(result)
  specs.write(tmp_path)
  with pytest.raises(
    errors.DataError, match=r"finished runs, found .*: no summ"
  ):
    result.report(tmp_path / "report.html")
  assert not (tmp_path / "report.html").exists()


def test_a_release_that_was_moved_away_is_told(result):
  with pytest.raises(errors.FieldError, match="must hold release/saved_model"):
    _ = result.backbone


def test_the_backbone_is_that_of_the_saved_model(result, tmp_path):
  tf.keras.utils.set_random_seed(0)
  # No backbone was asked for: the card names the one that the task chose.
  trained = result.spec.algorithm.backbone.create(_SHAPE, default="lenet")
  export.export_backbone(
    trained,
    tmp_path / "release/saved_model",
    model_card.ModelCard(
      image_shape=_SHAPE,
      embedding_dim=trained.output_shape[1],
      training={"backbone": "lenet"},
    ),
  )
  for found, expected in zip(
    result.backbone.get_weights(), trained.get_weights(), strict=True
  ):
    np.testing.assert_array_equal(found, expected)
  assert result.backbone is result.backbone
