"""Tests of the reading of the tables."""

import hashlib
import zipfile

import pytest

from tasks.prepare import split_tables
from tff_fedemb import errors

_TRAIN = "user_id,image_id,class\n7,b,1\n3,a,0\nNA,c,1\n7,a,1\n"
_TEST = "class,image_id\n4,d\n"


def _read(tmp_path, train=_TRAIN, test=_TEST, user_column="user_id"):
  files = []
  for name, text in (("train.csv", train), ("test.csv", test)):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    files.append(split_tables.TableFile(path))
  return split_tables.read_tables(*files, user_column=user_column)


def test_rows_keep_their_order(tmp_path):
  tables = _read(tmp_path)
  assert list(tables.users) == ["7", "3"]
  assert tables.users["7"] == [
    split_tables.Row("b", 1),
    split_tables.Row("a", 1),
  ]
  assert tables.users["3"] == [split_tables.Row("a", 0)]
  assert tables.test == [split_tables.Row("d", 4)]
  # Image c is of no user.
  assert tables.image_ids == {"a", "b", "d"}
  assert tables.md5 == {
    "train.csv": hashlib.md5(_TRAIN.encode()).hexdigest(),
    "test.csv": hashlib.md5(_TEST.encode()).hexdigest(),
  }


def test_zipped_table_is_the_same(tmp_path):
  expected = _read(tmp_path)
  path = tmp_path / "tables.zip"
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("folder/train.csv", _TRAIN)
    archive.writestr("folder/test.csv", _TEST)
  found = split_tables.read_tables(
    split_tables.TableFile(path, "folder/train.csv"),
    split_tables.TableFile(path, "folder/test.csv"),
    user_column="user_id",
  )
  assert found == expected


@pytest.mark.parametrize(
  ("train", "message"),
  [
    ("", "columns user_id, image_id, class, found nothing"),
    ("user_id,class\n1,2\n", "found user_id, class"),
    ("user_id,image_id,class\n", "must have rows, found none"),
    ("user_id,image_id,class\n1,a,x\n", "found 'x' in row 1"),
    ("user_id,image_id,class\n1,a,0\n1,a,-1\n", "found '-1' in row 2"),
    ("user_id,image_id,class\n1,a,9223372036854775808\n", "in row 1"),
    ("user_id,image_id,class\n1,a\n", "found .* in row 1"),
    ("user_id,image_id,class\n1,,3\n", "found .* in row 1"),
    ("user_id,image_id,class\nNA,a,3\n", "must have users in column"),
    ("user_id,image_id,class\n../1,a,3\n", "names of files"),
    ("user_id,image_id,class\n..,a,3\n", "names of files"),
    ("user_id,image_id,class\n1.partial,a,3\n", "names of files"),
    (b"user_id,image_id,class\n\xff,a,3\n", "CSV file in UTF-8"),
  ],
)
def test_bad_table_is_named(tmp_path, train, message):
  with pytest.raises(errors.DataError, match=message) as caught:
    _read(tmp_path, train)
  assert str(tmp_path / "train.csv") in str(caught.value)


def test_column_of_users_is_chosen(tmp_path):
  train = "user_id,geo_1k,image_id,class\n1,x,a,0\n2,x,b,0\n"
  tables = _read(tmp_path, train, user_column="geo_1k")
  assert list(tables.users) == ["x"]
