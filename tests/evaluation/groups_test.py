"""Tests of figures by group."""

import numpy as np
import pytest

from tff_fedemb.evaluation import groups
from tff_fedemb.evaluation import identification


def test_each_group_by_itself():
  # Classes of "far" are at right angles, those of "near" all but the same.
  generator = np.random.default_rng(0)
  labels = np.repeat(np.arange(60), 3)
  embeddings = np.zeros([60, 3, 60])
  embeddings[np.arange(60), :, np.arange(60)] = 1.0
  embeddings[20:40] = embeddings[20] + 0.1 * embeddings[20:40]
  # One image of a class of "far" is the negative of the others.
  embeddings[0, 0] *= -1
  embeddings += 1e-3 * generator.normal(size=embeddings.shape)
  names = np.repeat(["far", "near", "few", ""], [60, 60, 57, 3])
  (far, near), notes = groups.evaluate(
    embeddings.reshape(180, 60),
    labels,
    names,
    threshold=0.9,
    training_shares={"near": 0.25, "few": 0.1},
  )
  assert (far.name, near.name) == ("far", "near")
  assert (far.num_classes, near.num_classes) == (20, 20)
  assert far.far.value == 0.0
  assert near.far.value == 1.0
  assert (near.recall.value, near.recall.high) == (1.0, 1.0)
  # Both others, or one of two, of one of twenty classes are missed.
  assert 1 - far.recall.value in (
    pytest.approx(1 / 20),
    pytest.approx(1 / 40),
  )
  assert far.recall.low < far.recall.value < far.recall.high
  # Nobody of it trains.
  assert far.share_of_training_users == 0.0
  assert near.share_of_training_users == 0.25
  # All images set the threshold; a gallery of ten is of the group.
  whole = identification.Identification(embeddings.reshape(180, 60), labels)
  group = identification.Identification(
    embeddings[:20].reshape(60, 60), labels[:60]
  )
  use = identification.Operation(10, whole.threshold(0.01, 10))
  assert [far.fnir] == group.false_negative_rates([use])
  assert "1 of 3 groups, of fewer than 20 classes" in notes[0]
  assert notes[0].endswith(": few")
  assert "without noise" in notes[1]


def test_groups_of_few_classes_are_left_out():
  labels = np.repeat([0, 1], 2)
  found, notes = groups.evaluate(
    np.eye(4), labels, np.array(["few"] * 4), threshold=0.9
  )
  assert found == []
  assert notes == [
    "left out 1 of 1 groups, of fewer than 20 classes with two images: few"
  ]
