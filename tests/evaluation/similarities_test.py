"""Tests of neighbours and hardest pairs, by hand."""

import numpy as np
import pytest

from tff_fedemb.evaluation import pairs
from tff_fedemb.evaluation import similarities
from tff_fedemb.evaluation import verification

# On the circle at 0, 10, 80, 90 and 30 degrees; lengths do not matter.
_DEGREES = np.array([0, 10, 80, 90, 30])
_LENGTHS = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
_EMBEDDINGS = _LENGTHS[:, None] * np.stack(
  [np.cos(np.radians(_DEGREES)), np.sin(np.radians(_DEGREES))], axis=1
)
_LABELS = np.array([7, 7, 9, 9, 9])


@pytest.fixture(name="near")
def _near():
  return similarities.Similarities(_EMBEDDINGS, _LABELS)


def _cosine(degrees):
  return pytest.approx(np.cos(np.radians(degrees)), abs=1e-6)


def test_nearest_leave_the_image_itself_out(near):
  found = near.nearest(0, 2)
  assert [(pair.first, pair.second) for pair in found] == [(0, 1), (0, 4)]
  assert [pair.similarity for pair in found] == [_cosine(10), _cosine(30)]
  assert len(near.nearest(0, 99)) == 4


def test_pairs_by_class(near):
  same = sorted(near.same.tolist())
  assert same == [_cosine(60), _cosine(50), _cosine(10), _cosine(10)]
  assert len(near.different) == 6


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_nobody_is_accepted_at_a_threshold_above_all_pairs_of_two_classes(
  spread,
):
  generator = np.random.default_rng(0)
  labels = np.arange(12) // 3
  num_accepted = 0
  for _ in range(8):
    # A small spread leaves a narrow cone, as untrained models have it.
    centers = np.repeat(generator.normal(size=[4, 16]), 3, axis=0)
    noise = generator.normal(size=[12, 16])
    embeddings = 1.0 + spread * (centers + noise)
    result = verification.evaluate_pairs(embeddings, labels)
    # There are fewer than 1,000 such pairs: it lies just above the highest.
    threshold = result.threshold_at_far[1e-3]
    near = similarities.Similarities(embeddings, labels)
    (hardest,) = near.hardest_false_accepts(1)
    assert not hardest.is_accepted(threshold)
    unit = pairs.normalize(embeddings)
    for pair in near.nearest(0, 11):
      expected = unit[0] @ unit[pair.second] > threshold
      assert pair.is_accepted(threshold) == expected
      num_accepted += expected
  assert num_accepted


def test_short_embeddings_have_the_same_similarities(near):
  # Squares of so small numbers are 0 in float32.
  short = similarities.Similarities(np.float32(1e-25 * _EMBEDDINGS), _LABELS)
  for found, expected in (
    (short.same, near.same),
    (short.different, near.different),
  ):
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_nearest_is_right_unless_the_class_has_one_image():
  near = similarities.Similarities(_EMBEDDINGS, np.array([7, 7, 9, 8, 9]))
  # The image at 80 degrees is next to that at 90, that at 30 to that at 10.
  assert near.is_nearest_right().tolist() == [True, True, False, False]


def test_hardest_pairs_have_an_image_once(near):
  accepts = near.hardest_false_accepts(5)
  # 1 and 4 are 20 degrees apart; then 0 has 2 at 80 degrees left, not 4.
  assert [(p.first, p.second) for p in accepts] == [(1, 4), (0, 2)]
  assert accepts[0].similarity == _cosine(20)
  (reject,) = near.hardest_false_rejects(1)
  assert reject == similarities.Pair(3, 4, _cosine(60))
  rejects = near.hardest_false_rejects(9)
  assert [(p.first, p.second) for p in rejects] == [(3, 4), (0, 1)]


def test_an_embedding_of_zeros_is_like_no_other():
  near = similarities.Similarities(np.array([[0.0], [1.0]]), np.array([1, 1]))
  assert near.same.tolist() == [0.0]
