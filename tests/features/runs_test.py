"""Tests of holding examples out."""

import numpy as np
import pytest

from tff_fedemb import errors
from tff_fedemb.features import feature_files
from tff_fedemb.features import runs


def _create(num_examples, users=None):
  features = np.ones([num_examples, 2], np.float32)
  labels = np.arange(num_examples) % 2
  return feature_files.FeatureSet(features, labels, users)


@pytest.mark.parametrize("users", [None, np.array(["a", "b", "c", "d"])])
@pytest.mark.parametrize(("share", "num_held"), [(0.1, 1), (0.5, 2), (0.9, 3)])
def test_one_is_left_on_either_side(share, num_held, users):
  left, held = runs.hold_out(_create(4, users), share)
  assert (len(left.labels), len(held.labels)) == (4 - num_held, num_held)


@pytest.mark.parametrize(
  ("num_examples", "users"), [(1, None), (3, np.array(["a", "a", "a"]))]
)
def test_one_unit_cannot_be_split(num_examples, users):
  with pytest.raises(errors.FieldError, match=r"two or more .*, found 1 of"):
    runs.hold_out(_create(num_examples, users), 0.5)


def test_files_must_number_their_classes_alike():
  def create(*names):
    features = np.ones([len(names), 2], np.float32)
    return feature_files.FeatureSet(
      features, np.arange(len(names)), class_names=np.array(names)
    )

  train = create("ann", "bob", "cat")
  for fine in (create("ann", "bob"), _create(2)):
    fine.check_numbers_classes_as(train)
    train.check_numbers_classes_as(fine)
  with pytest.raises(errors.FieldError, match="in which 0 is ann, found bob"):
    create("bob", "cat").check_numbers_classes_as(train)
