"""Tests of odd folders and tables of one's own photos: a line each."""

import os
import re
import unicodedata

import pytest

from tests.tasks import clients
from tests.tasks import trees
from tff_fedemb import errors


def _edit(change):
  """Rows of a table that were changed by a function of the first."""
  rows = trees.rows()
  change(rows[0])
  return rows


def _csv(separator=",", encoding="utf-8", header="image,user,label"):
  lines = [header.replace(",", separator)]
  lines += [separator.join(row.values()) for row in trees.rows()]
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
    trees.write(root, f"{unicodedata.normalize(form, 'zoë')}/a/{form}.jpg")


def _write_own_labels(root):
  for user in ("a1", "b1", "c1", "d1"):
    for label in range(20):
      for number in range(2):
        trees.write(root, f"{user}/{user} {label}/{number}.jpg")


# A photo that is written, or a folder if it ends in a slash.
_ODD_PATHS = [
  (
    "eve/a/1.jpg",
    r"1 of 5 users (have one class|have no image to train on).*: eve\.",
  ),
  (
    "ann/z/1.jpg",
    "1 of 9 classes have one image, with nothing to compare it with; add.*: z.",
  ),
  ("eve/", "1 folders of users are empty: eve."),
  ("ann/z/", "1 folders of classes hold no image: ann/z."),
  (
    "ann/a/deep/1.jpg",
    "1 folders lie deeper than <user>/<class> .* move.*: ann/a/deep.",
  ),
  ("ann/1.jpg", "1 images lie beside folders .* move them into .*: ann/1.jpg."),
  ("1.PNG", "1 images lie beside folders .*: 1.PNG."),
  (
    "ann/a/1.heic",
    "1 files are no images by their names .* save .*: ann/a/1.heic.",
  ),
]
_ODD_FOLDERS = [
  (
    lambda root: None,
    "4 of 4 users have images both to train on and held out.* hold_out=users",
  ),
  (
    lambda root: _copy(root, "ann/a/0.jpg", "bob/b/5.jpg"),
    "1 images are files that two users have; .* leave all but one.*: ann/a/0",
  ),
  (
    _write_own_labels,
    r"of \d+ classes to train on are of one user each: labels are almost users",
  ),
  (
    lambda root: _link(root, "bob/z", "../ann/a"),
    "1 links lead to folders that are listed already .*: bob/z.",
  ),
  (
    lambda root: _link(root, "ann/loop", "."),
    "1 links lead to folders that are listed already .*: ann/loop.",
  ),
  (
    _write_twins,
    "1 names are written with other Unicode characters .* taken for one",
  ),
  (
    lambda root: _copy(root, "ann/a/0.jpg", "ann/A/0.jpg"),
    "1 classes differ from another in capitals alone .*: ",
  ),
]
_ODD_PEOPLE = [
  (
    "p1/originals/1.jpg",
    "1 folders lie deeper than <person> and are .* move.*: p1/originals.",
  ),
  ("p99/", "1 folders of users hold no image: p99."),
  ("p99/a.txt", "1 folders of users hold no image: p99."),
]


def _write(root, path):
  if path.endswith("/"):
    (root / path).mkdir()
  else:
    trees.write(root, path)


def _check_told(task, expected):
  assert any(re.search(expected, line) for line in task.warnings), task.warnings
  assert not any("\n" in line for line in task.warnings)


@pytest.mark.parametrize(("path", "expected"), _ODD_PEOPLE)
def test_odd_folders_of_people_are_told(tmp_path, create, path, expected):
  _write(trees.write_people(tmp_path / "data"), path)
  task = create()
  _check_told(task, expected)
  assert task.one_class_per_user


@pytest.mark.parametrize(("path", "expected"), _ODD_PATHS)
def test_odd_paths_are_told(root, create, path, expected):
  _write(root, path)
  _check_told(create(), expected)


@pytest.mark.parametrize(("change", "expected"), _ODD_FOLDERS)
def test_odd_folders_are_told(root, create, change, expected):
  change(root)
  _check_told(create(), expected)


_FINE_FOLDERS = {
  "spaces": lambda root: trees.write(root, "ann lee/a b/the 1.jpg"),
  "hidden files": lambda root: trees.write(root, "ann/a/.1.jpg"),
  "hidden folders": lambda root: trees.write(root, ".git/a/1.jpg"),
  "litter": lambda root: trees.write(root, "ann/a/Thumbs.db"),
  "a linked image": lambda root: _link(root, "ann/a/l.jpg", "0.jpg"),
  "a linked folder": lambda root: (
    trees.write(root.parent, "elsewhere/a/1.jpg"),
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
    lambda root: (root / "ann/a/x.webp").write_bytes(
      trees.encode(1, "WEBP")[:20]
    ),
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
  whole = trees.encode(3)
  for label in trees.CLASSES:
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
  assert trees.read_labels(task) == [0, 0, 1, 1, 2, 2, 3, 3] * 4
  assert len(task.warnings) == 1


def test_rows_that_are_repeated(create_from_table):
  rows = trees.rows()
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
  row = {**trees.rows()[0], "user": "bob"}
  assert (
    "1 images are files that two users have"
    in (create_from_table([*trees.rows(), row]).warnings[0])
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
    create_from_table(trees.rows(split=lambda *_: "train"))


def test_parquet_that_is_none(create_from_table):
  with pytest.raises(errors.FieldError, match="be a Parquet file"):
    create_from_table(_csv(), "table.parquet")


def test_parquet_of_lists(create_from_table):
  rows = [{**row, "label": [row["label"]]} for row in trees.rows()]
  with pytest.raises(errors.FieldError, match="hold texts or numbers"):
    create_from_table(rows, "table.parquet")


def test_bad_rows_are_told_by_their_lines(create_from_table):
  header, *rows = _csv().splitlines()
  # More than is read at a time.
  padded = [row + b" " * 20_000 for row in rows]
  lines = [
    header,
    b"",
    b"",
    b"ann/a/0.jpg,,a",
    *padded,
    b"",
    b"ann/a,ann",
    b",x,",
  ]
  with pytest.raises(
    errors.DataError,
    match=r"3 bad .* line 4: no user; line 70: 2 values.*; line 71: no image",
  ):
    create_from_table(b"\n".join(lines))
