"""Tests of thresholds for a gallery, and of what they promise."""

import itertools
import json
import pathlib

import numpy as np
import pytest
from scipy import stats

from tff_fedemb import errors
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import pairs

# Two sizes and two numbers of images; one lacks the smallest rate.
_PART = {
  "images": 1,
  "num_classes": 30,
  "size": [1, 100],
  "threshold": [[0.2, 0.4], [0.4, None]],
  "fpir_low": [[0.05, 0.0002], [0.04, None]],
  "fpir_high": [[0.2, 0.004], [0.2, None]],
}
_OF_FOUR = {"images": 4, "threshold": [[0.3, 0.5], [0.5, None]]}
_CURVE = {"fpir": [0.1, 0.001], "by_images": [_PART, _PART | _OF_FOUR]}


class TestFind:
  @pytest.mark.parametrize(
    ("rate", "size", "images", "threshold"),
    [
      (0.1, 1, 1, 0.2),
      (0.001, 1, 4, 0.5),
      # Half-way of sizes, images and rates, on their logarithms.
      (0.1, 10, 1, 0.3),
      (0.1, 1, 2, 0.25),
      (0.01, 1, 1, 0.3),
      # Ten times four images are ten identities with four.
      (0.1, 1, 40, 0.4),
    ],
  )
  def test_between_points(self, rate, size, images, threshold):
    found = gallery_thresholds.find(_CURVE, rate, size, images)
    assert found.threshold == pytest.approx(threshold)

  def test_interval_follows_the_rate(self):
    found = gallery_thresholds.find(_CURVE, 0.01, 1, 1)
    # Between half and a fifth, and between twice and four times.
    assert found.low == pytest.approx(0.01 * np.sqrt(0.5 * 0.2))
    assert found.high == pytest.approx(0.01 * np.sqrt(2 * 4))
    assert found.is_supported
    assert found.smallest == 0.1
    assert found.num_classes == 30
    assert not gallery_thresholds.find(_CURVE, 0.001, 1, 1).is_supported

  @pytest.mark.parametrize(
    ("images", "threshold", "compared"),
    [(1, 0.2, "mean"), (2, 0.2 + 1 / 15, "mean"), (8, 0.3 + 1 / 60, "mean")],
  )
  def test_mean_of_more_images_goes_on(self, images, threshold, compared):
    # Linear in 1 / images, from 0.2 of one to 0.3 of four.
    curve = _CURVE | {"compared": "mean"}
    found = gallery_thresholds.find(curve, 0.1, 1, images)
    assert found.threshold == pytest.approx(threshold)
    assert found.compared == compared
    # Figures of single images say nothing about a mean.
    curve["by_images"] = curve["by_images"][:1]
    found = gallery_thresholds.find(curve, 0.1, 1, images)
    assert found.compared == ("mean" if images == 1 else "nearest")
    assert gallery_thresholds.find(_CURVE, 0.1, 1, 1).compared == "nearest"

  def test_the_runner_up_counts_where_it_was_measured(self):
    part = _PART | {"size": [50, 100], "threshold": [[0.1, 0.3], [0.2, None]]}
    curve = _CURVE | {
      "compared": "mean",
      "by_images": [_PART],
      "runner_up": {"weight": 0.4, "by_images": [part]},
    }
    found = gallery_thresholds.find(curve, 0.1, 100, 1)
    assert (found.threshold, found.runner_up_weight) == (0.2, 0.4)
    for size, images in ((49, 1), (1, 1), (50, 2)):
      # A smaller gallery, or one that is compared with the nearest image.
      found = gallery_thresholds.find(curve, 0.1, size, images)
      assert found.runner_up_weight == 0.0
      assert found.threshold >= 0.2

  def test_a_certain_rate_has_an_upper_bound(self):
    # As many as 1,000 strangers drawn independently.
    rates = np.geomspace(0.1, 0.001, 21)
    high = stats.beta.ppf(0.975, 1000 * rates + 1, 1000 * (1 - rates))
    part = {
      "images": 1,
      "num_classes": 30,
      "size": [1],
      "threshold": [(1 - rates).tolist()],
      "fpir_low": [(rates / 2).tolist()],
      "fpir_high": [high.tolist()],
    }
    curve = {"fpir": rates.tolist(), "by_images": [part]}

    def find(certainty):
      return gallery_thresholds.find(curve, 0.02, 1, 1, certainty=certainty)

    for certainty in (0.95, 0.975, 0.999):
      found = find(certainty)
      hits = 1000 * found.rate
      bound = stats.beta.ppf(certainty, hits + 1, 1000 - hits)
      assert 0.0192 < bound < 0.0201
      assert found.threshold == pytest.approx(1 - found.rate, abs=1e-3)
    assert find(0.975).high == pytest.approx(0.02, rel=0.02)
    with pytest.raises(errors.FieldError, match=r"smaller at fpir 0\.002 for"):
      gallery_thresholds.find(curve, 0.002, 1, 1, certainty=0.95)

  def test_a_curve_may_end_below_its_rate(self):
    # With few different similarities, a point's own rate is below the wanted.
    part = {
      **{"images": 1, "num_classes": 30, "size": [1]},
      "threshold": [[0.2, 0.4]],
      "fpir_low": [[0.01, 0.001]],
      "fpir_high": [[0.05, 0.005]],
    }
    curve = {"fpir": [0.1, 0.01], "by_images": [part]}
    found = gallery_thresholds.find(curve, 0.05, 1, 1, certainty=0.95)
    assert 0.04 < found.rate <= 0.05
    assert found.high < found.rate

  def test_what_nothing_is_known_of_is_refused(self):
    with pytest.raises(errors.FieldError, match=r"from 0.001 to 0.1, found"):
      gallery_thresholds.find(_CURVE, 0.2, 1, 1)
    with pytest.raises(errors.FieldError) as error:
      gallery_thresholds.find(_CURVE, 0.01, 50, 1)
    assert "at least 0.1 for a gallery of 50 identities" in str(error.value)
    assert "30 held-out classes, which are too few" in str(error.value)
    with pytest.raises(errors.FieldError, match=r"not be given for a gall"):
      gallery_thresholds.find(_CURVE, 0.1, 101, 1)


def draw_embeddings(generator, num_classes, images, dim=64):
  """Embeddings that spread like those of a model trained on Omniglot.

  The mean of its held-out classes has length 0.26. Around it their variances
  fall off nearly as exp(-i / 6.5), 0.73 in all, and those of images of a class
  as exp(-i / 13), 0.2 in all, more in some classes than in others.
  """
  variances = np.exp(-np.arange(dim) / np.array([[6.5], [13.0]]))
  variances *= np.array([[0.73], [0.2]]) / variances.sum(axis=1, keepdims=True)
  of_classes, of_images = np.sqrt(variances)
  centers = of_classes * generator.normal(size=(num_classes, 1, dim))
  centers[..., -1] += 0.26
  noise = of_images * generator.normal(size=(num_classes, images, dim))
  noise *= generator.uniform(0.65, 1.3, size=(num_classes, 1, 1))
  return centers + noise


def test_measured_curve():
  generator = np.random.default_rng(0)
  embeddings = draw_embeddings(generator, 40, 5, dim=16).reshape(-1, 16)
  labels = np.repeat(np.arange(40), 5)
  curve = gallery_thresholds.measure(embeddings, labels, sizes=(3, 100))
  assert json.loads(json.dumps(curve, allow_nan=False)) == curve
  # No class has ten images besides one to find.
  assert [part["images"] for part in curve["by_images"]] == [1, 3]
  part = curve["by_images"][1]
  assert (part["num_classes"], part["largest_measured_size"]) == (40, 38)
  measured = identification.Identification(
    embeddings, labels, images_of_identity=3, compared="mean"
  )
  for size, thresholds, low, high in zip(
    *(part[x] for x in ("size", "threshold", "fpir_low", "fpir_high")),
    strict=True,
  ):
    threshold = measured.threshold(0.1, size)
    assert thresholds[0] == pytest.approx(threshold, abs=1e-6)
    rate = measured.false_positive_rate(threshold, size)
    assert (low[0], high[0]) == pytest.approx((rate.low, rate.high), rel=1e-3)
    known = [x for x in thresholds if x is not None]
    assert sorted(known) == known
  # More identities, and more images, need a higher threshold.
  assert part["threshold"][1][0] > part["threshold"][0][0]
  assert part["threshold"][0][0] > curve["by_images"][0]["threshold"][0][0]
  # Nothing can be said of a gallery from two classes.
  assert gallery_thresholds.measure(embeddings[:10], labels[:10]) is None


def test_between_points_of_a_curve_its_rates_hold():
  generator = np.random.default_rng(7)
  centers = generator.normal(size=[200, 1, 8])
  embeddings = centers + 0.5 * generator.normal(size=[200, 4, 8])
  embeddings = embeddings.reshape(-1, 8)
  labels = np.repeat(np.arange(200), 4)
  curve = gallery_thresholds.measure(embeddings, labels)
  # The runner-up has thresholds for other scores.
  curve.pop("runner_up", None)
  measured = identification.Identification(
    embeddings, labels, images_of_identity=1, compared="mean"
  )
  for size in (5, 17, 50):
    for rate in (0.05, 0.02):
      promise = gallery_thresholds.find(curve, rate, size, 1)
      found = measured.false_positive_rate(promise.threshold, size).value
      # Lines between the points had up to 1.13 times the rate.
      assert 0.85 * rate < found < 1.05 * rate


@pytest.mark.parametrize("normalized", [False, True])
def test_embeddings_that_are_all_the_same_have_no_curve(normalized):
  embeddings, labels = np.ones([12, 4]), np.repeat(np.arange(4), 3)
  curve = gallery_thresholds.measure(embeddings, labels, normalized=normalized)
  assert curve is None


def _measure_truth(generator, images, sizes, num_classes=20_000):
  """Scores of other strangers in other galleries, by size.

  Args:
    sizes: For each size the weight of the runner-up.
  """
  scores = {size: [] for size in sizes}
  for _ in range(2):
    gallery = pairs.normalize(draw_embeddings(generator, num_classes, images))
    gallery = pairs.normalize(gallery.mean(axis=1, keepdims=True))
    strangers = pairs.normalize(draw_embeddings(generator, 5_000, 1)[:, 0])
    flat = gallery.reshape(-1, gallery.shape[2]).T.astype(np.float32)
    for some in np.split(strangers.astype(np.float32), 10):
      similarities = some @ flat
      for size, weight in sizes.items():
        by_gallery = similarities.reshape(-1, size)
        score = by_gallery.max(axis=1)
        if weight:
          score -= weight * np.partition(by_gallery, -2, axis=1)[:, -2]
        scores[size].append(score)
  return {size: np.sort(np.concatenate(x)) for size, x in scores.items()}


def test_trained_models_promise_holds_for_other_characters():
  # In Omniglot, 50 characters give thresholds, 20 others are enrolled with an
  # image each, and 30 are strangers; means over 10 draws.
  path = pathlib.Path(__file__).with_name("trained_embeddings.npz")
  embeddings = np.load(path)["embeddings"].reshape(100, 20, -1)
  unit = pairs.normalize(embeddings)
  generator = np.random.default_rng(0)
  accepted, ends = [], []
  for _ in range(10):
    order = generator.permutation(100)
    curve = gallery_thresholds.measure(
      unit[order[:50]].reshape(1_000, -1),
      np.repeat(np.arange(50), 20),
      sizes=(10, 30),
    )
    promise = gallery_thresholds.find(curve, 0.1, 20, 1)
    similarities = unit[order[70:]] @ unit[order[50:70], 0].T
    accepted.append(np.mean(similarities.max(axis=2) >= promise.threshold))
    ends.append((promise.low, promise.high))
  low, high = np.mean(ends, axis=0)
  assert low < np.mean(accepted) < high
  assert np.mean(accepted) == pytest.approx(0.1, rel=0.3)


@pytest.mark.slow
def test_promises_hold_in_other_galleries():
  # 1,000 held-out classes of 10 images; rates of 1 % and 0.1 %.
  generator = np.random.default_rng(0)
  sizes, rates, num_draws = {20: 0.0, 200: 0.4, 2_000: 0.0}, (0.01, 0.001), 20
  # The curve has 1 and 3 images of an identity.
  truth = {x: _measure_truth(generator, x, sizes) for x in (1, 2)}
  labels = np.repeat(np.arange(1_000), 10)
  num_held, few = {1: 0, 2: 0}, {size: 0 for size in sizes}
  for _ in range(num_draws):
    embeddings = draw_embeddings(generator, 1_000, 10).reshape(10_000, -1)
    curve = gallery_thresholds.measure(
      embeddings, labels, sizes=(10, 30, 100, 300, 1_000, 3_000)
    )
    for images, size, rate in itertools.product(truth, sizes, rates):
      promise = gallery_thresholds.find(curve, rate, size, images)
      assert promise.runner_up_weight == sizes[size]
      best = truth[images][size]
      measured = 1 - np.searchsorted(best, promise.threshold) / len(best)
      num_held[images] += promise.low <= measured <= promise.high
      few[size] += not promise.is_supported
  assert min(num_held.values()) >= 108
  # The ends of their intervals are within three times what was promised.
  assert few[20] == few[200] == 0
  # A gallery twice as large as all that is known: often too much for 0.1 %.
  assert few[2_000] > 0
