"""Tests of tasks from arrays."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import tensorflow_federated as tff

import tff_fedemb as fe
from tff_fedemb import errors
from tff_fedemb.evaluation import embedding
from tff_fedemb.models import backbones
from tff_fedemb.spec import array_task
from tff_fedemb.spec import experiment

_IMAGES = np.arange(5 * 4, dtype=np.uint8).reshape([5, 2, 2, 1])
_LABELS = np.array([7, 3, 7, 3, 9])
_USERS = np.array(["b", "a", "b", "c", "b"])
_TEST = (_IMAGES[:4] + 100, np.array([0, 0, 1, 1]))


def _create(**changes):
  values = {"images": _IMAGES, "labels": _LABELS, "users": _USERS}
  return array_task.ArrayTask(**{"test": _TEST, **values, **changes})


def test_a_client_has_the_rows_of_its_users():
  task = _create().create()
  read = task.build_dataset_computation()
  found = []
  # Slots are users in the order of their names.
  for client_id, rows in (("0", [1]), ("1", [0, 2, 4]), ("2\n0", [3, 1])):
    batches = list(read(client_id))
    images = np.concatenate([batch["x"].numpy() for batch in batches])
    found.append(np.concatenate([batch["y"].numpy() for batch in batches]))
    np.testing.assert_array_equal(images, _IMAGES[rows])
  # Labels count the classes from 0.
  assert [list(labels) for labels in found] == [[0], [1, 1, 2], [0, 0]]
  assert len(task.train_users) == 3
  assert task.num_train_classes == 3
  assert not task.one_class_per_user
  assert task.held_out_classes_are_new
  assert task.split_description == "4 images for test, and for validation too"


def test_held_out_images_are_as_they_were_given():
  task = _create(validation=(_TEST[0][:2], np.array([7, 5]))).create()
  found = task.load_images("test")
  np.testing.assert_array_equal(found.images, _TEST[0])
  np.testing.assert_array_equal(found.labels, _TEST[1])
  assert len(task.load_images("validation").labels) == 2
  split = "2 images for validation and 4 for test"
  assert task.split_description == split
  assert not task.held_out_classes_are_new
  counts = [task.count_images(s) for s in ("train", "validation", "test")]
  assert counts == [5, 2, 4]
  # The guarantee covers an evaluation if it is of nobody who trains.
  assert task.evaluation_on_training_users
  assert not _create(held_out_users=True).create().evaluation_on_training_users


def test_classes_may_have_names():
  labels = np.array(["elm", "ash", "elm", "ash", "fir"])
  test = _TEST[0], ["oak", "oak", "ash", "yew"]
  task = _create(labels=labels, test=test).create()
  (batch,) = task.build_dataset_computation()("1")
  # The names in their order are ash, elm, fir.
  assert batch["y"].numpy().tolist() == [1, 1, 2]
  assert task.load_images("test").labels.tolist() == [1, 1, 0, 2]
  assert task.class_names == {0: "ash", 1: "oak", 2: "yew"}
  assert not task.held_out_classes_are_new


def test_grey_pictures_need_no_axis_for_their_channel():
  same = _create(images=_IMAGES[..., 0], test=(_TEST[0][..., 0], _TEST[1]))
  assert same == _create()


def test_json_has_a_digest_and_no_array():
  same, other = _create(), _create(labels=_LABELS + 1)
  assert _create() == same
  assert same != other
  assert len({_create(), same, other}) == 2
  assert same.to_json()["images"] == [5, 2, 2, 1]
  # A claim about the users decides what may be told of a run.
  for said in ({"held_out_users": True}, {"user_meaning": "a device"}):
    assert _create(**said) != same
    assert _create(**said).to_json() == same.to_json() | said


def test_a_spec_is_shown_without_its_arrays():
  # A notebook shows what ends a cell: 450 lines were pixels.
  spec = fe.RunSpec(task=_create(), participation=fe.Poisson(users_per_round=1))
  shown = repr(fe.Result(spec, "runs/first"))
  assert shown.startswith(
    "Result(spec=RunSpec(task=ArrayTask(), participation="
  )
  assert "users_per_round=1" in shown
  assert "array(" not in shown


@pytest.mark.parametrize(
  ("changes", "name"),
  [
    ({"images": _IMAGES / 255}, "images"),
    ({"images": np.zeros([5, 6], int)}, "images"),
    ({"images": np.full([5, 2], np.nan)}, "images"),
    ({"images": _IMAGES[..., 0] / 255}, "images"),
    ({"labels": _LABELS[:4]}, "labels"),
    ({"labels": _LABELS / 2}, "labels"),
    ({"labels": np.array([1, 2, 3, 4, 2**63], np.uint64)}, "labels"),
    ({"users": _USERS[:4]}, "users"),
    ({"users": [1.0, np.nan, 1.0, 2.0, 3.0]}, "users"),
    ({"users": ["a", "b", None, "a", "b"]}, "users"),
    ({"users": np.ma.masked_equal([1, 2, 3, 4, 5], 3)}, "users"),
    ({"images": np.ma.masked_equal(_IMAGES, 3)}, "images"),
    ({"test": (_IMAGES[:2], [0.0, np.nan])}, "test"),
    ({"test": (_IMAGES[:, :1], _LABELS)}, "test"),
    ({"test": (_IMAGES, _LABELS[:2])}, "test"),
    ({"test": _IMAGES}, r"test must be a pair \(images, labels\), found a"),
    ({"validation": _IMAGES}, "validation"),
    ({"labels": list("abcab")}, "test must have labels that are strings if"),
    ({"labels": ["a", "b", None, "a", "b"]}, "labels"),
  ],
)
def test_arrays_that_do_not_fit_are_refused(changes, name):
  with pytest.raises(errors.FieldError, match=name):
    _create(**changes)


_UNIT = _IMAGES / 255
_WIDE = _IMAGES.astype(np.int64)
_WHITE = (_IMAGES > 12).astype(np.float32)
_VECTORS = np.linspace(-3, 5, 30).reshape(5, 6)
_NULLABLE = pd.DataFrame(_VECTORS).astype("Float64")


def _put(array, value):
  """The array with this value in row 2 alone."""
  array = array.copy()
  array[2, 0] = value
  return array


@pytest.mark.parametrize(
  "images",
  [
    _UNIT,
    _UNIT.astype(np.float32),
    _IMAGES.astype(np.float32),
    _WIDE,
    _IMAGES.astype(object),
    _IMAGES.tolist(),
    pd.Series(list(_IMAGES)),
    np.ma.masked_array(_IMAGES, mask=False),
  ],
)
def test_images_have_the_brightness_that_is_meant(images):
  test = np.stack(images)[:4]
  task = _create(images=images, test=(test, _TEST[1]))
  np.testing.assert_array_equal(task.images, _IMAGES)
  np.testing.assert_array_equal(task.test[0], _IMAGES[:4])
  assert task.images.dtype == task.test[0].dtype == np.uint8


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"images": _put(_UNIT, np.nan)}, "images must hold .* nan in row 2"),
    ({"images": _UNIT * 2 - 1}, "images must hold .* -1.0 in row 0"),
    ({"images": _WIDE - 5}, "images must hold .* 255, found -5 in row 0"),
    ({"images": _put(_WIDE, 256)}, "images must hold .* found 256 in row 2"),
    ({"images": _put(_WIDE, 2**40)}, "images must .* found 10995.* in row 2"),
    ({"images": _UNIT}, "images must .* in every split, found 0.0039"),
    ({"test": (_UNIT, _LABELS)}, "test must .* in every split, found 0.0039"),
    # White of one scale is nearly black on the other.
    ({"images": _WHITE}, "images must .* every split, found 1.0 in row 3"),
    ({"test": (_WHITE, _LABELS)}, "test must .* every split, found 1.0 in row"),
    (
      {"images": _put(_IMAGES.astype(object), None)},
      "images must have no missing value, found None in row 2",
    ),
    (
      {"images": _put(_IMAGES.astype(object), "2")},
      "images must hold numbers, found '2' in row 2",
    ),
    ({"images": [_IMAGES[0], _IMAGES[1, :1]]}, "images must be an array"),
    (
      {"images": _put(_VECTORS, np.nan)},
      "images must be finite as float32, found nan in row 2",
    ),
    (
      {"images": _put(_VECTORS, 1e300)},
      r"images must be finite as float32, found 1e\+300 in row 2",
    ),
    (
      {"images": _NULLABLE.mask(_NULLABLE > 4)},
      "images must have no missing value, found <NA> in row 4",
    ),
    (
      {"labels": pd.Series(_LABELS / 1).mask(_LABELS == 9)},
      "labels must have no missing value, found nan in row 4",
    ),
    ({"labels": _LABELS / 1}, "labels must be integers .* 7.0 in row 0"),
    ({"users": pd.Series([1, None, 1, 2, 3])}, "users must .* nan in row 1"),
    (
      {"users": pd.to_datetime(["2020-01-01", *4 * ["NaT"]])},
      "users must .* None in row 1",
    ),
    ({"users": ["a", "", "b", "", "c"]}, "users must .* '' in row 1"),
    (
      {"users": pd.array(["a", pd.NA, "b", pd.NA, "c"])},
      "users must .* <NA> in row 1",
    ),
    ({"users": ["a", 1, "b", "c", 2]}, "of one kind, found 1 in row 1"),
    (
      {"users": ["a", "a\0", "b", "c", "d"]},
      "without a NUL at the end, .* in row 1",
    ),
  ],
)
def test_what_would_mean_something_else_is_told_with_its_row(changes, message):
  with pytest.raises(errors.FieldError, match=message):
    _create(**changes)


@pytest.mark.parametrize("split", ["images", "test"])
def test_black_pictures_are_of_any_scale(split):
  black = np.zeros(_IMAGES.shape, np.float32)
  for others in (_IMAGES, _IMAGES.astype(np.float32)):
    given = {"images": others, "test": others} | {split: black}
    task = _create(images=given["images"], test=(given["test"], _LABELS))
    found = {"images": task.images, "test": task.test[0]}
    assert (found.pop(split).max(), found.popitem()[1].max()) == (0, 19)


def test_nullable_columns_are_vectors():
  task = _create(images=_NULLABLE, test=(_NULLABLE[:4], _TEST[1]))
  np.testing.assert_allclose(task.images, _VECTORS, rtol=1e-6)
  assert task.test[0].dtype == np.float32


def test_client_data_of_tff():
  pixels = np.linspace(0, 1, 6 * 4, dtype=np.float32).reshape(6, 2, 2)
  labels = np.array([5, 6, 5, 7, 7, 5], np.int32)
  clients = {"b": slice(0, 2), "a": slice(2, 6)}
  data = tff.simulation.datasets.TestClientData(
    {
      name: {"pixels": pixels[rows], "label": labels[rows]}
      for name, rows in clients.items()
    }
  )
  task = array_task.from_client_data(data, test=data)
  assert task.num_users == 2
  order = [2, 3, 4, 5, 0, 1] if task.users[0] == "a" else range(6)
  assert task.labels.tolist() == labels[list(order)].tolist()
  assert task.images.dtype == np.uint8
  np.testing.assert_array_equal(
    task.images[..., 0], np.round(255 * pixels[list(order)])
  )
  assert len(task.create().train_users) == 2


def _client_data(change, num_examples=4):
  pixels = np.arange(0, 256, 17).reshape(4, 2, 2)[:num_examples]
  return tff.simulation.datasets.TestClientData(
    {
      client: {"pixels": change(pixels), "label": np.arange(num_examples)}
      for client in ("c0", "c1")
    }
  )


def test_client_data_have_one_scale():
  """Pictures for test that are nearly black are none of floats up to 1."""
  task = array_task.from_client_data(
    _client_data(lambda x: x.astype(np.float32)),
    test=_client_data(lambda x: (x > 99).astype(np.float32)),
  )
  assert (task.images.max(), task.test[0].max()) == (255, 1)


@pytest.mark.parametrize(
  ("change", "options", "message"),
  [
    (lambda x: 2 * x, {}, r"pixels must .* 272 in an image of 'c0'"),
    (lambda x: x / 127.5 - 1, {}, r"pixels must .* -1\.0 in an image of 'c0'"),
    (
      lambda x: np.where(x > 99, np.nan, x / 255),
      {},
      r"pixels must .* nan in an image of 'c0'",
    ),
    (
      lambda x: x,
      {"image_key": "image"},
      "image_key must be one of label, pixels, found 'image'",
    ),
    (lambda x: x, {"label_key": "y"}, "label_key must be one of"),
  ],
)
def test_client_data_that_are_refused(change, options, message):
  data = _client_data(change)
  with pytest.raises(errors.FieldError, match=message):
    array_task.from_client_data(data, test=data, **options)


def test_client_data_without_an_example_are_refused():
  data, empty = _client_data(np.copy), _client_data(np.copy, num_examples=0)
  with pytest.raises(errors.FieldError, match="test must have clients with ex"):
    array_task.from_client_data(data, test=empty)


# Numbers of which none is a pixel, so that no byte is lost unnoticed.
_VALUES = np.linspace(-3, 5, 5 * 6)


@pytest.mark.parametrize(
  ("shape", "backbone"), [((6,), "dense"), ((3, 2), "conv1d")]
)
def test_examples_that_are_no_images(shape, backbone):
  values = _VALUES.reshape([5, *shape])
  source = _create(images=values, test=(values[:4], _TEST[1]))
  task = source.create()
  assert not task.has_images
  assert (task.image_shape, task.default_backbone) == (shape, backbone)
  (batch,) = task.build_dataset_computation()("1")
  np.testing.assert_array_equal(batch["x"], values[[0, 2, 4]].astype("f4"))
  assert batch["y"].numpy().tolist() == [1, 1, 2]
  embed = embedding.create_embedder(
    backbones.create_backbone(backbone, shape, embedding_dim=7)
  )
  assert embed(task.load_images("test").images).shape == (4, 7)
  spec = fe.RunSpec(
    task=source,
    participation=fe.FixedSize(users_per_round=2),
    algorithm=fe.FedEmb(local=fe.LocalTraining(augmentation="affine")),
    rounds=1,
  )
  with pytest.raises(errors.FieldError, match="augmentation must be none for"):
    experiment.resolve(spec, task)
  spec = dataclasses.replace(spec, algorithm=fe.FedEmb())
  with pytest.raises(errors.FieldError, match="export must not be given"):
    fe.train(spec, run_dir="none", lite=True)
