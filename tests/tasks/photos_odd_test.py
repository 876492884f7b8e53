"""Tests of odd folders and tables of one's own photos: a line each."""

import itertools
import os
import re
import shlex
import time

import numpy as np
import pandas as pd
import pytest

from tests.tasks import clients
from tests.tasks import trees
from tff_fedemb import errors
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_checks


def _csv(separator=",", encoding="utf-8", header="image,user,label"):
  lines = [header.replace(",", separator)]
  lines += [separator.join(row.values()) for row in trees.rows()]
  return "\n".join(lines).encode(encoding)


def _change(root, commands):
  """Changes a folder as a shell would: "photo" writes one of its own."""
  for command in commands.split("; "):
    name, path, *rest = shlex.split(command)
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    match name:
      case "photo":
        trees.write(root, path)
      case "mkdir":
        file.mkdir()
      case "copy":
        file.write_bytes((root / rest[0]).read_bytes())
      case "link":
        file.symlink_to(rest[0])
      case "text":
        file.write_text(" ".join(rest))
      case "half":
        file.write_bytes(trees.encode(1, "WEBP")[:20])
      case "pipe":
        os.mkfifo(file)


# Users each of whom has 20 classes of their own.
_OWN_LABELS = "; ".join(
  f"photo '{user}1/{user} {label}/{number}.jpg'"
  for user in "abcd"
  for label in range(20)
  for number in range(2)
)

# Each entry changes the folder, and has a line of the task's warnings.
_ODD_FOLDERS = [
  ("photo eve/a/1.jpg", r"1 of 5 .* (have one class|to train on).*: eve\."),
  ("photo ann/z/1.jpg", "1 of 9 classes have one image, with .*; add.*: z."),
  ("mkdir eve", "4 of 4 users have images both to train .* hold_out=users"),
  (_OWN_LABELS, r"of \d+ classes to .* of one user each: labels are almost us"),
  ("mkdir eve", "1 folders hold no image: eve."),
  ("mkdir ann/z", "1 folders hold no image: ann/z."),
  (
    "photo ann/a/deep/1.jpg",
    "1 folders lie deeper than <user>/<class> .* move.*: ann/a/deep.",
  ),
  ("photo ann/1.jpg", "1 images lie beside folders.* into .*: ann/1.jpg."),
  ("photo ann/a/1.heic", "1 files are no images by .* save .*: ann/a/1.heic."),
  ("link bob/z ../ann/a", "1 links lead to .* listed already: bob/z."),
  ("link ann/loop .", "1 links lead to .* listed already: ann/loop."),
  # One name in two forms of Unicode.
  (
    "photo zo\u00eb/a/1.jpg; photo zoe\u0308/a/2.jpg",
    "1 names in other Unicode characters are taken for one",
  ),
  (
    "copy ann/A/0.jpg ann/a/0.jpg",
    "1 classes differ from another in capitals alone .*: ",
  ),
]
_ODD_PEOPLE = [
  (
    "photo p1/originals/1.jpg",
    "1 folders lie deeper than <person> and are .* move.*: p1/originals.",
  ),
  ("text p99/a.txt", "1 folders hold no image: p99."),
]


@pytest.mark.parametrize(
  ("write", "commands", "expected"),
  [
    *((trees.write_all, *case) for case in _ODD_FOLDERS),
    *((trees.write_people, *case) for case in _ODD_PEOPLE),
  ],
)
def test_odd_folders_are_told(tmp_path, create, write, commands, expected):
  write(tmp_path / "data")
  _change(tmp_path / "data", commands)
  task = create()
  assert any(re.search(expected, w) for w in task.warnings), task.warnings
  assert not any("\n" in line for line in task.warnings)
  assert task.one_class_per_user == (write is trees.write_people)


@pytest.mark.parametrize(
  "commands",
  [
    "photo 'ann lee/a b/the 1.jpg'",
    "photo ann/a/.1.jpg",
    "copy bob/b/5.jpg ann/a/0.jpg",
    "photo .git/a/1.jpg",
    "photo ann/a/Thumbs.db",
    "link ann/a/l.jpg 0.jpg",
    "photo ../elsewhere/a/1.jpg; link eve ../elsewhere",
  ],
)
def test_fine_folders_are_not_told(root, create, commands):
  _change(root, commands)
  warnings = create().warnings
  allowed = ("images both", "have one class", "no image to", "have one image")
  assert all(any(a in w for a in allowed) for w in warnings), warnings


@pytest.mark.parametrize(
  ("commands", "expected"),
  [
    ("text ann/a/x.jpg", "ann/a/x.jpg: empty"),
    ("text ann/a/x.jpg no", "ann/a/x.jpg: not an image that can be decoded"),
    ("link ann/a/x.jpg z.jpg", "ann/a/x.jpg: missing"),
    ("link ann/a/x.jpg x.jpg", "ann/a/x.jpg: cannot be read: Too many levels"),
    ("pipe ann/a/x.jpg", "ann/a/x.jpg: no file"),
    ("half ann/a/x.webp", "ann/a/x.webp: not an image that can be decoded"),
  ],
)
def test_bad_photos_are_named_or_left_out(root, create, commands, expected):
  _change(root, commands)
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


def test_a_folder_whose_disk_is_away(root, create):
  # The target may be a user, or a user's class.
  _change(root, "link zoe ../away; link ann/z ../../away/a")
  message = clients.read_error(create)
  assert "2 bad examples: zoe: leads to nothing, or" in message
  assert "ann/z: leads to nothing" in message
  assert len(create(on_bad_example="skip").train_users) == 4
  _change(root, "photo ../away/a/1.jpg; photo ../away/d/1.jpg")
  task = create()
  assert not task.bad_examples.lines
  assert len(task.train_users) == 5


def test_a_photo_that_may_be_read_again(root, create, monkeypatch):
  def refuse(path, *unused, **options):
    raise PermissionError(13, "Permission denied", path)

  with monkeypatch.context() as patch:
    patch.setattr(photo_checks, "open", refuse, raising=False)
    # Only such photos are opened here.
    (root / "ann" / "a" / "0.jpg").rename(root / "ann" / "a" / "0.webp")
    assert "0.webp: cannot be read: Permission" in clients.read_error(create)
  # Neither its size nor its time has changed.
  assert not create().bad_examples.lines


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


@pytest.mark.parametrize(
  ("name", "value", "expected"),
  [
    ("image", "gone.jpg", "gone.jpg: missing"),
    ("image", "ann/a", "ann/a: no file"),
    ("image", "/etc/x.jpg", "an absolute path"),
    ("image", "C:\\x.jpg", "an absolute path"),
    ("image", "a/../../x.jpg", "../x.jpg: outside the table's folder"),
    ("image", "", "row 2: no image"),
    ("user", " ", "row 2: no user"),
    ("label", "", "row 2: no label"),
    ("image", "ann/b/0.jpg", "ann/b/0.jpg: listed with another label before"),
  ],
)
def test_bad_rows_are_named_or_left_out(
  create_from_table, name, value, expected
):
  first, *others = trees.rows()
  rows = [{**first, name: value}, *others]
  assert expected in clients.read_error(create_from_table, rows)
  task = create_from_table(rows, on_bad_example="skip")
  assert len(task.bad_examples) == 1
  assert len(task.train_users) == 4


@pytest.mark.parametrize(
  "table",
  [
    _csv(encoding="utf-8-sig"),
    _csv(";"),
    _csv("\t"),
    _csv(header="IMAGE, User ,Label"),
    b"\n".join(line + b",x,x" for line in _csv().splitlines()),
    _csv().replace(b"\n", b"\r\n").replace(b"/", b"\\"),
    _csv().replace(b"\n", b"\n./"),
    _csv().replace(b",ann,", b",NA,"),
    _csv().replace(b",ann,", b",007,"),
    _csv().replace(b",ann,", b',"a ""b"", c",'),
    _csv().replace(b",ann,", b', "ann",', 5),
    # Texts of several lines are no quoting errors.
    b"\n".join(line + b',"x, y\nz"' for line in _csv().splitlines()),
  ],
  ids=itertools.count(),
)
def test_fine_tables(create_from_table, table):
  task = create_from_table(table)
  assert len(task.train_users) == 4
  assert trees.read_labels(task) == [0, 0, 1, 1, 2, 2, 3, 3] * 4
  assert len(task.warnings) == 1


def _count_images(task):
  splits = ("validation", "test")
  held_out = sum(task.load_images(split).labels.size for split in splits)
  return len(trees.read_labels(task)) + held_out


def test_rows_that_are_repeated(create_from_table):
  rows = trees.rows()
  task = create_from_table([*rows, rows[0], rows[0]])
  line = "2 rows list an image again and are left out: ann/a/0.jpg"
  assert line in task.warnings[0]
  assert _count_images(task) == len(rows)


def _read_places(task):
  """What each place has to train on, by its number."""
  return {
    user_id: [value.tolist() for value in clients.read_client(task, user_id)]
    for user_id in clients.user_ids(task)
  }


def test_no_user_decides_what_others_train_on(root, create):
  before = create()
  for user in trees.USERS[1:]:
    for label in trees.CLASSES:
      _change(root, f"copy dan/{label}/{user}.jpg {user}/{label}/0.jpg")
  task = create()
  assert task.warnings == before.warnings
  assert task.user_meaning == before.user_meaning
  places, others = _read_places(task), _read_places(before)
  own = str(trees.USERS.index("dan"))
  assert len(places.pop(own)[0]) == len(others.pop(own)[0]) + 4 * 3
  assert places == others


@pytest.mark.parametrize("owners", [("ann", "bob"), ("bob | ann",)])
def test_an_image_of_two_users_is_left_out(create_from_table, owners):
  first, *others = trees.rows()
  task = create_from_table(
    [*others, *({**first, "user": owner} for owner in owners)]
  )
  assert any(
    re.fullmatch("1 images are left out, as .* not in: ann/a/0.jpg.", line)
    for line in task.warnings
  )
  assert re.search("one place at most; images of several", task.user_meaning)
  assert not re.search(r"\d", task.user_meaning)
  assert _count_images(task) == len(others)
  # Nobody else appears.
  assert len(task.train_users) == len(create_from_table(others).train_users)


@pytest.mark.parametrize("name", ["label", "split"])
def test_an_image_has_one_label_and_one_split(create_from_table, name):
  splits = {"a": "test", "b": "test", "c": "validation", "d": "validation"}
  rows = trees.rows(split=lambda _, label: splits.get(label, "train"))
  another = {"label": "b", "split": "train"}[name]
  rows.append({**rows[0], "user": "eve", name: another})
  message = clients.read_error(create_from_table, rows)
  assert f"1 bad example: {rows[0]['image']}: listed with another {name}" in (
    message
  )


def test_names_in_two_spellings_are_told(create_from_table):
  rows = trees.rows()
  rows[-1]["user"] = "zo\u00eb"
  rows[-2]["user"] = "zoe\u0308"
  task = create_from_table(rows)
  expected = "1 names in other Unicode characters are taken for one: zo\u00eb."
  assert expected in task.warnings
  assert len(task.train_users) == 5


def _quote(*rows, column=2, closes=False):
  """A table with a stray quotation mark in rows; the last may close."""
  lines = [line.split(b",") for line in _csv().splitlines()]
  for row in rows:
    cell = lines[row - 1][column]
    is_end = closes and row == rows[-1]
    lines[row - 1][column] = cell + b'"' if is_end else b'"' + cell
  return b"\n".join(map(b",".join, lines))


def test_a_file_of_two_rows_is_converted_once(tmp_path, monkeypatch):
  files = [
    os.fsencode(trees.write(tmp_path, f"x.{form}", form))
    for form in ("webp", "bmp")
  ]
  convert, converted = image_folder.convert_to_png, []

  def note(path):
    converted.append(path)
    # Whoever else is at it has not found a copy by now.
    time.sleep(0.1)
    return convert(path)

  monkeypatch.setattr(image_folder, "convert_to_png", note)
  photos = pd.DataFrame({"file": [*files, *files]}, dtype=object)
  photos[["converted", "fault"]] = None
  photo_checks.look_into(photos, tmp_path / "copies", decode_all=False)
  assert sorted(converted) == sorted(map(os.fsdecode, files))
  assert photos["fault"].isna().all()
  copies = photos["converted"].tolist()
  assert copies[:2] == copies[2:]
  assert {os.fsdecode(copy) for copy in copies} == {
    str(copy) for copy in (tmp_path / "copies").iterdir()
  }


@pytest.mark.parametrize("hold_out", ["classes", "users"])
def test_images_of_users_who_own_all_together(create_from_table, hold_out):
  together = {"ann": "ann|eve", "bob": "eve|fay"}
  rows = [
    {**row, "user": together.get(row["user"], row["user"])}
    for row in trees.rows()
  ]
  # The owners of the first image have a row each.
  rows[0]["user"] = "ann"
  rows.append({**rows[0], "user": "eve"})
  task = create_from_table(rows, hold_out=hold_out)
  assert any("16 images are left out" in line for line in task.warnings)
  assert _count_images(task) == 16 * 3
  assert len(task.train_users) == {"classes": 3, "users": 1}[hold_out]
  assert task.evaluation_on_training_users == (hold_out == "classes")


def test_users_who_own_all_together_cannot_hide(create_from_table):
  rows = [{**row, "user": "ann|bob"} for row in trees.rows()]
  message = clients.read_error(create_from_table, rows)
  assert "of two users or more: one alone cannot hide, found 'ann|bob'" in (
    message
  )


def test_places_are_chosen_by_images_of_each_owner():
  choose = photo_checks.choose_places
  assert choose({("a",): 5, ("b",): 5, ("a", "b"): 9}) == {("a",), ("b",)}
  assert choose({("a",): 1, ("b",): 5, ("a", "b"): 11}) == {("a", "b")}
  # Fewer owners come first, then names.
  assert choose({("b", "c"): 2, ("a", "b"): 2, ("c",): 1}) == {
    ("a", "b"),
    ("c",),
  }
  generator = np.random.default_rng(0)
  sizes = {
    (*sorted(generator.choice(9, generator.integers(1, 4), replace=False)),): (
      int(generator.integers(1, 9))
    )
    for _ in range(40)
  }
  chosen = choose(sizes)
  taken = [*itertools.chain(*chosen)]
  assert len(taken) == len({*taken})
  assert all({*taken} & {*place} for place in sizes)


_SPLIT = _csv(header="image,user,split,label")
_LISTS = [{**row, "label": [row["label"]]} for row in trees.rows()]


@pytest.mark.parametrize(
  ("table", "expected"),
  [
    (_csv().replace(b"ann,", b"\xe4,"), "be CSV in UTF-8"),
    (_csv(encoding="utf-16"), "be CSV in UTF-8"),
    (b"", "be CSV in UTF-8"),
    (b"image,user,label\n", "no photo in .*x.csv"),
    (
      _csv(header="image,of,label"),
      "one column user, found 0 among image, of, label",
    ),
    (_csv(header="image,image,user,label"), "one column image, found 2 among"),
    (_csv() + b"\na.jpg,ann,a,b,c", "Expected 3 fields in line 66, saw 5"),
    # The mark opens a cell of one row and closes that of a later one.
    (_quote(6, 30), "a quotation mark in row 6 .* does not enclose its cell"),
    (_quote(6), "a quotation mark in row 6 .*unexpected end of data"),
    (_quote(6, 30, closes=True), "quotation mark in row 6 .*rows in a cell"),
    (_quote(6, 7, closes=True), "quotation mark in row 6 .*rows in a cell"),
    (
      _quote(6, 7, column=1, closes=True),
      "quotation mark in row 6 .*rows in a cell",
    ),
    (
      _csv().replace(b",ann,", b',"a\nn",'),
      "16 bad .* row 2: a control character in user; row 3: a control",
    ),
    # A cell of two lines beside an empty one.
    (_csv() + b'\n"a\nb.jpg",,a', "1 bad example: row 66: no user"),
    (_SPLIT.replace(b",ann,", b",ann,dev,"), "split 'dev', which is none of"),
    (trees.rows(split=lambda *_: "train"), "two classes for .*column split"),
    (_csv(), "or Parquet of"),
    (_LISTS, "Parquet of texts and .* cast from list"),
  ],
  ids=itertools.count(),
)
def test_tables_that_are_refused(create_from_table, table, expected):
  name = "x.parquet" if "Parquet" in expected else "x.csv"
  message = clients.read_error(create_from_table, table, name)
  assert re.search(expected, message), message


def test_bad_rows_are_told_by_their_numbers(create_from_table):
  header, *rows = _csv().splitlines()
  # More than is read at a time.
  padded = [row + b" " * 20_000 for row in rows]
  lines = [header, b"", b"", b"ann/a/0.jpg,,a", *padded, b""]
  lines += [b"ann/a,ann", b",x,"]
  with pytest.raises(
    errors.DataError,
    match=r"3 bad .* row 4: no user; row 70: no label; row 71: no image",
  ):
    create_from_table(b"\n".join(lines))
