"""Tests of the task of one's own photos: folders, tables, and odd ones."""

import functools
import io
import os
import re
import sys
import unicodedata
import zlib

import numpy as np
import pandas as pd
from PIL import Image
import pytest
import tensorflow as tf

from tasks import photos
from tasks import registry
from tasks import task as task_lib
from tests.tasks import clients
from tff_fedemb import errors
from tff_fedemb.data import photo_checks
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_splits

_SIDE = 8
_CLASSES = tuple("abcdefgh")
_USERS = ("ann", "bob", "cyd", "dan")


@functools.cache
def _encode(seed, form="JPEG"):
  pixels = np.random.default_rng(seed).integers(0, 256, (2, 2, 3), np.uint8)
  content = io.BytesIO()
  Image.fromarray(pixels).resize((_SIDE, _SIDE)).save(content, form)
  return content.getvalue()


def _write(root, path, form="JPEG"):
  """Writes an image of its own for each path."""
  file = root / path
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_bytes(_encode(zlib.crc32(os.fsencode(path)), form))
  return file


def _write_all(root):
  """Each user has two images of each class."""
  for user in _USERS:
    for label in _CLASSES:
      for number in range(2):
        _write(root, f"{user}/{label}/{number}.jpg")


def _rows(*, split=None):
  """The rows of a table of all images, as texts."""
  return [
    {
      "image": f"{user}/{label}/{number}.jpg",
      "user": user,
      "label": label,
      **({} if split is None else {"split": split(user, label)}),
    }
    for user in _USERS
    for label in _CLASSES
    for number in range(2)
  ]


@pytest.fixture(name="root")
def _root(tmp_path):
  """Photos of four users and eight classes."""
  _write_all(tmp_path / "data")
  return tmp_path / "data"


@pytest.fixture(name="create")
def _create(tmp_path):
  return clients.creator(photos.create_photos_task, tmp_path, image_size=_SIDE)


@pytest.fixture(name="create_from_table")
def _create_from_table(root, tmp_path):
  """Makes a task of a table: rows, or the bytes of a file."""

  def create(table, name="table.csv", **options):
    path = root / name
    if isinstance(table, bytes):
      path.write_bytes(table)
    elif name.endswith("parquet"):
      pd.DataFrame(table).to_parquet(path)
    else:
      pd.DataFrame(table).to_csv(path, index=False)
    return photos.create_photos_task(
      task_lib.TaskConfig(
        table=os.fspath(path),
        cache_dir=os.fspath(tmp_path / "cache"),
        **{"image_size": _SIDE, **options},
      )
    )

  return create


def _train_labels():
  """Names of the classes that are not held out."""
  splits = photo_splits.draw(_CLASSES, np.ones(len(_CLASSES), bool), 2)
  return [c for c, s in zip(_CLASSES, splits, strict=True) if s == 0]


def _read_labels(task):
  """Labels of the images of all training users."""
  ids = "\n".join(clients.user_ids(task))
  return clients.read_client(task, ids)[1].tolist()


def test_classes_are_held_out(root, create):
  task = create()
  assert len(task.train_users) == 4
  assert task.num_train_classes == 4
  assert task.evaluation_on_training_users
  assert task.held_out_classes_are_new
  assert not task.one_class_per_user
  # The images of two users, slots by name and classes by name.
  trained = _train_labels()
  contents, labels = clients.read_client(task, "3\n0")
  assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] * 2
  assert contents[0] == (root / "ann" / trained[0] / "0.jpg").read_bytes()
  assert contents[-1] == (root / "dan" / trained[3] / "1.jpg").read_bytes()
  assert task.decode_images(contents).shape == (16, _SIDE, _SIDE, 3)
  named = []
  for split in ("validation", "test"):
    images = task.load_images(split)
    assert images.images[:].shape == (16, _SIDE, _SIDE, 3)
    assert images.labels.min() >= 4
    names = [task.class_names[y] for y in np.unique(images.labels)]
    assert f"{split}: 16 images of 2 of 8 classes ({', '.join(names)})" in (
      task.split_description
    )
    named += names
  assert sorted(named + trained) == list(_CLASSES)


def test_users_are_held_out(root, create):
  task = create(hold_out="users", color_mode="grayscale")
  assert len(task.train_users) == 2
  assert task.num_train_classes == len(_CLASSES)
  assert not task.evaluation_on_training_users
  assert not task.held_out_classes_are_new
  assert task.warnings == ()
  assert task.load_images("test").images[:2].shape == (2, _SIDE, _SIDE, 1)


def test_people_are_users_and_classes(tmp_path, create):
  for person in range(12):
    for number in range(3):
      _write(tmp_path / "data", f"p{person}/p{person}/{number}.JPG")
  task = create()
  assert task.one_class_per_user
  assert not task.evaluation_on_training_users
  assert len(task.train_users) == task.num_train_classes == 8
  assert task.warnings == ()


def test_size_and_backbone_follow_from_the_number_of_images(root, create):
  task = create(image_size=None)
  assert task.image_shape == (64, 64, 3)
  assert task.default_backbone == "lenet"


class TestIndex:
  def _labels(self, task):
    return sorted(_read_labels(task))

  def test_is_found_again_until_something_changes(
    self, root, create, monkeypatch
  ):
    first = create()
    with monkeypatch.context() as patch:
      patch.setattr(photo_folder.FolderListing, "list_photos", None)
      again = create()
    assert again.split_description == first.split_description
    np.testing.assert_array_equal(self._labels(again), self._labels(first))
    _write(root, "ann/new/0.jpg")
    assert "of 9 classes" in create().split_description
    # The task that was made before is on the photos of then.
    assert self._labels(again) == self._labels(first)

  def test_a_damaged_one_is_made_again(self, root, create, tmp_path):
    create()
    (path,) = (tmp_path / "cache").glob("photos_*.sqlite")
    path.write_bytes(path.read_bytes()[:5000])
    assert len(create().train_users) == 4

  def test_photos_that_were_mended_are_seen(self, root, create):
    (root / "ann" / "a" / "0.jpg").write_bytes(b"")
    assert "ann/a/0.jpg: empty" in clients.read_error(create)
    (root / "ann" / "a" / "0.jpg").write_bytes(_encode(0))
    assert not create().bad_examples.lines

  def test_names_may_hold_anything(self, tmp_path, create):
    names = ["o'hara", 'a "b"', "x;y", "ü", "\xa0", "a\nb", "%s", "{x}", "-"]
    for name in names:
      for label in _CLASSES:
        for number in range(2):
          _write(tmp_path / "data", f"{name}/{label}'s/{number} '{name}.png")
    task = create()
    assert len(task.train_users) == len(names)
    assert len(_read_labels(task)) == 2 * 4 * len(names)

  def test_bytes_that_are_no_text(self, root, create):
    os.makedirs(os.fsencode(root) + b"/\xff\xfe")
    for label in ("a", "b", "c", "d", "e", "f"):
      _write(root, os.fsdecode(b"\xff\xfe/") + label + "/1.jpg")
    assert len(create().train_users) == 5


class TestFormats:
  @pytest.mark.parametrize(
    ("form", "suffix"),
    [
      *(("WEBP", ".webp"), ("BMP", ".bmp"), ("GIF", ".gif"), ("PPM", ".pgm")),
      *(("TIFF", ".tif"), ("PNG", ".PNG"), ("WEBP", ".jpg"), ("PNG", ".jpg")),
    ],
  )
  def test_are_read(self, root, create, form, suffix):
    for label in _CLASSES:
      (root / "ann" / label / "0.jpg").unlink()
      _write(root, f"ann/{label}/0{suffix}", form)
    task = create()
    (label, *_) = _train_labels()
    contents, _ = clients.read_client(task, "0")
    with Image.open(root / "ann" / label / f"0{suffix}") as image:
      expected = np.asarray(image.convert("RGB"))
    # Files are in the order of their names: 0.* before 1.jpg.
    found = task.decode_images(contents[:1]).numpy()[0]
    np.testing.assert_allclose(found.astype(int), expected, atol=2)
    options = {"on_bad_example": "skip"}
    assert not create(**options).bad_examples.lines

  def test_a_gif_shows_its_first_picture(self, root, create):
    pictures = [Image.new("RGB", (_SIDE, _SIDE), c) for c in ("red", "blue")]
    for label in _CLASSES:
      pictures[0].save(
        root / "ann" / label / "0.gif",
        save_all=True,
        append_images=pictures[1:],
      )
    task = create()
    contents, _ = clients.read_client(task, "0")
    red = np.full([_SIDE, _SIDE, 3], [255, 0, 0])
    found = task.decode_images(contents[:1]).numpy()[0]
    np.testing.assert_array_equal(found, red)

  def test_copies_are_made_once(self, root, create, tmp_path):
    _write(root, "ann/a/x.webp", "WEBP")
    create()
    (copy,) = (tmp_path / "cache" / "photos_converted").iterdir()
    before = copy.stat()
    create(hold_out="users")
    assert copy.stat() == before
    # Another image of the same name.
    (root / "ann" / "a" / "x.webp").write_bytes(_encode(5, "WEBP"))
    create()
    assert len(list(copy.parent.iterdir())) == 2


class TestTable:
  def test_split_column(self, create_from_table):
    splits = {"ann": "train", "bob": "Train ", "cyd": "validation"}
    task = create_from_table(
      _rows(split=lambda user, _: splits.get(user, "test"))
    )
    assert len(task.train_users) == 2
    assert task.load_images("test").labels.size == 16
    assert not task.evaluation_on_training_users
    assert not task.held_out_classes_are_new
    assert "split column held out" in task.split_description

  def test_a_split_column_may_be_passed_over(self, create_from_table):
    rows = _rows(split=lambda user, _: "train")
    task = create_from_table(rows, hold_out="classes")
    assert task.num_train_classes == 4

  def test_parquet_with_numbers(self, create_from_table):
    rows = _rows()
    for row in rows:
      row |= {"user": _USERS.index(row["user"]), "label": ord(row["label"])}
      row["label"] = float(row["label"])
    task = create_from_table(rows, "table.parquet")
    assert len(task.train_users) == 4
    assert set(task.class_names.values()) < {str(ord(c)) for c in _CLASSES}


def _edit(change):
  """Rows of a table that were changed by a function of the first."""
  rows = _rows()
  change(rows[0])
  return rows


def _csv(separator=",", encoding="utf-8", header="image,user,label"):
  lines = [header.replace(",", separator)]
  lines += [separator.join(row.values()) for row in _rows()]
  return "\n".join(lines).encode(encoding)


# What is done to the folder, and what is said: a line of the task's warnings.
def _link(root, path, target):
  (root / path).parent.mkdir(parents=True, exist_ok=True)
  (root / path).symlink_to(target)


def _copy(root, source, target):
  (root / target).parent.mkdir(parents=True, exist_ok=True)
  (root / target).write_bytes((root / source).read_bytes())


def _write_twins(root):
  for form in ("NFC", "NFD"):
    _write(root, f"{unicodedata.normalize(form, 'zoë')}/a/{form}.jpg")


def _write_own_labels(root):
  for user in ("a1", "b1", "c1", "d1"):
    for label in range(20):
      for number in range(2):
        _write(root, f"{user}/{user} {label}/{number}.jpg")


_ODD_FOLDERS = {
  "a user with one class": (
    lambda root: [_write(root, f"eve/{c}/1.jpg") for c in _CLASSES[:1]],
    r"1 of 5 users (have one class|have no image to train on).*: eve\.",
  ),
  "a class with one image": (
    lambda root: _write(root, "ann/z/1.jpg"),
    "1 of 9 classes have one image, with nothing to compare it with; add.*: z.",
  ),
  "users in both splits": (
    lambda root: None,
    "4 of 4 users have images both to train on and held out.* hold_out=users",
  ),
  "a file of two users": (
    lambda root: _copy(root, "ann/a/0.jpg", "bob/b/5.jpg"),
    "1 images are files that two users have; .* leave all but one.*: ann/a/0",
  ),
  "labels that are almost users": (
    _write_own_labels,
    r"of \d+ classes to train on are of one user each: labels are almost users",
  ),
  "an empty folder": (
    lambda root: (root / "eve").mkdir(),
    "1 folders of users are empty: eve.",
  ),
  "an empty class": (
    lambda root: (root / "ann" / "z").mkdir(),
    "1 folders of classes hold no image: ann/z.",
  ),
  "a nested folder": (
    lambda root: _write(root, "ann/a/deep/1.jpg"),
    "1 folders lie deeper than <user>/<class> .* move.*: ann/a/deep.",
  ),
  "an image of no class": (
    lambda root: _write(root, "ann/1.jpg"),
    "1 images lie beside folders .* move them to .*: ann/1.jpg.",
  ),
  "an image of no user": (
    lambda root: _write(root, "1.PNG"),
    "1 images lie beside folders .*: 1.PNG.",
  ),
  "a file that is no image by its name": (
    lambda root: _write(root, "ann/a/1.heic"),
    "1 files are no images by their names .* save .*: ann/a/1.heic.",
  ),
  "a link to a folder that is listed": (
    lambda root: _link(root, "bob/z", "../ann/a"),
    "1 links lead to folders that are listed already .*: bob/z.",
  ),
  "a link to its own folder": (
    lambda root: _link(root, "ann/loop", "."),
    "1 links lead to folders that are listed already .*: ann/loop.",
  ),
  "one name in two forms of Unicode": (
    _write_twins,
    "1 names are written with other Unicode characters .* taken for one",
  ),
  "classes that differ in capitals": (
    lambda root: _copy(root, "ann/a/0.jpg", "ann/A/0.jpg"),
    "1 classes differ from another in capitals alone .*: ",
  ),
}


@pytest.mark.parametrize("name", _ODD_FOLDERS)
def test_odd_folders_are_told(root, create, name):
  change, expected = _ODD_FOLDERS[name]
  change(root)
  task = create()
  assert any(re.search(expected, w) for w in (task.warnings)), task.warnings
  assert not any("\n" in line for line in task.warnings)


_FINE_FOLDERS = {
  "spaces": lambda root: _write(root, "ann lee/a b/the 1.jpg"),
  "hidden files": lambda root: _write(root, "ann/a/.1.jpg"),
  "hidden folders": lambda root: _write(root, ".git/a/1.jpg"),
  "litter": lambda root: _write(root, "ann/a/Thumbs.db"),
  "a linked image": lambda root: _link(root, "ann/a/l.jpg", "0.jpg"),
  "a linked folder": lambda root: (
    _write(root.parent, "elsewhere/a/1.jpg"),
    _link(root, "eve", "../elsewhere"),
  ),
}


@pytest.mark.parametrize("name", _FINE_FOLDERS)
def test_fine_folders_are_not_told(root, create, name):
  _FINE_FOLDERS[name](root)
  warnings = create().warnings
  allowed = ("images both", "have one class", "no image to", "have one image")
  assert all(any(a in w for a in allowed) for w in warnings), warnings


_BAD_PHOTOS = {
  "an empty file": (
    lambda root: (root / "ann/a/x.jpg").write_bytes(b""),
    "ann/a/x.jpg: empty",
  ),
  "text": (
    lambda root: (root / "ann/a/x.jpg").write_text("no image"),
    "ann/a/x.jpg: not an image that can be decoded",
  ),
  "a link that leads nowhere": (
    lambda root: _link(root, "ann/a/x.jpg", "gone.jpg"),
    "ann/a/x.jpg: a link that leads nowhere",
  ),
  "a link to itself": (
    lambda root: _link(root, "ann/a/x.jpg", "x.jpg"),
    "ann/a/x.jpg: cannot be read: Too many levels",
  ),
  "a pipe": (
    lambda root: os.mkfifo(root / "ann/a/x.jpg"),
    "ann/a/x.jpg: no file",
  ),
  "a damaged WebP": (
    lambda root: (root / "ann/a/x.webp").write_bytes(_encode(1, "WEBP")[:20]),
    "ann/a/x.webp: not an image that can be decoded",
  ),
}


@pytest.mark.parametrize("name", _BAD_PHOTOS)
def test_bad_photos_are_named_or_left_out(root, create, name):
  change, expected = _BAD_PHOTOS[name]
  change(root)
  message = clients.read_error(create)
  assert f"found 1 bad example: {expected}" in message
  assert "on_bad_example=skip" in message
  task = create(on_bad_example="skip")
  assert len(task.bad_examples) == 1
  assert clients.read_client(task, "0")[1].size == 8


def test_a_cut_photo_is_found_where_all_are_decoded(root, create):
  whole = _encode(3)
  for label in _CLASSES:
    (root / "ann" / label / "x.jpg").write_bytes(whole[:-30])
  lines = create().find_bad_examples("0")
  assert len(lines) == 4
  assert lines[0].endswith("/x.jpg: not an image that can be decoded")
  assert create().find_bad_examples("1") == []
  task = create(on_bad_example="skip")
  assert len(task.bad_examples) == 8
  assert clients.read_client(task, "0")[1].size == 8


def test_a_folder_that_cannot_be_read(root, create, monkeypatch):
  scan = os.scandir

  def refuse(path):
    if str(path).endswith("ann/a"):
      raise PermissionError(13, "Permission denied", path)
    return scan(path)

  with monkeypatch.context() as patch:
    patch.setattr(os, "scandir", refuse)
    assert "ann/a: folder that cannot be read: Permission denied" in (
      clients.read_error(create)
    )
  assert not create().bad_examples.lines


_BAD_ROWS = {
  "a missing file": ({"image": "gone.jpg"}, "gone.jpg: missing"),
  "a folder": ({"image": "ann/a"}, "ann/a: no file"),
  "an absolute path": ({"image": "/etc/x.jpg"}, "an absolute path"),
  "a drive": ({"image": "C:\\x.jpg"}, "an absolute path"),
  "a path out of the folder": (
    {"image": "a/../../x.jpg"},
    "../x.jpg: outside the table's folder",
  ),
  "no image": ({"image": ""}, "line 2: no image"),
  "no user": ({"user": " "}, "line 2: no user"),
  "no label": ({"label": ""}, "line 2: no label"),
  "another label": (
    {"image": "ann/b/0.jpg"},
    "ann/b/0.jpg: listed with another label before",
  ),
}


@pytest.mark.parametrize("name", _BAD_ROWS)
def test_bad_rows_are_named_or_left_out(create_from_table, name):
  change, expected = _BAD_ROWS[name]
  rows = _edit(lambda row: row.update(change))
  with pytest.raises(errors.DataError) as error:
    create_from_table(rows)
  assert expected in str(error.value)
  assert "\n" not in str(error.value)
  task = create_from_table(rows, on_bad_example="skip")
  assert len(task.bad_examples) == 1
  assert len(task.train_users) == 4


_FINE_TABLES = {
  "a byte order mark": _csv(encoding="utf-8-sig"),
  "semicolons": _csv(";"),
  "tabulators": _csv("\t"),
  "capitals and spaces": _csv(header="IMAGE, User ,Label"),
  "Windows": _csv().replace(b"\n", b"\r\n").replace(b"/", b"\\"),
  "paths from here": _csv().replace(b"\n", b"\n./"),
  "names like missing values": _csv().replace(b",ann,", b",NA,"),
  "users of numbers": _csv().replace(b",ann,", b",007,"),
}


@pytest.mark.parametrize("name", _FINE_TABLES)
def test_fine_tables(create_from_table, name):
  task = create_from_table(_FINE_TABLES[name])
  assert len(task.train_users) == 4
  assert _read_labels(task) == [0, 0, 1, 1, 2, 2, 3, 3] * 4
  assert len(task.warnings) == 1


def test_rows_that_are_repeated(create_from_table):
  rows = _rows()
  task = create_from_table([*rows, rows[0], rows[0]])
  assert (
    "2 rows list an image again and are left out: ann/a/0.jpg"
    in (task.warnings[0])
  )
  ids = "\n".join(clients.user_ids(task))
  images = len(clients.read_client(task, ids)[1])
  images += sum(task.load_images(s).labels.size for s in ("validation", "test"))
  assert images == len(rows)


def test_an_image_of_two_users(create_from_table):
  row = {**_rows()[0], "user": "bob"}
  assert (
    "1 images are files that two users have"
    in (create_from_table([*_rows(), row]).warnings[0])
  )


_REFUSED_TABLES = {
  "another encoding": (
    _csv().replace(b"ann,", "änn,".encode("latin-1")),
    "be text in UTF-8",
  ),
  "UTF-16": (_csv(encoding="utf-16"), "be text in UTF-8"),
  "an empty file": (b"", "have columns image .*no image and no user and no la"),
  "no line but the first": (b"image,user,label\n", "no photo in .*table.csv"),
  "a missing column": (
    _csv(header="image,owner,label"),
    "no user among image, owner, label",
  ),
  "a column twice": (
    _csv(header="image,image,user,label"),
    "have one column image, found 2",
  ),
  "too many values": (
    _csv() + b"\nann/a/1.jpg,ann,a,b,c",
    "line 66: 5 values, and the first line has 3",
  ),
  "an unknown split": (
    _csv(header="image,user,split,label").replace(b",ann,", b",ann,dev,"),
    "split 'dev', which is none of train, validation, test",
  ),
  "all images in one split": (
    _csv(header="image,user,split").replace(b",ann,", b",ann,train,"),
    "no label among",
  ),
}


@pytest.mark.parametrize("name", _REFUSED_TABLES)
def test_tables_that_are_refused(create_from_table, name):
  table, expected = _REFUSED_TABLES[name]
  with pytest.raises(ValueError, match=expected) as error:
    create_from_table(table)
  assert "\n" not in str(error.value)


def test_all_classes_in_one_split(create_from_table):
  with pytest.raises(
    errors.FieldError, match=r"two classes for validation.*column split"
  ):
    create_from_table(_rows(split=lambda *_: "train"))


def test_parquet_that_is_none_or_cannot_be_read(create_from_table, monkeypatch):
  with pytest.raises(errors.FieldError, match="be a Parquet file"):
    create_from_table(_csv(), "table.parquet")
  monkeypatch.setitem(sys.modules, "pyarrow", None)
  with pytest.raises(errors.FieldError, match="pip install pyarrow, or save"):
    create_from_table(b"PAR1", "other.parquet")


class TestRefused:
  def test_one_user(self, tmp_path, create):
    for label in _CLASSES:
      _write(tmp_path / "data", f"ann/{label}/1.jpg")
    assert "photos of two users or more" in clients.read_error(create)

  def test_too_few_classes(self, tmp_path, create):
    for user in _USERS:
      for label in "ab":
        _write(tmp_path / "data", f"{user}/{label}/1.jpg")
    assert "The 2 classes are too few to hold some out; hold_out=users" in (
      clients.read_error(create)
    )

  def test_no_photos(self, tmp_path, create):
    _write(tmp_path / "data", "a/1.jpg")
    message = clients.read_error(create)
    assert "<user>/<class>/<image>" in message
    assert "1 images lie beside folders" in message

  def test_a_file(self, tmp_path, create):
    (tmp_path / "data").write_text("x")
    assert "data_dir must be a folder" in clients.read_error(create)
    (tmp_path / "x.csv").write_text("x")
    assert "A table is given as table" in clients.read_error(create, "x.csv")

  def test_a_table_beside_a_folder(self, root, create):
    message = clients.read_error(create, table="x.csv")
    assert "table must not be given beside data_dir" in message

  def test_a_table_that_is_no_file(self, root):
    for path in (root, root / "gone.csv"):
      config = task_lib.TaskConfig(table=os.fspath(path))
      with pytest.raises(errors.FieldError, match="table must be a file"):
        photos.create_photos_task(config)

  def test_no_split_column(self, root, create):
    assert "hold_out must be one of classes, users" in (
      clients.read_error(create, hold_out="split_column")
    )

  def test_a_cache_that_cannot_be_written(self, root, tmp_path, create):
    (tmp_path / "file").write_text("x")
    config = {"cache_dir": os.fspath(tmp_path / "file" / "cache")}
    with pytest.raises(errors.FieldError, match="cache_dir must be writable"):
      photos.create_photos_task(task_lib.TaskConfig(os.fspath(root), **config))
    del create

  @pytest.mark.parametrize(
    "options", [{"table": "x"}, {"hold_out": "users"}, {"color_mode": "rgb"}]
  )
  def test_other_tasks_refuse_its_options(self, options):
    with pytest.raises(errors.FieldError, match="for task photos alone, found"):
      registry.create_task("emnist", task_lib.TaskConfig(**options))


def test_limits_are_said(root, create, monkeypatch):
  monkeypatch.setattr(photo_checks, "MAX_COMPARED", 1)
  monkeypatch.setattr(photo_checks, "MAX_SNIFFED", 1)
  (root / "ann/a/x.jpg").write_text("no image")
  task = create()
  assert any("0 were compared" in line for line in task.warnings)
  assert not task.bad_examples.lines


def test_draws_follow_from_names_alone():
  names = [f"class {i}" for i in range(100)]
  splits = photo_splits.draw(names, np.ones(100, bool), 2)
  assert np.bincount(splits).tolist() == [70, 10, 20]
  order = np.random.default_rng(0).permutation(100)
  again = photo_splits.draw([names[i] for i in order], np.ones(100, bool), 2)
  np.testing.assert_array_equal(again, splits[order])
  # Those that may not be held out train.
  odd = np.arange(100) % 2 == 1
  assert not photo_splits.draw(names, odd, 2)[~odd].any()


def test_tff_can_run_a_client(root, create):
  computation = create().build_dataset_computation()
  (batch,) = computation("0")
  assert isinstance(batch["x"], tf.Tensor | np.ndarray)
  assert len(batch["y"]) == 8
