"""Tests of data sets of TensorFlow Datasets, in its own format, as a task."""

import collections
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tasks import task_config
from tasks import tfds as tfds_task
from tests.tasks import clients
from tff_fedemb import errors
from tff_fedemb.data import photo_splits
from tff_fedemb.run import task as task_lib

_CLASSES = tuple("abcdefgh")
_WRITERS = ("ann", "bob", "cid")


def _draw(writer, label, number):
  """An image of one colour, which says what it is of."""
  image = np.zeros([6, 8, 3], np.uint8)
  image[...] = (60 * writer + 30, 30 * label, 80 * number)
  return image


class Tiny(tfds.core.GeneratorBasedBuilder):
  """An image of each class by each writer, in each of three splits."""

  VERSION = tfds.core.Version("1.0.0")

  def _info(self):
    features = tfds.features.FeaturesDict(
      {
        "image": tfds.features.Image(shape=(None, None, 3)),
        "objects": {
          "writer": tfds.features.Text(),
          "boxes": tfds.features.Sequence({"x": np.float32}),
        },
        "label": tfds.features.ClassLabel(names=_CLASSES),
        "page": np.int64,
      }
    )
    return tfds.core.DatasetInfo(builder=self, features=features)

  def _split_generators(self, dl_manager):
    return {
      split: self._generate_examples(n)
      for n, split in enumerate(("train", "test", "extra"))
    }

  def _generate_examples(self, number):
    for writer, name in enumerate(_WRITERS):
      for label in range(len(_CLASSES)):
        yield (
          f"{name} {label}",
          {
            "image": _draw(writer, label, number),
            "objects": {"writer": name, "boxes": [{"x": 0.5}]},
            "label": label,
            "page": label // 4,
          },
        )


@pytest.fixture(name="data_dir", scope="module")
def _data_dir(tmp_path_factory):
  path = tmp_path_factory.mktemp("tfds")
  Tiny(data_dir=path).download_and_prepare()
  return path


@pytest.fixture(name="create")
def _create(data_dir, tmp_path):
  def create(**options):
    values = {
      "tfds_name": "tiny",
      "tfds_user": "objects/writer",
      "data_dir": os.fspath(data_dir),
      "cache_dir": os.fspath(tmp_path / "cache"),
      "image_size": 6,
    }
    return task_lib.create_task("tfds", **values | options).create()

  return create


def test_images_are_those_of_their_users(create):
  task = create()
  assert len(task.train_users) == len(_WRITERS)
  # Some classes are held out, by their names.
  splits = photo_splits.draw(_CLASSES, np.ones(len(_CLASSES), bool), 2)
  trained = np.flatnonzero(splits == 0)
  assert task.num_train_classes == len(trained)
  assert task.held_out_classes_are_new and not task.one_class_per_user
  contents, labels = clients.read_client(task, "2\n0")
  found = collections.Counter()
  for image, label in zip(task.decode_images(contents), labels, strict=True):
    assert image.shape == (6, 6, 3)
    found[(*image[3, 3].numpy().tolist(), int(label))] += 1
  assert found == collections.Counter(
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
  assert task.name == "tfds"
  assert task.user_meaning == "a value of objects/writer in tiny"
  assert task.split_description.startswith("tiny; ")


def test_a_class_is_a_user_where_none_is_given(create):
  task = create(tfds_user=None)
  assert task.one_class_per_user
  assert not task.evaluation_on_training_users
  assert len(task.train_users) == task.num_train_classes == 4
  # Numbers are names too.
  assert len(create(tfds_user="page", hold_out="classes").train_users) == 2


def test_the_copy_is_made_once(create, monkeypatch):
  first = create()
  monkeypatch.setattr(tfds.core.DatasetBuilder, "as_dataset", None)
  assert create().split_description == first.split_description


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
  with pytest.raises(errors.FieldError, match=message) as error:
    create(**options)
  assert "\n" not in str(error.value)


def _write(path, images, labels, split="train"):
  """Prepares a data set without code of its own."""
  tfds.dataset_builders.store_as_tfds_dataset(
    name="made",
    version="1.0.0",
    features=tfds.features.FeaturesDict(
      {
        "picture": tfds.features.Image(shape=(6, 8, 3)),
        "label": tfds.features.ClassLabel(num_classes=8),
      }
    ),
    split_datasets={
      split: tf.data.Dataset.from_tensor_slices(
        {"picture": images, "label": labels}
      )
    },
    data_dir=path,
  )


def test_what_cannot_be_used_is_refused_or_left_out(tmp_path, create):
  labels = np.repeat(np.arange(8), 4)
  images = np.stack([_draw(i % 4, y, 0) for i, y in enumerate(labels)])
  labels[5] = -1
  _write(tmp_path, images, labels)
  options = {"tfds_name": "made", "tfds_user": None, "data_dir": str(tmp_path)}
  with pytest.raises(
    errors.DataError, match=r"1 bad example: row \d+: no user"
  ):
    create(**options)
  assert len(create(**options, on_bad_example="skip").bad_examples) == 1
  with pytest.raises(errors.FieldError, match="tfds_name must hold photos of"):
    _write(tmp_path / "one", images[:4], labels[:4])
    create(**options | {"data_dir": str(tmp_path / "one")})
  with pytest.raises(errors.FieldError, match=r"a split train, .* extra in"):
    _write(tmp_path / "extra", images, labels, split="extra")
    create(**options | {"data_dir": str(tmp_path / "extra")})
  # Not all of a file is there.
  (record,) = tmp_path.glob("made/1.0.0/*.tfrecord*")
  record.write_bytes(record.read_bytes()[:-50])
  with pytest.raises(errors.DataError, match="must be a data set that can be"):
    create(**options, tfds_label="label", cache_dir=str(tmp_path / "other"))


def test_fields_are_those_of_the_task():
  assert task_config.TfdsConfig(tfds_name="a").chooses_settings
  with pytest.raises(errors.FieldError, match="hold_out must be one of"):
    tfds_task.create_tfds_task(task_config.TfdsConfig(hold_out="none"))
