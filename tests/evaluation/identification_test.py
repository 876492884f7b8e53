"""Tests of identification: who is this, in a gallery of many?"""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
from scipy import stats

from tests.evaluation import clusters
from tff_fedemb import errors
from tff_fedemb.evaluation import identification

Operation = identification.Operation


def _at_degrees(degrees, images=2):
  angles = np.radians(np.repeat(degrees, images))
  labels = np.repeat(np.arange(len(degrees)), images)
  return np.stack([np.cos(angles), np.sin(angles)], axis=1), labels


_clustered = functools.partial(clusters.draw, spread=0.5, dim=3)


class _OneByOne:
  """All galleries, one after the other; each with the images enrolled."""

  def __init__(self, embeddings, labels, enrolled, compared="nearest"):
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    self.labels = labels
    self.is_probe = ~np.isin(np.arange(len(labels)), enrolled)
    self.similarities = np.stack(
      [(unit @ unit[rows].T).max(axis=1) for rows in enrolled], axis=1
    )
    if compared == "mean":
      means = unit[enrolled].mean(axis=1)
      means /= np.linalg.norm(means, axis=1, keepdims=True)
      self.similarities = unit @ means.T

  def fpir(self, size, threshold):
    rates = []
    for stranger in np.unique(self.labels):
      probes = self.similarities[self.labels == stranger]
      others = np.delete(np.unique(self.labels), stranger)
      for gallery in itertools.combinations(others, size):
        best = probes[:, gallery].max(axis=1)
        rates.append(np.mean(best >= threshold))
    return np.mean(rates)

  def fnir(self, size, threshold, rank):
    rates = []
    for mate in np.unique(self.labels):
      probes = self.similarities[(self.labels == mate) & self.is_probe]
      others = np.delete(np.unique(self.labels), mate)
      for gallery in itertools.combinations(others, size - 1):
        own = probes[:, mate]
        better = (probes[:, gallery] >= own[:, None]).sum(axis=1)
        rates.append(np.mean((better >= rank) | (own < threshold)))
    return np.mean(rates)


class TestStrangers:
  def test_hand_computed(self):
    # Cosines: 0.5 of 0 and 60, 0.87 of 60 and 90 degrees, the others at most 0.
    measured = identification.Identification(*_at_degrees([0, 60, 90, 180]))
    assert (measured.num_classes, measured.largest_size) == (4, 2)
    # Strangers reach 1, 2, 1 and 0 of 3 others at 0.5 and above.
    assert measured.false_positive_rate(0.5, 1).value == pytest.approx(1 / 3)
    # One of three galleries of two lacks one of the three, none lacks two.
    expected = (2 / 3 + 1 + 2 / 3 + 0) / 4
    assert measured.false_positive_rate(0.5, 2).value == pytest.approx(expected)
    # A gallery half as large again: at most half as much again.
    larger = measured.false_positive_rate(0.5, 3)
    assert larger.value == pytest.approx(1.5 * expected)
    assert larger.low == measured.false_positive_rate(0.5, 2).low
    assert measured.threshold(0.34, 1) == pytest.approx(0.5)
    # Only those at 0.87: 1 of 3 galleries, for two of four.
    assert measured.threshold(0.33, 1) == pytest.approx(np.sqrt(3) / 2)
    assert measured.threshold(1 / 6 - 1e-9, 1) is None
    assert measured.threshold(1 / 3 + 1e-9, 2) == pytest.approx(np.sqrt(3) / 2)

  def test_interval_is_the_jackknifes(self):
    degrees = [0, 40, 55, 90, 180, 200]

    def measure(degrees):
      measured = identification.Identification(*_at_degrees(degrees))
      return measured.false_positive_rate(0.7, 2)

    rate = measure(degrees)
    without = [measure(np.delete(degrees, k)).value for k in range(6)]
    variance = 5 * np.var(without)
    number = rate.value * (1 - rate.value) / variance
    hits = rate.value * number
    low = stats.beta.ppf(0.025, hits, number - hits + 1)
    high = stats.beta.ppf(0.975, hits + 1, number - hits)
    assert (rate.low, rate.high) == pytest.approx((low, high))

  def test_none_and_all_are_as_of_the_classes(self):
    measured = identification.Identification(*_at_degrees([0, 90, 180]))
    none = measured.false_positive_rate(0.5, 1)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 3))
    every = measured.false_positive_rate(-1.0, 1)
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(0.025 ** (1 / 3))


@pytest.mark.parametrize(
  ("images", "compared"), [(1, "nearest"), (2, "nearest"), (2, "mean")]
)
def test_all_galleries_one_by_one(images, compared):
  data = _clustered(6, 4)
  measured = identification.Identification(
    *data, images_of_identity=images, compared=compared
  )
  one_by_one = _OneByOne(*data, measured.enrolled, compared)
  uses = [
    Operation(*use) for use in [(2,), (4, 0.8), (4, 0.3, 2), (3, -1.0, 2)]
  ]
  for use, rate in zip(uses, measured.false_negative_rates(uses), strict=True):
    assert rate.value == pytest.approx(
      one_by_one.fnir(use.size, use.threshold, use.rank)
    )
    assert rate.low <= rate.value <= rate.high
    assert measured.false_positive_rate(
      use.threshold, use.size
    ).value == pytest.approx(one_by_one.fpir(use.size, use.threshold))


def test_interval_of_the_enrolled_is_the_jackknifes():
  embeddings, labels = _at_degrees([0, 20, 50, 90, 95, 200], images=3)
  embeddings = embeddings + np.tile([[0, 0], [0.3, 0], [0, 0.3]], (6, 1))
  kept = identification.Identification(embeddings, labels)
  # One image of a class is enrolled; the same one without another class.
  order = np.concatenate(
    [
      [kept.enrolled[k, 0]]
      + [i for i in np.flatnonzero(labels == k) if i != kept.enrolled[k, 0]]
      for k in range(6)
    ]
  )
  embeddings = embeddings[order].reshape(6, 3, 2)
  labels, enrolled = np.repeat(np.arange(5), 3), 3 * np.arange(5)[:, None]
  one_by_one = [
    _OneByOne(
      np.delete(embeddings, k, axis=0).reshape(15, 2), labels, enrolled
    ).fnir(3, 0.95, 1)
    for k in range(6)
  ]
  (rate,) = kept.false_negative_rates([Operation(3, 0.95)])
  number = rate.value * (1 - rate.value) / (5 * np.var(one_by_one))
  assert 0 < rate.value < 1
  assert rate.high == pytest.approx(
    stats.beta.ppf(0.975, rate.value * number + 1, number * (1 - rate.value))
  )


def test_det_falls_and_confusions_are_counted():
  embeddings, labels = _clustered(8, 4)
  measured = identification.Identification(embeddings, labels)
  points = measured.det(5)
  assert len(points) > 10
  fpir = [point.fpir.value for point in points]
  fnir = [point.fnir.value for point in points]
  assert fpir == sorted(fpir)
  assert fnir == sorted(fnir, reverse=True)
  # Images of two classes are the same; there is no other mistake.
  same, _ = _at_degrees([0, 0, 120, 240])
  names = np.repeat(["ann", "bob", "cyd", "dan"], 2)
  measured = identification.Identification(same, names)
  assert measured.labels.tolist() == ["ann", "bob", "cyd", "dan"]
  assert measured.confusions().tolist() == [
    [0, 1, 0, 0],
    [1, 0, 0, 0],
    [0, 0, 1, 0],
    [0, 0, 0, 1],
  ]


def test_large_comparisons_keep_the_highest(monkeypatch):
  data = _clustered(9, 5)
  whole = identification.Identification(*data)
  monkeypatch.setattr(identification, "_MAX_EVENTS", 100)
  monkeypatch.setattr(identification, "_BLOCK_SIZE", 50)
  part = identification.Identification(*data)
  for rate in (0.01, 0.05):
    assert part.threshold(rate, 3) == whole.threshold(rate, 3)
  # The lowest that is known accepts fewer than it might.
  assert part.threshold(0.9, 3) > whole.threshold(0.9, 3)
  (found,), (expected,) = (
    each.false_negative_rates([Operation(3)]) for each in (part, whole)
  )
  assert found.value == pytest.approx(expected.value)
  # Rates below the lowest that is known are measured anew.
  for threshold in (0.9, 0.0, -0.9, -1.0):
    for size in (1, 3, 20):
      found, expected = (
        dataclasses.astuple(each.false_positive_rate(threshold, size))
        for each in (part, whole)
      )
      assert found == pytest.approx(expected)


def test_det_of_embeddings_that_coincide_is_one_point(monkeypatch):
  monkeypatch.setattr(identification, "_MAX_EVENTS", 10)
  data = np.ones([12, 2]), np.repeat(range(4), 3)
  (point,) = identification.Identification(*data).det(2)
  assert (point.threshold, point.fpir.value, point.fnir.value) == (1, 1, 1)


def test_too_few_classes_are_refused():
  with pytest.raises(errors.FieldError, match="3 classes of 3 images or more"):
    identification.Identification(
      *_at_degrees([0, 90, 180]), images_of_identity=2
    )
