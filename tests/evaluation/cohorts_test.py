"""Tests of normalization by a cohort."""

import numpy as np
import pytest

from tests.evaluation import clusters
from tff_fedemb import errors
from tff_fedemb.evaluation import cohorts
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import pairs


def _data(num_classes=9):
  embeddings, labels = clusters.draw(num_classes, 4, spread=0.4, dim=5)
  return pairs.normalize(embeddings), labels


def _offset(probe, embeddings, labels):
  """Half the mean cosine with the five nearest classes' means."""
  means = [embeddings[labels == x].mean(axis=0) for x in np.unique(labels)]
  cosines = [probe @ mean / np.linalg.norm(mean) for mean in means]
  return 0.5 * np.mean(np.sort(cosines)[-5:])


def test_offsets_are_of_the_nearest_classes():
  embeddings, labels = _data()
  order = np.random.default_rng(1).permutation(len(labels))
  cohort = cohorts.Cohort(3 * embeddings[order], labels[order])
  offsets = cohort.offsets(embeddings[:3])
  expected = [_offset(probe, embeddings, labels) for probe in embeddings[:3]]
  np.testing.assert_allclose(offsets, expected)
  # Probes of the cohort are no part of it, nor is whom they are compared with.
  without = cohort.offsets_without(embeddings[::4], labels[::4])
  for own in range(9):
    for other in set(range(9)) - {own}:
      is_left = ~np.isin(labels, [own, other])
      expected = _offset(
        embeddings[4 * own], embeddings[is_left], labels[is_left]
      )
      assert without[own, other] == pytest.approx(expected)


def test_few_classes():
  embeddings, labels = _data(3)
  cohort = cohorts.Cohort(embeddings, labels)
  offsets = cohort.offsets(embeddings[:1])
  assert offsets[0] == pytest.approx(
    0.5 * (embeddings[:1] @ cohort.means.T).max()
  )
  for count in (0, 2):
    rows = labels < count
    with pytest.raises(errors.FieldError, match=f"3 classes .*found {count}"):
      cohorts.Cohort(embeddings[rows], labels[rows])


def test_identification_by_a_cohort():
  embeddings, labels = _data()
  measured = identification.Identification(
    embeddings, labels, images_of_identity=2, compared="mean", normalized=True
  )
  means = embeddings[measured.enrolled].mean(axis=1)
  means /= np.linalg.norm(means, axis=1, keepdims=True)
  scores = np.full([len(labels), 9], -np.inf)
  for row, own in enumerate(labels):
    for other in set(range(9)) - {own}:
      is_left = ~np.isin(labels, [own, other])
      offset = _offset(embeddings[row], embeddings[is_left], labels[is_left])
      scores[row, other] = embeddings[row] @ means[other] - offset
  threshold = np.sort(scores, axis=None)[-20]
  # A gallery of one is each other class in turn.
  expected = np.mean((scores >= threshold - 1e-9).sum(axis=1) / 8)
  found = measured.false_positive_rate(threshold - 1e-9, 1)
  assert found.value == pytest.approx(expected)
