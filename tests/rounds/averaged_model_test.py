"""Tests of the average over rounds."""

import numpy as np
import pytest

from tff_fedemb import errors
from tff_fedemb.rounds import averaged_model
from tff_fedemb.rounds import loop


def test_the_first_rounds_count_less():
  assert averaged_model.share_of_past(0.9, 1) == pytest.approx(2 / 11)
  # 81 / 90 = 0.9.
  assert averaged_model.share_of_past(0.9, 80) == pytest.approx(0.9)
  assert averaged_model.share_of_past(0.9, 500) == 0.9


def test_average_by_hand():
  before = {"a": np.float32([11.0, 0.0]), "b": (np.float32(0.0),)}
  weights = {"a": np.float32([0.0, 22.0]), "b": (np.float32(11.0),)}
  found = averaged_model.average(before, weights, decay=0.9, rounds_done=1)
  np.testing.assert_allclose(found["a"], [2.0, 18.0], rtol=1e-6)
  assert found["b"][0] == pytest.approx(9.0)
  assert found["a"].dtype == np.float32


def test_mix_by_hand():
  before, weights = (np.float32(8.0),), (np.float32(4.0),)
  found = averaged_model.mix(before, weights, share=0.25)
  assert found[0] == pytest.approx(5.0)
  assert found[0].dtype == np.float32
  assert averaged_model.mix(before, weights, share=0.0) is weights


def test_the_best_of_averages_is_not_kept():
  with pytest.raises(errors.FieldError, match="keep must be last with export"):
    loop.TrainingConfig(keep="best", export_average=0.5)
  with pytest.raises(errors.FieldError, match="export_average must be"):
    loop.TrainingConfig(export_average=1.0)
