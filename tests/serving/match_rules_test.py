"""Tests of the rules of a match."""

import dataclasses
import types

import numpy as np
import pandas as pd
import pytest

from tff_fedemb import errors
from tff_fedemb.records import model_card
from tff_fedemb.serving import match_rules

# The upper end is four times the rate.
_GALLERIES = {
  "fpir": [0.1, 0.01],
  "compared": "mean",
  "by_images": [
    {
      "images": images,
      "num_classes": 20,
      "size": [1, 100],
      "threshold": [[0.1, 0.2], [0.5, 0.7]],
      "fpir_low": [[0.03, 0.002], [0.03, 0.002]],
      "fpir_high": [[0.2, 0.04], [0.2, 0.04]],
    }
    for images in (1, 2)
  ],
}
_CARD = model_card.ModelCard(
  image_shape=(2, 2, 1),
  embedding_dim=4,
  verification={
    "at_far": {"0.001": {"threshold": 0.8, "warning": None}},
    "galleries": _GALLERIES,
  },
)


def _find(*, card=_CARD, num_classes=100, num_images=200, **settings):
  model = types.SimpleNamespace(card=card, image_shape=(2, 2, 1))
  config = match_rules.RuleConfig(**settings)
  return match_rules.find(config, model, num_classes, num_images)


def test_a_rule_compares_as_its_threshold_was_measured():
  rule = _find(fpir=0.01)
  assert (rule.threshold, rule.compared) == (0.7, "mean")
  assert "0.01 (0.002 to 0.04), the mean over strangers and" in rule.words
  assert "warning: 20 held-out classes are too few for fpir 0.01" in rule.words
  # A pair's threshold, and a given one, are for the nearest image.
  rule = _find()
  assert (rule.threshold, rule.compared) == (0.8, "nearest")
  assert "a probability of up to 0.2. fpir sets the rate" in rule.words
  rule = _find(threshold=0.3, card=None)
  assert (rule.threshold, rule.compared) == (0.3, "nearest")


def test_the_runner_up_counts_where_the_card_says_so():
  part = _GALLERIES["by_images"][0]
  runner_up = {"weight": 0.4, "by_images": [part, part | {"images": 3}]}
  galleries = _GALLERIES | {"runner_up": runner_up}
  verification = _CARD.verification | {"galleries": galleries}
  card = dataclasses.replace(_CARD, verification=verification)
  rule = _find(fpir=0.01, card=card)
  assert "less 0.4 times that with the next class" in rule.words
  matches = pd.DataFrame(
    {"similarity": [0.9, 0.5], "runner_up_similarity": [0.5, np.nan]}
  )
  queries = np.zeros([2, 4])
  # Without a runner-up, as if it were as similar.
  assert rule.score(matches, queries).tolist() == pytest.approx([0.7, 0.3])
  assert not rule.takes_similarity
  rule = _find(fpir=0.01)
  assert rule.score(matches, queries).tolist() == [0.9, 0.5]
  assert rule.takes_similarity


def test_a_threshold_above_one_accepts_nobody():
  rule = _find(threshold=0.5)
  matches = pd.DataFrame({"similarity": np.float32([1.0, 0.5])})
  score = rule.score(matches, np.zeros([2, 4]))
  # In single precision, 1 + 2^-40 is 1.
  assert not (score >= 1 + 2.0**-40).any()
  assert (score >= rule.threshold).all()


def test_certainty_takes_a_higher_threshold():
  rule = _find(fpir=0.1, fpir_certainty=0.95)
  assert 0.5 < rule.threshold < 0.7
  assert "at most 0.1 with a certainty of 0.95" in rule.words
  assert "warning" not in rule.words
  with pytest.raises(errors.FieldError, match="fpir_certainty must be smaller"):
    _find(fpir=0.01, fpir_certainty=0.95)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"card": None}, "threshold must be given for a model that carries none"),
    ({"cohort": "others"}, "fpir must be given with cohort"),
    ({"fpir_certainty": 0.9}, "fpir must be given with fpir_certainty"),
    ({"cohort": "no such", "fpir": 0.1}, "cohort must be a folder"),
  ],
)
def test_mistakes(settings, message):
  with pytest.raises(errors.FieldError, match=message):
    _find(**settings)
