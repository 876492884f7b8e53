"""Tests of which images are taken, and of their labels."""

import os

import numpy as np
import pytest
from sklearn import datasets

from experiments import image_sources
from experiments.extraction import extracting
from tests.experiments.extraction import extractions
from tff_fedemb import errors
from tff_fedemb.features import feature_files


def test_classes_are_drawn_and_renumbered_in_order(tmp_path):
  found = extractions.extract(
    digits=True,
    embedding="pixels",
    num_classes=4,
    seed=3,
    output=tmp_path / "o.npz",
  )
  digits = datasets.load_digits()
  label_of = {
    tuple((pixels / 16).astype(np.float32)): label
    for pixels, label in zip(digits.data, digits.target, strict=True)
  }
  old = np.array([label_of[tuple(row)] for row in found.features])
  classes = np.unique(old)
  assert len(classes) == 4
  assert classes.tolist() != [0, 1, 2, 3]
  np.testing.assert_array_equal(np.searchsorted(classes, old), found.labels)
  # All of a class, in the order of the source.
  assert len(old) == np.isin(digits.target, classes).sum()
  np.testing.assert_array_equal(
    old, digits.target[np.isin(digits.target, classes)]
  )


def test_test_share_of_every_class(tmp_path, capsys):
  train = extractions.extract(
    digits=True,
    embedding="pixels",
    output=tmp_path / "train.npz",
    test_output=os.fspath(tmp_path / "test.tfrecord"),
    test_share=0.1,
  )
  test = feature_files.read_features(tmp_path / "test.tfrecord")
  sizes = np.bincount(datasets.load_digits().target)
  np.testing.assert_array_equal(np.bincount(test.labels), np.rint(sizes / 10))
  np.testing.assert_array_equal(
    np.bincount(train.labels) + np.bincount(test.labels), sizes
  )
  together, labels = extractions.sort_rows(
    np.concatenate([train.features, test.features]),
    np.concatenate([train.labels, test.labels]),
  )
  expected = datasets.load_digits()
  pixels, targets = extractions.sort_rows(expected.data / 16, expected.target)
  np.testing.assert_allclose(together, pixels, atol=1e-6)
  np.testing.assert_array_equal(labels, targets)
  output = capsys.readouterr().out
  assert f"train.npz: {len(train.labels):,} examples of 10 classes" in output
  assert sorted(os.listdir(tmp_path)) == ["test.tfrecord", "train.npz"]


@pytest.mark.parametrize(
  ("share", "size", "num_test"),
  [(0.25, 20, 5), (0.01, 20, 1), (0.99, 20, 19), (0.5, 2, 1), (0.9, 2, 1)],
)
def test_test_and_train_have_one_at_least(share, size, num_test):
  labels = np.repeat([5, 3], size)
  train, test = extracting.split_test(labels, share, np.random.default_rng(0))
  assert np.unique(labels[test], return_counts=True)[1].tolist() == [
    num_test,
    num_test,
  ]
  assert sorted([*train, *test]) == list(range(2 * size))


def test_test_files_need_two_images_of_a_class(
  models, folder, tmp_path, capsys
):
  options = {
    "saved_model": models["square"],
    "image_folder": folder,
    "output": tmp_path / "train.npz",
    "test_output": tmp_path / "test.npz",
  }
  with pytest.raises(
    errors.FieldError, match=r"test_output must be .* of class c "
  ):
    extractions.extract(**options)
  with pytest.raises(errors.FieldError, match="num_classes must be at most 2"):
    extractions.extract(**options, num_classes=3)
  assert os.listdir(tmp_path) == ["images"]
  # Those with two images are drawn.
  train = extractions.extract(**options, num_classes=2)
  assert np.bincount(train.labels).tolist() == [4, 1]
  assert "warning: classes were drawn from 2 of 3, those with 2 images" in (
    capsys.readouterr().out
  )


def test_classes_are_drawn_from_all_that_the_source_has():
  drawn = [
    extracting.choose_classes(
      image_sources.ImageSource(
        "images",
        np.array(labels, np.int64),
        lambda rows: iter(()),
        class_labels=np.arange(0, 40, 2),
      ),
      5,
      np.random.default_rng(0),
      min_images=0,
    )
    for labels in ([], [0, 0, 38], list(range(0, 40, 2)))
  ]
  expected = np.random.default_rng(0).choice(20, 5, replace=False)
  for labels, warnings in drawn:
    assert labels.tolist() == sorted(2 * expected)
    assert not warnings


@pytest.mark.parametrize("num_classes", [0, 7])
def test_number_of_images_changes_no_label(tmp_path, capsys, num_classes):
  options = {
    "digits": True,
    "embedding": "pixels",
    "num_classes": num_classes,
    "overwrite": True,
    "output": tmp_path / "o.npz",
  }
  found = extractions.extract(**options)
  label_of = {
    row.tobytes(): label
    for row, label in zip(found.features, found.labels, strict=True)
  }
  assert "warning" not in capsys.readouterr().out
  # The fewest images that have every drawn class, or that lack some.
  some = extractions.extract(**options, max_images=40 if num_classes else 6)
  for row, label in zip(some.features, some.labels, strict=True):
    assert label_of[row.tobytes()] == label
  if not num_classes:
    missing = sorted(set(range(10)) - set(some.labels))
    assert missing and missing[0] < some.labels.max()
    assert (
      f"warning: {len(missing)} of 10 classes have no example: label"
      f" {', '.join(map(str, missing[:5]))}"
    ) in capsys.readouterr().out


def test_folder_counts_sub_folders(folder, tmp_path, capsys):
  (folder / "ab").mkdir()
  (folder / "a" / "0.png").write_text("no picture")
  for value in (10, 11):
    (folder / "b" / f"{value}.png").write_text("no picture")
  options = {
    "image_folder": folder,
    "embedding": "pixels",
    "image_size": 2,
    "output": tmp_path / "o.npz",
    "on_bad_example": "skip",
    "overwrite": True,
  }
  with pytest.raises(errors.DataError, match="--on_bad_example=skip"):
    extractions.extract(**{**options, "on_bad_example": "fail"})
  assert not options["output"].exists()
  # Of class c there is one image.
  with pytest.raises(errors.FieldError, match="one image of class c "):
    extractions.extract(**options, test_output=tmp_path / "t.npz")
  found = extractions.extract(**options)
  # a, ab, b and c.
  assert found.labels.tolist() == [0] * 4 + [3]
  output = capsys.readouterr().out
  assert "warning: 2 of 4 classes have no example: label 1, 2" in output
  assert "3 files could not be read and were skipped: " in output
  for path in folder.glob("*/*.png"):
    path.write_text("no picture")
  before = options["output"].read_bytes()
  with pytest.raises(
    errors.FieldError,
    match="on_bad_example must leave one image or more, found none of 8 ",
  ):
    extractions.extract(**options)
  assert options["output"].read_bytes() == before


def test_what_max_images_leaves_is_checked_before(tmp_path, monkeypatch):
  monkeypatch.setattr(extracting.image_sources, "embed_rows", None)
  options = {
    "digits": True,
    "embedding": "pixels",
    "output": tmp_path / "o.npz",
  }
  with pytest.raises(errors.FieldError, match=r"found .* of the 10"):
    extractions.extract(**options, num_classes=10, max_images=5)
  with pytest.raises(errors.FieldError, match="test_output must be"):
    extractions.extract(**options, test_output=tmp_path / "t.npz", max_images=5)
