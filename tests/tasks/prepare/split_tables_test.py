"""Tests of the reading of the tables."""

import hashlib
import zipfile

import pytest

from tasks.prepare import output
from tasks.prepare import split_tables
from tff_fedemb import errors

_TRAIN = "user_id,geo,image_id,class\n7,x,b,1\n3,y,a,0\nNA,x,c,1\n7,y,a,1\n"
_TEST = "class,image_id\n4,d\n"


def _read(tmp_path, train=_TRAIN, **options):
  content = train if isinstance(train, bytes) else train.encode()
  (tmp_path / "train.csv").write_bytes(content)
  (tmp_path / "test.csv").write_text(_TEST)
  return split_tables.read_tables(
    tmp_path / "train.csv",
    tmp_path / "test.csv",
    **{"user_column": "user_id", **options},
  )


def test_rows_keep_their_order(tmp_path):
  files, md5 = _read(tmp_path)
  assert list(files.items()) == [
    # Image c is of no user.
    ("train/7", [output.Row("b", 1), output.Row("a", 1)]),
    ("train/3", [output.Row("a", 0)]),
    ("test.tfRecord", [output.Row("d", 4)]),
  ]
  assert list(md5.items()) == [
    ("test.csv", hashlib.md5(_TEST.encode()).hexdigest()),
    ("train.csv", hashlib.md5(_TRAIN.encode()).hexdigest()),
  ]
  files, _ = _read(tmp_path, user_column="geo")
  assert list(files) == ["train/x", "train/y", "test.tfRecord"]


def test_zipped_table_is_the_same(tmp_path):
  expected = _read(tmp_path)
  path = tmp_path / "tables.zip"
  with zipfile.ZipFile(path, "w") as archive:
    for name in ("train.csv", "test.csv"):
      archive.write(tmp_path / name, f"folder/{name}")

  def read():
    names = ("folder/train.csv", "folder/test.csv")
    tables = [zipfile.Path(path, name) for name in names]
    return split_tables.read_tables(*tables, user_column="user_id")

  assert read() == expected
  path.write_bytes(path.read_bytes().replace(b"3,y,a", b"3,y,z"))
  with pytest.raises(errors.DataError, match=r"zip/folder/train\.csv .* CRC"):
    read()


@pytest.mark.parametrize(
  ("rows", "message"),
  [
    (None, "columns user_id, image_id, class, found 0 rows of nothing"),
    ("", "must have rows, .* found 0 rows of user_id, image_id, class"),
    ("1,a,x", "found .*'x'.* in row 1"),
    ("1,a,0\n1,a,-1", "found .*'-1'.* in row 2"),
    ("1,a,9223372036854775808", "in row 1"),
    ("1,a", "found .* in row 1"),
    ("1,,3", "found .* in row 1"),
    ("NA,a,3", "must have users in column"),
    ("../1,a,3", "names of files"),
    ("..,a,3", "names of files"),
    ("1.partial,a,3", "names of files"),
    (b"\xff,a,3", "CSV file in UTF-8"),
  ],
)
def test_bad_table_is_named(tmp_path, rows, message):
  content = rows if isinstance(rows, bytes) else (rows or "").encode()
  header = b"" if rows is None else b"user_id,image_id,class\n"
  with pytest.raises(errors.DataError, match=message) as caught:
    _read(tmp_path, header + content)
  assert str(tmp_path / "train.csv") in str(caught.value)


def test_missing_column_is_named(tmp_path):
  with pytest.raises(errors.DataError, match="found 1 rows of user_id, class"):
    _read(tmp_path, "user_id,class\n1,2\n")
