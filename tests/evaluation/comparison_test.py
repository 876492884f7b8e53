"""Tests for comparison."""

import dataclasses

import numpy as np
import pytest

from tff_fedemb.evaluation import comparison
from tff_fedemb.evaluation import verification


def result(**figures):
  """A result with recall and class interval by rate: far_01=(recall, ends)."""
  rng = np.random.default_rng(0)
  found = verification.evaluate_pairs(
    rng.normal(size=(200, 8)), np.arange(200) // 5, false_accept_rates=(0.1,)
  )
  by_rate = {
    float(f"0.{name.removeprefix('far_0')}"): value
    for name, value in figures.items()
  }
  return dataclasses.replace(
    found,
    recall_at_far={rate: recall for rate, (recall, _) in by_rate.items()},
    recall_class_interval_at_far={
      rate: ends for rate, (_, ends) in by_rate.items()
    },
  )


class TestWarnIfNoBetter:
  @pytest.mark.parametrize(
    ("trained", "untrained", "warns"),
    [
      # 0.5 - 0.3 = 0.2, which is more than sqrt(0.1^2 + 0.1^2) = 0.141.
      pytest.param(
        (0.5, (0.4, 0.6)), (0.3, (0.2, 0.4)), False, id="clearly_better"
      ),
      # 0.12 is less than 0.141, though 0.3 is outside (0.32, 0.52).
      pytest.param(
        (0.42, (0.32, 0.52)), (0.3, (0.2, 0.4)), True, id="both_are_uncertain"
      ),
      # The trained model's may be 0.03 further down, and the other's 0.04
      # further up: 0.06 is more than sqrt(0.0025) = 0.05.
      pytest.param(
        (0.36, (0.33, 0.9)), (0.3, (0.0, 0.34)), False, id="ends_that_face"
      ),
      pytest.param((0.2, (0.1, 0.3)), (0.3, (0.2, 0.4)), True, id="worse"),
      pytest.param(
        (0.3, (0.3, 0.3)), (0.3, (0.3, 0.3)), True, id="exactly_the_same"
      ),
      pytest.param(
        (0.9, (0.0, 1.0)), (0.3, (0.0, 1.0)), True, id="too_few_classes"
      ),
    ],
  )
  def test_one_rate(self, trained, untrained, warns):
    compared = comparison.warn_if_no_better(
      result(far_01=trained), result(far_01=untrained)
    )
    assert bool(compared.warnings) == warns
    assert compared.recall_at_far == {0.1: trained[0]}

  def test_better_at_one_rate_is_better(self):
    same = (0.3, (0.2, 0.4))
    untrained = result(far_01=same, far_001=(0.1, (0.08, 0.12)))
    better = result(far_01=same, far_001=(0.2, (0.18, 0.22)))
    assert not comparison.warn_if_no_better(better, untrained).warnings
    assert comparison.warn_if_no_better(untrained, untrained).warnings

  def test_says_both_recalls_and_keeps_other_warnings(self):
    trained = dataclasses.replace(
      result(far_01=(0.0, (0.0, 0.1323))), warnings=("something else",)
    )
    untrained = result(far_01=(0.392, (0.35, 0.434)))
    first, second = comparison.warn_if_no_better(trained, untrained).warnings
    assert first == "something else"
    assert second == (
      "training has not made the model clearly better at any false accept rate:"
      " recall at FAR 0.1 is 0.0000 (95% interval over classes 0.0000 to"
      " 0.1323), untrained 0.3920 (95% interval over classes 0.3500 to 0.4340)"
    )
