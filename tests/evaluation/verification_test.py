"""Tests for verification."""

import json
import re

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from tff_fedemb.evaluation import pairs
from tff_fedemb.evaluation import verification

RATES = (1e-3, 1e-2, 1e-1)


def all_pairs(embeddings, labels):
  """Returns the similarity and the answer of each pair i < j."""
  unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
  similarities = np.round((unit @ unit.T) * 2.0**40) / 2.0**40
  rows, columns = np.triu_indices(len(labels), k=1)
  return similarities[rows, columns], labels[rows] == labels[columns]


def clustered(num_classes, images_per_class, *, seed=0, dim=8):
  rng = np.random.default_rng(seed)
  labels = np.repeat(np.arange(num_classes), images_per_class)
  centers = rng.normal(size=(num_classes, dim))
  embeddings = centers[labels] + rng.normal(size=(len(labels), dim))
  order = rng.permutation(len(labels))
  return embeddings[order], labels[order]


def tied(num_classes, images_per_class):
  """Corners of a cube: all cosines are multiples of a half."""
  rng = np.random.default_rng(1)
  labels = np.tile(np.arange(num_classes), images_per_class)
  embeddings = rng.choice([-1.0, 1.0], size=(len(labels), 4))
  embeddings[labels == 0] = 1.0
  return embeddings, labels


class TestEvaluatePairs:
  def test_hand_computed(self):
    # Positive pairs are 0 and 90 degrees apart, negative pairs 60, 60, 150 and
    # 150: similarities 1 and 0 against 0.5, 0.5, -0.87 and -0.87.
    degrees = np.radians([0, 0, 60, 150])
    embeddings = np.stack([np.cos(degrees), np.sin(degrees)], axis=1)
    result = verification.evaluate_pairs(
      embeddings, np.array([5, 5, 3, 3]), false_accept_rates=(0.25, 0.5)
    )
    assert (result.num_images, result.num_classes) == (4, 2)
    assert result.num_positive_pairs == 2
    assert result.num_negative_pairs == 4
    # Both negative pairs at 0.5 are tied: a quarter accepts neither, a half
    # accepts both and with them the pair at 0.
    assert result.recall_at_far == {0.25: 0.5, 0.5: 1.0}
    thresholds = {0.25: 0.5, 0.5: -np.sqrt(3) / 2}
    assert result.threshold_at_far == pytest.approx(thresholds, abs=1e-11)
    assert result.threshold_at_far[0.25] > 0.5
    # The pair at 1 beats four negative pairs, the pair at 0 two of them.
    assert result.auc == 6 / 8
    assert result.auc_error_bound == 0.0
    assert result.roc.false_accept_rates == (0.0, 0.5, 1.0)
    assert result.roc.recalls == (0.5, 1.0, 1.0)

  @pytest.mark.parametrize(
    "data",
    [
      pytest.param(clustered(12, 5), id="clusters"),
      pytest.param(
        (clustered(9, 7)[0], np.arange(63) % 31 // 3),
        id="classes_of_unequal_size",
      ),
      pytest.param(clustered(2, 20), id="two_classes"),
      pytest.param(tied(10, 6), id="with_ties"),
      pytest.param(
        (clustered(12, 5)[0] + 1e4, clustered(12, 5)[1]), id="narrow_cone"
      ),
      pytest.param(
        (clustered(12, 5)[0].astype("f"), np.arange(60) // 5),
        id="single_precision",
      ),
    ],
  )
  def test_equals_scikit_learn(self, monkeypatch, data):
    monkeypatch.setattr(pairs, "_BLOCK_ROWS", 16)
    embeddings, labels = data
    scores, answers = all_pairs(embeddings.astype(np.float64), labels)
    fpr, tpr, _ = metrics.roc_curve(answers, scores, drop_intermediate=False)
    rates = (*RATES, 0.2, 0.5, 0.9)
    result = verification.evaluate_pairs(
      embeddings, labels, false_accept_rates=rates
    )
    assert result.auc == pytest.approx(
      metrics.roc_auc_score(answers, scores), abs=0.5e-12
    )
    assert result.num_positive_pairs == np.sum(answers)
    assert result.num_negative_pairs == np.sum(~answers)
    for rate in rates:
      best = pytest.approx(np.max(tpr[fpr <= rate]), abs=0.5e-12)
      assert result.recall_at_far[rate] == best
      threshold = result.threshold_at_far[rate]
      negatives = scores[~answers]
      assert np.mean(negatives >= threshold) <= rate
      assert np.mean(negatives >= threshold - 2.0**-40) > rate
      accepted = np.mean(scores[answers] >= threshold)
      assert result.recall_at_far[rate] == pytest.approx(accepted, abs=0.5e-7)
    for rate, recall in zip(
      result.roc.false_accept_rates, result.roc.recalls, strict=True
    ):
      assert recall == pytest.approx(np.max(tpr[fpr <= rate]), abs=0.5e-12)

  @pytest.mark.parametrize("block_rows", [1, 5, 6, 60, 100])
  def test_blocks_and_scale_do_not_matter(self, monkeypatch, block_rows):
    embeddings, labels = clustered(10, 6)
    result = verification.evaluate_pairs(embeddings, labels)
    scales = np.geomspace(1e-200, 1e200, len(labels))[:, None]
    scaled = verification.evaluate_pairs(embeddings * scales, labels)
    names = np.array([f"class {label}" for label in labels])
    monkeypatch.setattr(pairs, "_BLOCK_ROWS", block_rows)
    assert result == verification.evaluate_pairs(embeddings, names)
    assert result.recall_at_far == scaled.recall_at_far
    assert result.auc == pytest.approx(scaled.auc, abs=0.5e-12)

  @pytest.mark.parametrize(
    ("embeddings", "size", "recall", "threshold", "auc", "interval"),
    [
      # If a share r of the classes had another recall, 10 without it would have
      # probability (1 - r)^10, which is 0.025 at r = 0.3085.
      pytest.param(
        *(np.repeat(np.eye(30), 3, axis=0), 3, 1.0, 2.0**-40, 1.0),
        *((0.8843, 1.0),),
        id="perfect",
      ),
      pytest.param(
        *(np.full((40, 16), 0.1, "f"), 4, 0.0, 1 + 2.0**-40, 0.5),
        *((0.0, 0.3085),),
        id="collapsed",
      ),
    ],
  )
  def test_extremes(self, embeddings, size, recall, threshold, auc, interval):
    labels = np.arange(len(embeddings)) // size
    result = verification.evaluate_pairs(embeddings, labels)
    assert result.recall_at_far == dict.fromkeys(RATES, recall)
    assert result.threshold_at_far[0.1] == threshold
    assert result.auc == auc
    found = result.recall_class_interval_at_far[0.1]
    assert found == pytest.approx(interval, abs=5e-5)

  def test_embeddings_that_coincide_are_warned_of(self):
    # 1 pair of 720 is more than FAR 0.001 and less than 0.01.
    labels = np.arange(40) // 4
    embeddings = np.random.default_rng(0).normal(size=(40, 16))
    embeddings[4] = embeddings[0]
    result = verification.evaluate_pairs(embeddings, labels)
    assert result.warnings[-1] == (
      "0.1% of the pairs of two classes have the same embedding: no threshold"
      " keeps to FAR 0.001, and recall there is 0"
    )

  def test_zero_vectors_are_similar_to_nothing_and_warned_of(self):
    embeddings, labels = clustered(12, 4)
    embeddings[[3, 8]] = 0.0
    result = verification.evaluate_pairs(embeddings, labels)
    (warning,) = (w for w in result.warnings if "zeros" in w)
    assert warning.startswith("2 of 48 embeddings are all zeros")
    zeros = np.zeros((4, 2))
    result = verification.evaluate_pairs(zeros, np.array([0, 0, 1, 1]))
    assert result.auc == 0.5
    assert result.threshold_at_far[0.1] == 2.0**-40

  def test_warns_of_rates_too_small_for_the_data(self):
    # 7 classes of 6 images: 21 * 36 negative pairs.
    result = verification.evaluate_pairs(*clustered(7, 6))
    smallest, small, classes = result.warnings
    assert re.search("^FAR 0.001 needs.* 10,000 .*found 756: recall", smallest)
    assert re.search("^FAR 0.01 needs .* 1,000 negative.*found 756$", small)
    assert re.search("10 classes of two images, found 7$", classes)
    scores, answers = all_pairs(*clustered(7, 6))
    assert result.recall_at_far[1e-3] == np.mean(
      scores[answers] > np.max(scores[~answers])
    )

  def test_to_json_round_trip(self):
    result = verification.evaluate_pairs(
      *clustered(3, 4), false_accept_rates=(1e-5, *RATES)
    )
    found = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert [*found["recall_at_far"]] == ["0.00001", "0.001", "0.01", "0.1"]
    assert found.keys() == vars(result).keys()
    assert verification.VerificationResult.from_json(found) == result


class TestIntervals:
  def test_pair_intervals_against_direct_computation(self):
    embeddings, labels = clustered(20, 8)
    rate = 0.1
    result = verification.evaluate_pairs(
      embeddings, labels, false_accept_rates=(rate,)
    )
    scores, answers = all_pairs(embeddings, labels)
    negatives = np.sort(scores[~answers])[::-1]
    ends = stats.binom(len(negatives), rate).ppf
    first, last = map(int, ends([0.025, 0.975]))
    low, high = result.threshold_interval_at_far[rate]
    assert high == pytest.approx(negatives[first - 1], abs=1e-11)
    assert low == pytest.approx(negatives[last], abs=1e-11)

    first, last = map(int, ends([0.0125, 0.9875]))
    few, many = (
      stats.binomtest(int(np.sum(scores[answers] > end)), int(answers.sum()))
      for end in (negatives[first - 1], negatives[last])
    )
    low, high = result.recall_interval_at_far[rate]
    assert low == pytest.approx(few.proportion_ci(0.975).low, abs=0.5e-9)
    assert high == pytest.approx(many.proportion_ci(0.975).high, abs=0.5e-9)

  def test_class_interval_against_leaving_each_class_out(self):
    embeddings, labels = clustered(40, 12, dim=4)
    rate = 0.1
    result = verification.evaluate_pairs(
      embeddings, labels, false_accept_rates=(rate,)
    )
    recalls = []
    for left_out in range(40):
      kept = labels != left_out
      scores, answers = all_pairs(embeddings[kept], labels[kept])
      negatives = np.sort(scores[~answers])[::-1]
      rejected = negatives[int(rate * len(negatives))]
      recalls.append(np.mean(scores[answers] > rejected))
    reach = stats.t.ppf(0.975, 39) * np.sqrt(39 * np.var(recalls))
    low, high = result.recall_class_interval_at_far[rate]
    np.testing.assert_allclose((high - low) / 2, reach, rtol=0.1)
    recall = pytest.approx(result.recall_at_far[rate], abs=0.5e-7)
    assert (high + low) / 2 == recall

  def test_classes_of_one_image_tell_nothing_of_recall(self):
    embeddings, labels = clustered(200, 3)
    # Three classes keep all their images, the others one.
    kept = labels < 3
    kept[np.unique(labels, return_index=True)[1]] = True
    result = verification.evaluate_pairs(
      embeddings[kept], labels[kept], false_accept_rates=(0.1,)
    )
    assert result.num_classes == 200
    assert any("found 3" in message for message in result.warnings)
    recall = result.recall_at_far[0.1]
    low, high = result.recall_class_interval_at_far[0.1]
    assert low == 0.0 or high == 1.0 or high - low > 0.5
    assert low < recall < high

  def test_a_sample_of_recall_one_leaves_something_open(self):
    embeddings, labels = clustered(30, 4)
    embeddings = embeddings[::4][labels] + 1e-3 * embeddings
    result = verification.evaluate_pairs(embeddings, labels, num_found=1_000)
    # 0.884^30 = 0.025.
    ends = pytest.approx((0.8843, 1.0), abs=1e-4)
    assert result.recall_at_far[1e-3] == 1.0
    assert result.recall_sample_interval_at_far[1e-3] == ends
    assert result.recall_class_interval_at_far[1e-3] == ends

  @pytest.mark.slow
  def test_sample_interval_holds_what_all_images_have(self):
    embeddings, labels = clustered(30, 20, dim=4)
    rng = np.random.default_rng(5)
    whole = verification.evaluate_pairs(
      embeddings, labels, false_accept_rates=(0.1,)
    )
    assert whole.recall_sample_interval_at_far is None
    assert whole.to_json()["num_found"] is None
    errors, reaches = [], []
    for _ in range(200):
      rows = rng.choice(600, size=200, replace=False)
      sample = verification.evaluate_pairs(
        embeddings[rows], labels[rows], false_accept_rates=(0.1,), num_found=600
      )
      low, high = sample.recall_sample_interval_at_far[0.1]
      reaches.append((high - low) / 2)
      errors.append(sample.recall_at_far[0.1] - whole.recall_at_far[0.1])
    covered = np.mean(np.abs(errors) <= reaches)
    # The jackknife errs to the safe side for pairs.
    assert 0.92 <= covered <= 1.0
    np.testing.assert_allclose(
      np.mean(reaches), 1.96 * np.std(errors), rtol=0.25
    )
    assert sample.to_json()["num_found"] == 600

  def test_sample_of_all_images_leaves_nothing_open(self):
    result = verification.evaluate_pairs(*clustered(10, 10), num_found=100)
    for rate, recall in result.recall_at_far.items():
      assert result.recall_sample_interval_at_far[rate] == (recall, recall)

  def test_intervals_without_expected_false_accepts_or_classes_are_open(self):
    result = verification.evaluate_pairs(*clustered(2, 4))
    assert result.threshold_interval_at_far[1e-3][1] == 1 + 2.0**-40
    assert result.recall_interval_at_far[1e-3][0] == 0.0
    assert result.recall_class_interval_at_far[0.1] == (0.0, 1.0)


@pytest.mark.parametrize(
  ("embeddings", "labels", "options", "message"),
  [
    (np.ones(4), np.arange(4), {}, r"numbers \[n, dim\].* float64 \[4\]"),
    (np.ones((4, 2)), np.arange(3), {}, r"be \[4\].*\[3\]"),
    ([[1.0], [np.nan]], np.ones(2), {}, "NaN or infinity in 1 of 2"),
    (np.ones((4, 2)), np.ones(4), {}, "found 1 of at most 4"),
    (np.ones((0, 2)), np.ones(0), {}, "found 0 of at most 0"),
    (*clustered(3, 3), {"false_accept_rates": (0.1, 1.0)}, r"in \(0, 1\), fo"),
  ],
)
def test_refuses(embeddings, labels, options, message):
  with pytest.raises(ValueError, match=f"must .*{message}"):
    verification.evaluate_pairs(np.asarray(embeddings), labels, **options)
