"""Tests of data sets of TensorFlow Datasets, in its own format, as a task."""

import collections
import os
import re

from etils import epy
import numpy as np
import pytest
import tensorflow as tf

from tests.tasks import clients
from tff_fedemb import errors
from tff_fedemb.data import photo_listing
from tff_fedemb.spec import task as task_lib

# Importing it takes two seconds, which not every process of the tests needs.
with epy.lazy_imports():
  import tensorflow_datasets as tfds

_CLASSES = tuple("abcdefgh")
_WRITERS = ("ann", "bob", "cid")


def _draw(writer, label, number):
  """An image of one colour, which says what it is of."""
  image = np.zeros([6, 8, 3], np.uint8)
  image[...] = (60 * writer + 30, 30 * label, 80 * number)
  return image


def _store(path, name, features, splits):
  """Prepares a data set without code of its own."""
  tfds.dataset_builders.store_as_tfds_dataset(
    name=name,
    version="1.0.0",
    features=tfds.features.FeaturesDict(features),
    split_datasets={
      split: tf.data.Dataset.from_tensor_slices(examples)
      for split, examples in splits.items()
    },
    data_dir=path,
  )


@pytest.fixture(name="data_dir", scope="module")
def _data_dir(tmp_path_factory):
  """An image of each class by each writer, in each of three splits."""
  path = tmp_path_factory.mktemp("tfds")
  features = {
    "image": tfds.features.Image(shape=(None, None, 3)),
    "objects": {
      "writer": tfds.features.Text(),
      "boxes": tfds.features.Sequence({"x": np.float32}),
    },
    "label": tfds.features.ClassLabel(names=_CLASSES),
    "page": np.int64,
  }
  writers, labels = np.indices([len(_WRITERS), len(_CLASSES)]).reshape(2, -1)
  splits = {
    split: {
      "image": np.stack(
        [_draw(*x, number) for x in zip(writers, labels, strict=True)]
      ),
      "objects": {
        "writer": np.array(_WRITERS)[writers],
        "boxes": {"x": np.full([len(labels), 1], 0.5, np.float32)},
      },
      "label": labels,
      "page": labels // 4,
    }
    for number, split in enumerate(("train", "test", "extra"))
  }
  _store(path, "tiny", features, splits)
  return path


@pytest.fixture(name="create")
def _create(data_dir, tmp_path):
  def create(data_dir=data_dir, **options):
    values = {"tfds_name": "tiny", "tfds_user": "objects/writer"} | options
    folders = {"data_dir": data_dir, "cache_dir": tmp_path / "cache"}
    values |= {name: os.fspath(path) for name, path in folders.items()}
    return task_lib.create_task("tfds", image_size=6, **values).create()

  return create


def test_images_are_those_of_their_users(create, monkeypatch, caplog):
  task = create()
  assert len(task.train_users) == len(_WRITERS)
  # Some classes are held out, by their names.
  splits = photo_listing.draw_splits(_CLASSES, np.ones(len(_CLASSES), bool), 2)
  trained = np.flatnonzero(splits == 0)
  assert task.num_train_classes == len(trained)
  contents, labels = clients.read_client(task, "2\n0")
  images = task.decode_images(contents).numpy()
  assert images.shape[1:] == (6, 6, 3)
  found = zip(images[:, 3, 3].tolist(), labels.tolist(), strict=True)
  assert collections.Counter((*x, y) for x, y in found) == collections.Counter(
    (*_draw(writer, label, number)[0, 0].tolist(), place)
    for writer in (2, 0)
    for place, label in enumerate(trained)
    for number in range(2)
  )
  test = task.load_images("test")
  assert test.images[:].shape == (12, 6, 6, 3)
  assert {task.class_names[y] for y in test.labels.tolist()} == {
    _CLASSES[i] for i in np.flatnonzero(splits == 2)
  }
  assert task.user_meaning == "a value of objects/writer in tiny"
  assert task.split_description.startswith("tiny; ")
  # The copy is made once.
  monkeypatch.setattr(tfds.core.DatasetBuilder, "as_dataset", None)
  assert create().split_description == task.split_description
  # TensorFlow Datasets warns of its own code.
  assert not caplog.records


def test_a_class_is_a_user_where_none_is_given(create):
  task = create(tfds_user=None)
  assert task.one_class_per_user
  assert not task.evaluation_on_training_users
  assert len(task.train_users) == task.num_train_classes == 4
  assert task.user_meaning == "a class of tiny"
  # Numbers are names too.
  assert len(create(tfds_user="page").train_users) == 2


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"tfds_name": None}, "tfds_name must be given for task tfds"),
    ({"tfds_name": "mnist"}, "nothing is downloaded, found no .*mnist/VERSION"),
    ({"tfds_user": "writer"}, "one of label, objects/writer, page, found 'w"),
    ({"tfds_label": "image"}, "tfds_label must be one of label, objects/w"),
    ({"task_variant": "small"}, "task_variant must be one of all"),
    # There are no images for validation.
    ({"hold_out": "split_column"}, "hold_out must leave two classes for valid"),
  ],
)
def test_mistakes_are_told_in_one_line(create, options, message):
  assert re.search(message, clients.read_error(create, **options))


def _write(path, labels, split="train"):
  images = np.stack([_draw(i % 4, i // 4, 0) for i in range(len(labels))])
  features = {
    "picture": tfds.features.Image(shape=(6, 8, 3)),
    "label": tfds.features.ClassLabel(
      names=[f"{n}{mark}" for n in range(4) for mark in "|/"]
    ),
  }
  examples = {"picture": images, "label": labels}
  _store(path, "made", features, {split: examples})
  return {"tfds_name": "made", "tfds_user": None, "data_dir": path}


def test_what_cannot_be_used_is_refused_or_left_out(tmp_path, create):
  labels = np.repeat(np.arange(8), 4)
  one = _write(tmp_path / "one", labels[:4])
  assert "tfds_name must hold photos of" in clients.read_error(create, **one)
  extra = _write(tmp_path / "extra", labels, split="extra")
  assert "found splits extra and" in clients.read_error(create, **extra)
  # Nobody labelled an image.
  labels[5] = -1
  options = _write(tmp_path, labels)
  message = clients.read_error(create, **options)
  assert re.search(r"1 bad example: row \d+: no user", message)
  task = create(**options, on_bad_example="skip")
  assert len(task.bad_examples) == 1
  # A bar is part of a class's name here: it separates no owners, and 0| and 0/
  # are two users.
  assert len(task.train_users) == 4
  assert task.one_class_per_user and not task.evaluation_on_training_users
  # Not all of a file is there.
  (record,) = tmp_path.glob("made/1.0.0/*.tfrecord*")
  record.write_bytes(record.read_bytes()[:-50])
  (tmp_path / "cache").rename(tmp_path / "old")
  with pytest.raises(errors.DataError, match="must be a data set that can be"):
    create(**options)


def test_images_of_real_numbers_are_refused(tmp_path, create):
  images = np.zeros([8, 6, 8, 1], np.float32)
  features = {
    "image": tfds.features.Image(shape=(6, 8, 1), dtype=np.float32),
    "label": tfds.features.ClassLabel(num_classes=8),
  }
  examples = {"image": images, "label": np.arange(8)}
  _store(tmp_path, "real", features, {"train": examples})
  message = clients.read_error(
    create, tfds_name="real", tfds_user=None, data_dir=tmp_path
  )
  assert "one image of 8 or 16 bits an example" in message
