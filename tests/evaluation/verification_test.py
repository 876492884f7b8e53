"""Tests for verification."""

import json

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
from sklearn import metrics

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


class EvaluatePairsTest(parameterized.TestCase):
  def test_hand_computed(self):
    # Positive pairs are 0 and 90 degrees apart, negative pairs 60, 60, 150 and
    # 150: similarities 1 and 0 against 0.5, 0.5, -0.87 and -0.87.
    degrees = np.radians([0, 0, 60, 150])
    embeddings = np.stack([np.cos(degrees), np.sin(degrees)], axis=1)
    result = verification.evaluate_pairs(
      embeddings, np.array([5, 5, 3, 3]), false_accept_rates=(0.25, 0.5)
    )
    self.assertEqual((result.num_images, result.num_classes), (4, 2))
    self.assertEqual(result.num_positive_pairs, 2)
    self.assertEqual(result.num_negative_pairs, 4)
    # Both negative pairs at 0.5 are tied: a quarter accepts neither, a half
    # accepts both and with them the pair at 0.
    self.assertEqual(result.recall_at_far, {0.25: 0.5, 0.5: 1.0})
    self.assertAlmostEqual(result.threshold_at_far[0.25], 0.5, delta=1e-11)
    self.assertGreater(result.threshold_at_far[0.25], 0.5)
    self.assertAlmostEqual(
      result.threshold_at_far[0.5], -np.sqrt(3) / 2, delta=1e-11
    )
    # The pair at 1 beats four negative pairs, the pair at 0 two of them.
    self.assertEqual(result.auc, 6 / 8)
    self.assertEqual(result.auc_error_bound, 0.0)
    self.assertEqual(result.roc.false_accept_rates, (0.0, 0.5, 1.0))
    self.assertEqual(result.roc.recalls, (0.5, 1.0, 1.0))

  @parameterized.named_parameters(
    ("clusters", clustered(12, 5)),
    ("classes_of_unequal_size", (clustered(9, 7)[0], np.arange(63) % 31 // 3)),
    ("two_classes", clustered(2, 20)),
    ("with_ties", tied(10, 6)),
    ("narrow_cone", (clustered(12, 5)[0] + 1e4, clustered(12, 5)[1])),
    ("single_precision", (clustered(12, 5)[0].astype("f"), np.arange(60) // 5)),
  )
  def test_equals_scikit_learn(self, data):
    embeddings, labels = data
    scores, answers = all_pairs(embeddings.astype(np.float64), labels)
    fpr, tpr, _ = metrics.roc_curve(answers, scores, drop_intermediate=False)
    rates = (*RATES, 0.2, 0.5, 0.9)
    result = verification.evaluate_pairs(
      embeddings, labels, false_accept_rates=rates, block_size=16
    )
    self.assertAlmostEqual(
      result.auc, metrics.roc_auc_score(answers, scores), places=12
    )
    self.assertEqual(result.num_positive_pairs, np.sum(answers))
    self.assertEqual(result.num_negative_pairs, np.sum(~answers))
    for rate in rates:
      self.assertAlmostEqual(
        result.recall_at_far[rate], np.max(tpr[fpr <= rate]), places=12
      )
      threshold = result.threshold_at_far[rate]
      negatives = scores[~answers]
      self.assertLessEqual(np.mean(negatives >= threshold), rate)
      self.assertGreater(np.mean(negatives >= threshold - 2.0**-40), rate)
      self.assertAlmostEqual(
        result.recall_at_far[rate], np.mean(scores[answers] >= threshold)
      )
    for rate, recall in zip(
      result.roc.false_accept_rates, result.roc.recalls, strict=True
    ):
      self.assertAlmostEqual(recall, np.max(tpr[fpr <= rate]), places=12)

  def test_block_size_and_scale_do_not_matter(self):
    embeddings, labels = clustered(10, 6)
    result = verification.evaluate_pairs(embeddings, labels, block_size=7)
    scales = np.geomspace(1e-200, 1e200, len(labels))[:, None]
    scaled = verification.evaluate_pairs(embeddings * scales, labels)
    names = np.array([f"class {label}" for label in labels])
    named = verification.evaluate_pairs(embeddings, names, block_size=60)
    self.assertEqual(result, named)
    self.assertEqual(result.recall_at_far, scaled.recall_at_far)
    self.assertAlmostEqual(result.auc, scaled.auc, places=12)

  @parameterized.named_parameters(
    ("perfect", np.repeat(np.eye(30), 3, axis=0), 3, 1.0, 2.0**-40, 1.0),
    ("collapsed", np.full((40, 16), 0.1, "f"), 4, 0.0, 1 + 2.0**-40, 0.5),
  )
  def test_extremes(self, embeddings, size, recall, threshold, auc):
    labels = np.arange(len(embeddings)) // size
    result = verification.evaluate_pairs(embeddings, labels)
    self.assertEqual(result.recall_at_far, dict.fromkeys(RATES, recall))
    self.assertEqual(result.threshold_at_far[0.1], threshold)
    self.assertEqual(result.auc, auc)

  def test_zero_vectors_are_similar_to_nothing_and_warned_of(self):
    embeddings, labels = clustered(12, 4)
    embeddings[[3, 8]] = 0.0
    result = verification.evaluate_pairs(embeddings, labels)
    (warning,) = (w for w in result.warnings if "zeros" in w)
    self.assertStartsWith(warning, "2 of 48 embeddings are all zeros")
    zeros = np.zeros((4, 2))
    result = verification.evaluate_pairs(zeros, np.array([0, 0, 1, 1]))
    self.assertEqual(result.auc, 0.5)
    self.assertEqual(result.threshold_at_far[0.1], 2.0**-40)

  def test_warns_of_rates_too_small_for_the_data(self):
    # 7 classes of 6 images: 21 * 36 negative pairs.
    result = verification.evaluate_pairs(*clustered(7, 6))
    smallest, small, classes = result.warnings
    self.assertRegex(smallest, "^FAR 0.001 needs.* 10,000 .*found 756: recall")
    self.assertRegex(small, "^FAR 0.01 needs .* 1,000 negative.*found 756$")
    self.assertRegex(classes, "at least 10 classes, found 7$")
    scores, answers = all_pairs(*clustered(7, 6))
    self.assertEqual(
      result.recall_at_far[1e-3],
      np.mean(scores[answers] > np.max(scores[~answers])),
    )

  def test_to_json_round_trip(self):
    result = verification.evaluate_pairs(
      *clustered(3, 4), false_accept_rates=(1e-5, *RATES)
    )
    text = json.dumps(result.to_json(), allow_nan=False)
    found = json.loads(text)
    rates = [*found["recall_at_far"]]
    self.assertEqual(rates, ["0.00001", "0.001", "0.01", "0.1"])
    self.assertEqual(found["recall_at_far"]["0.1"], result.recall_at_far[0.1])
    interval = found["recall_interval_at_far"]["0.01"]
    self.assertEqual(interval, [*result.recall_interval_at_far[0.01]])
    self.assertEqual(found["roc"]["recalls"], list(result.roc.recalls))
    self.assertEqual(found.keys(), vars(result).keys())

  def test_roc_is_compact_and_reaches_one_false_accept(self):
    result = verification.evaluate_pairs(*clustered(60, 10))
    self.assertEqual(result.warnings, ())
    rates = result.roc.false_accept_rates
    self.assertBetween(len(rates), 300, 501)
    self.assertEqual(rates[0], 0.0)
    self.assertEqual(rates[1], 1 / result.num_negative_pairs)
    self.assertEqual((rates[-1], result.roc.recalls[-1]), (1.0, 1.0))
    self.assertTrue(np.all(np.diff(rates) > 0))
    self.assertTrue(np.all(np.diff(result.roc.recalls) >= 0))


class IntervalsTest(parameterized.TestCase):
  def test_pair_intervals_against_direct_computation(self):
    embeddings, labels = clustered(20, 8)
    rate, confidence = 0.1, 0.9
    result = verification.evaluate_pairs(
      embeddings, labels, false_accept_rates=(rate,), confidence=confidence
    )
    scores, answers = all_pairs(embeddings, labels)
    negatives = np.sort(scores[~answers])[::-1]
    positives = scores[answers]

    def ranks(error):
      binomial = stats.binom(len(negatives), rate)
      return int(binomial.ppf(error / 2)), int(binomial.ppf(1 - error / 2))

    first, last = ranks(0.1)
    low, high = result.threshold_interval_at_far[rate]
    self.assertAlmostEqual(high, negatives[first - 1], delta=1e-11)
    self.assertAlmostEqual(low, negatives[last], delta=1e-11)

    first, last = ranks(0.05)
    accepted = (
      int(np.sum(positives > negatives[first - 1])),
      int(np.sum(positives > negatives[last])),
    )
    expected = [
      stats.binomtest(count, len(positives)).proportion_ci(0.95)
      for count in accepted
    ]
    low, high = result.recall_interval_at_far[rate]
    self.assertAlmostEqual(low, expected[0].low, places=9)
    self.assertAlmostEqual(high, expected[1].high, places=9)

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
    self.assertAlmostEqual((high + low) / 2, result.recall_at_far[rate])

  @parameterized.parameters(3, 40)
  def test_intervals_hold_the_estimate(self, num_classes):
    result = verification.evaluate_pairs(*clustered(num_classes, 5))
    for rate in RATES:
      for interval, value in (
        (result.recall_interval_at_far, result.recall_at_far),
        (result.recall_class_interval_at_far, result.recall_at_far),
        (result.threshold_interval_at_far, result.threshold_at_far),
      ):
        low, high = interval[rate]
        self.assertLessEqual(low, value[rate])
        self.assertGreaterEqual(high, value[rate])

  def test_intervals_without_expected_false_accepts_or_classes_are_open(self):
    result = verification.evaluate_pairs(*clustered(2, 4))
    self.assertEqual(result.threshold_interval_at_far[1e-3][1], 1 + 2.0**-40)
    self.assertEqual(result.recall_interval_at_far[1e-3][0], 0.0)
    self.assertEqual(result.recall_class_interval_at_far[0.1], (0.0, 1.0))


class RejectsTest(parameterized.TestCase):
  @parameterized.named_parameters(
    ("one_dimension", np.ones(4), np.arange(4), r"of shape \[n, dim\].*\[4\]"),
    ("no_columns", np.ones((4, 0)), np.arange(4), r"of shape \[n, dim\]"),
    ("too_few_labels", np.ones((4, 2)), np.arange(3), r"shape \[4\].*\[3\]"),
    ("label_columns", np.ones((2, 2)), np.ones((2, 1)), r"found \[2, 1\]"),
    ("complex", np.ones((2, 2), complex), np.ones(2), "found complex128"),
    ("nan", [[1.0], [np.nan]], np.ones(2), "NaN or infinity in 1 of 2"),
    ("infinity", [[np.inf], [np.nan]], np.ones(2), "NaN or infinity in 2 of 2"),
    ("one_class", np.ones((4, 2)), np.ones(4), "at least 2 classes, found 1"),
    ("no_image", np.ones((0, 2)), np.ones(0), "at least 2 classes, found 0"),
    ("no_positive_pair", np.ones((3, 2)), np.arange(3), "3 classes of 1"),
  )
  def test_data(self, embeddings, labels, message):
    with self.assertRaisesRegex(ValueError, f"must .*{message}"):
      verification.evaluate_pairs(np.asarray(embeddings), labels)

  @parameterized.parameters(
    ({"false_accept_rates": ()}, "at least one, found none"),
    ({"false_accept_rates": (0.1, 1.0)}, "found .*1.0"),
    ({"false_accept_rates": (float("nan"),)}, "found .*nan"),
    ({"block_size": 0}, "at least 1, found 0"),
    ({"confidence": 1.0}, r"in \(0, 1\), found 1.0"),
  )
  def test_settings(self, settings, message):
    with self.assertRaisesRegex(ValueError, f"must be .*{message}"):
      verification.evaluate_pairs(*clustered(3, 3), **settings)


if __name__ == "__main__":
  absltest.main()
