"""Tests of the task of one's own photos: folders and tables."""

import os

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from tasks import photos
from tasks import task_config
from tests.tasks import clients
from tests.tasks import trees
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_listing


def test_classes_are_held_out(root, create):
  task = create()
  assert len(task.train_users) == 4
  assert task.num_train_classes == 4
  assert task.evaluation_on_training_users
  assert task.held_out_classes_are_new
  assert not task.one_class_per_user
  # The images of two users, slots by name and classes by name.
  trained = trees.train_labels()
  contents, labels = clients.read_client(task, "3\n0")
  assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] * 2
  assert contents[0] == (root / "ann" / trained[0] / "0.jpg").read_bytes()
  assert contents[-1] == (root / "dan" / trained[3] / "1.jpg").read_bytes()
  assert task.decode_images(contents).shape == (16, trees.SIDE, trees.SIDE, 3)
  named = []
  for split in ("validation", "test"):
    images = task.load_images(split)
    assert images.images[:].shape == (16, trees.SIDE, trees.SIDE, 3)
    assert images.labels.min() >= 4
    names = [task.class_names[y] for y in np.unique(images.labels)]
    assert f"{split}: 16 images of 2 of 8 classes ({', '.join(names)})" in (
      task.split_description
    )
    named += names
  assert sorted(named + trained) == list(trees.CLASSES)


def test_users_are_held_out(root, create):
  task = create(hold_out="users", color_mode="grayscale")
  assert len(task.train_users) == 2
  assert task.num_train_classes == len(trees.CLASSES)
  assert not task.evaluation_on_training_users
  assert not task.held_out_classes_are_new
  assert task.warnings == ()
  images = task.load_images("test").images[:2]
  assert images.shape == (2, trees.SIDE, trees.SIDE, 1)


def test_people_are_users_and_classes(tmp_path, create):
  root = trees.write_people(tmp_path / "data")

  def check():
    task = create(hold_out="users")
    assert task.one_class_per_user
    assert not task.evaluation_on_training_users
    assert len(task.train_users) == task.num_train_classes == 8
    assert task.warnings == ()
    assert clients.read_client(task, "1\n0")[1].tolist() == [0] * 3 + [1] * 3
    return task.user_meaning, task.split_description

  meaning, description = check()
  assert meaning == "a person with a folder of images, who is a class as well"
  # The same with a folder of a class within each.
  for person in list(root.iterdir()):
    person.rename(tmp_path / person.name)
    person.mkdir()
    (tmp_path / person.name).rename(person / person.name)
  assert check() == ("the owner of a folder of photos", description)


def test_people_of_one_image_are_trained_on(tmp_path, create):
  root = trees.write_people(tmp_path / "data")
  assert len(create().train_users) == 8
  for person in range(30):
    trees.write(root, f"single {person}/1.jpg")
  task = create()
  # Two and two of the 12 that could be held out are.
  assert len(task.train_users) == 38


class TestIndex:
  def _labels(self, task):
    return sorted(trees.read_labels(task))

  def test_is_found_again_until_something_changes(
    self, root, create, monkeypatch
  ):
    first = create()
    with monkeypatch.context() as patch:
      patch.setattr(photo_folder, "list_folder", None)
      again = create()
    assert again.split_description == first.split_description
    np.testing.assert_array_equal(self._labels(again), self._labels(first))
    trees.write(root, "ann/new/0.jpg")
    assert "of 9 classes" in create().split_description
    # The task that was made before is on the photos of then.
    assert self._labels(again) == self._labels(first)

  def test_a_damaged_one_is_made_again(self, root, create, tmp_path):
    create()
    (path,) = (tmp_path / "cache").glob("photos_*.sqlite")
    path.write_bytes(path.read_bytes()[:5000])
    assert len(create().train_users) == 4

  def test_a_photo_under_an_old_name_is_seen(self, root, create, monkeypatch):
    create()
    photo = root / "ann" / "a" / "0.jpg"
    # Written where it lies, so that its folder does not change.
    photo.write_bytes(b"no image")
    assert "ann/a/0.jpg: not an image" in clients.read_error(create)
    photo.write_bytes((root / "bob" / "b" / "1.jpg").read_bytes())
    assert len(self._labels(create())) == 32
    # The photo keeps its size, only its time changes.
    facts = photo.stat()
    os.utime(photo, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    with monkeypatch.context() as patch:
      patch.setattr(photo_folder, "list_folder", None)
      with pytest.raises(TypeError):
        create()

  def test_photos_of_a_long_table_are_missed(
    self, root, create_from_table, monkeypatch
  ):
    monkeypatch.setattr(photo_index, "MAX_LOOKED_INTO", 10)
    create_from_table(trees.rows())
    (root / "ann" / "a" / "0.jpg").unlink()
    message = clients.read_error(create_from_table, trees.rows())
    assert "ann/a/0.jpg: missing" in message

  def test_names_may_hold_anything(self, tmp_path, create):
    names = ["o'hara", 'a "b"', "x;y", "ü", "\xa0", "a\nb", "%s", "{x}", "-"]
    for name in names:
      for label in trees.CLASSES:
        for number in range(2):
          path = f"{name}/{label}'s/{number} '{name}.png"
          trees.write(tmp_path / "data", path)
    task = create()
    assert len(task.train_users) == len(names)
    assert len(trees.read_labels(task)) == 2 * 4 * len(names)

  def test_bytes_that_are_no_text(self, root, create):
    os.makedirs(os.fsencode(root) + b"/\xff\xfe")
    for label in ("a", "b", "c", "d", "e", "f"):
      trees.write(root, os.fsdecode(b"\xff\xfe/") + label + "/1.jpg")
    assert len(create().train_users) == 5


class TestFormats:
  @pytest.mark.parametrize(
    ("form", "suffix"),
    [
      ("PPM", ".pgm"),
      ("TIFF", ".tif"),
      ("PNG", ".PNG"),
      ("WEBP", ".jpg"),
      ("JPEG", ".jfif"),
      ("GIF", ".gif"),
    ],
  )
  def test_are_read(self, root, create, form, suffix):
    for label in trees.CLASSES:
      (root / "ann" / label / "0.jpg").unlink()
      trees.write(root, f"ann/{label}/0{suffix}", form)
    task = create()
    (label, *_) = trees.train_labels()
    contents, _ = clients.read_client(task, "0")
    path = root / "ann" / label / f"0{suffix}"
    with Image.open(path) as image:
      expected = np.asarray(image.convert("RGB"))
    # Files are in the order of their names: 0.* before 1.jpg.
    found = task.decode_images(contents[:1]).numpy()[0]
    np.testing.assert_allclose(found.astype(int), expected, atol=2)
    options = {"on_bad_example": "skip"}
    assert not create(**options).bad_examples.lines
    # Images that train can be evaluated, too.
    assert path in image_folder.list_images(root / "ann").paths

  def test_copies_are_made_once(self, root, create, tmp_path):
    trees.write(root, "ann/a/x.webp", "WEBP")
    create()
    (copy,) = (tmp_path / "cache" / "photos_converted").iterdir()
    before = copy.stat()
    create(hold_out="users")
    assert copy.stat() == before
    # Another image of the same name.
    (root / "ann" / "a" / "x.webp").write_bytes(trees.encode(5, "WEBP"))
    create()
    assert len(list(copy.parent.iterdir())) == 2


class TestTable:
  def test_split_column(self, create_from_table):
    splits = {"ann": "train", "bob": "Train ", "cyd": "validation"}
    task = create_from_table(
      trees.rows(split=lambda user, _: splits.get(user, "test"))
    )
    assert len(task.train_users) == 2
    assert task.load_images("test").labels.size == 16
    assert not task.evaluation_on_training_users
    assert not task.held_out_classes_are_new
    assert "split column held out" in task.split_description

  def test_parquet_with_numbers(self, create_from_table):
    rows = trees.rows()
    for row in rows:
      row["user"] = trees.USERS.index(row["user"])
      row["label"] = float(ord(row["label"]))
    task = create_from_table(rows, "table.parquet")
    assert len(task.train_users) == 4
    assert set(task.class_names.values()) < {str(ord(c)) for c in trees.CLASSES}


@pytest.mark.parametrize(
  ("paths", "expected"),
  [
    # One user, and too few classes.
    ([f"ann/{c}/1.jpg" for c in trees.CLASSES], "of two users or more"),
    (
      [f"{user}/{label}/1.jpg" for user in trees.USERS for label in "ab"],
      "The 2 classes are too few to hold some out; hold_out=users",
    ),
    (["1.jpg"], "1 images lie beside folders"),
    (
      ["eve/1.jpg", *(row["image"] for row in trees.rows())],
      "1 with images in their own folder (eve) and 4 with",
    ),
  ],
)
def test_folders_that_are_refused(tmp_path, create, paths, expected):
  for path in paths:
    trees.write(tmp_path / "data", path)
  assert expected in clients.read_error(create)


@pytest.mark.parametrize(
  ("options", "expected"),
  [
    ({"data": "data/ann/a/0.jpg"}, "data_dir must be a folder"),
    ({"data": "x.csv"}, "A table is given as table"),
    ({"table": "x.csv"}, "table must not be given beside data_dir"),
    ({"hold_out": "split_column"}, "hold_out must be one of classes, users"),
    ({"cache_dir": "/dev/null/cache"}, "cache_dir must be writable"),
    ({"data_dir": None, "table": "/"}, "table must be a file"),
    ({"data_dir": None, "table": "/gone.csv"}, "table must be a file"),
  ],
)
def test_options_that_are_refused(root, tmp_path, options, expected):
  (root.parent / "x.csv").write_text("x")
  create = clients.creator(
    photos.create_photos_task, tmp_path, task_config.PhotosConfig
  )
  assert expected in clients.read_error(create, **options)


def test_draws_follow_from_names_alone():
  names = [f"class {i}" for i in range(100)]
  splits = photo_listing.draw_splits(names, np.ones(100, bool), 2)
  assert np.bincount(splits).tolist() == [70, 10, 20]
  order = np.random.default_rng(0).permutation(100)
  again = photo_listing.draw_splits(
    [names[i] for i in order], np.ones(100, bool), 2
  )
  np.testing.assert_array_equal(again, splits[order])
  # Those that may not be held out train.
  odd = np.arange(100) % 2 == 1
  assert not photo_listing.draw_splits(names, odd, 2)[~odd].any()


def test_tff_can_run_a_client(root, create):
  task = create(image_size=None)
  assert task.image_shape == (48, 48, 3)
  assert task.default_backbone == "lenet"
  (batch,) = task.build_dataset_computation()("0")
  assert isinstance(batch["x"], tf.Tensor | np.ndarray)
  assert len(batch["y"]) == 8


def test_settings_follow_from_the_list_of_users_alone(
  monkeypatch, root, create
):
  open_index = photo_listing.open_index

  def open_large(*args, **options):
    index = open_index(*args, **options)
    index.facts["num_train_photos"] = 10**6
    return index

  monkeypatch.setattr(photo_listing, "open_index", open_large)
  # A card shows it; so many images had a side of 224.
  assert create(image_size=None).image_shape == (48, 48, 3)
