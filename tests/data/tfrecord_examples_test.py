"""Tests of users in TFRecord files."""

import pytest
import tensorflow as tf

from tests.data import photo_files
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import population
from tff_fedemb.data import tfrecord_examples

_USERS = {"10": [3, 5], "2": [0, 1, 2], "x y": [7] * 70, "3": [4, 4]}
_WHOLE = photo_files.encode(0)


@pytest.fixture(name="directory")
def _directory(tmp_path):
  return photo_files.write_users(tmp_path / "train", _USERS)


@pytest.fixture(name="create")
def _create(directory, tmp_path):
  def create(policy="fail"):
    return tfrecord_examples.TfRecordExamples(
      directory,
      tmp_path / "cache",
      name="photos",
      bad=bad_examples.BadExamples(policy),
    )

  return create


def _read_client(examples, *users):
  client_id = population.SEPARATOR.join(users)
  dataset = examples.create_dataset(tf.constant(client_id))
  batches = list(dataset.as_numpy_iterator())
  assert all(len(batch["x"]) == len(batch["y"]) <= 64 for batch in batches)
  return (
    [content for batch in batches for content in batch["x"]],
    [label for batch in batches for label in batch["y"]],
  )


def test_users(directory, create):
  (directory / ".hidden").write_bytes(b"")
  (directory / "folder").mkdir()
  examples = create()
  assert examples.user_ids == ["10", "2", "3", "x y"]
  assert examples.labels.tolist() == [3, 5, 0, 1, 2, 4, 4] + [7] * 70
  assert examples.name_of_row(2) == str(directory.resolve() / "2")
  contents, labels = _read_client(examples, "3", "x y", "2")
  assert labels == [4, 4] + [7] * 70 + [0, 1, 2]
  assert contents[-3:] == [photo_files.encode(100 + i) for i in range(3)]


@pytest.mark.parametrize("policy", bad_examples.POLICIES)
def test_one_users_data_do_not_change_who_the_users_are(
  directory, create, policy
):
  users = create(policy).user_ids
  for damage in (
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"no records"),
    lambda path: photo_files.write(path, [(b"", 1)] * 3),
    lambda path: photo_files.write(path, [b"no example"] * 3),
    lambda path: photo_files.write(path, [(_WHOLE, 1)]),
    photo_files.cut,
  ):
    damage(directory / "2")
    assert create(policy).user_ids == users


def test_skip_leaves_out_records_alone(directory, create):
  bad, other = b"\xff\xffno example", photo_files.encode(9)
  photo_files.write(
    directory / "3", [(_WHOLE, 1), bad, (other, 2), bad, (other, 3)]
  )
  # Records are read 64 at a time.
  photo_files.write(directory / "x y", [bad, *[(other, 8)] * 70, bad])
  photo_files.cut(directory / "2")
  examples = create("skip")
  assert _read_client(examples, "3") == ([_WHOLE, other, other], [1, 2, 3])
  labels = [1, 2, 3, 3, 5] + [8] * 70 + [0, 1]
  assert _read_client(examples, "3", "10", "x y", "2")[1] == labels
  assert examples.labels.tolist() == [3, 5, 0, 1, 1, 2, 3] + [8] * 70
  # A file that has gone is an error nevertheless.
  (directory / "10").unlink()
  with pytest.raises(tf.errors.NotFoundError):
    _read_client(examples, "2", "10", "3")


def test_refuses_to_be_without_users(directory, create):
  for user_id in _USERS:
    (directory / user_id).write_bytes(b"")
  with pytest.raises(errors.DataError, match=r"hold images .*4 bad examples"):
    create("skip")
  for user_id in _USERS:
    (directory / user_id).unlink()
  (directory / "2").symlink_to("away")
  with pytest.raises(errors.DataError, match="2 must be a file or folder that"):
    create()
  (directory / "2").unlink()
  with pytest.raises(errors.DataError, match="found none"):
    create()
  directory.rmdir()
  with pytest.raises(errors.DataError, match="No such file"):
    create()


def test_finds_what_made_a_client_fail(directory, create):
  broken = _WHOLE[:100] + _WHOLE[-2:]
  photo_files.write(
    directory / "3", [(_WHOLE, 1), (broken, 2), (_WHOLE, 3), (b"", 3)]
  )
  examples = create()
  assert examples.find_bad_examples("10\n2") == []
  photo_files.flip(directory / "2", 30)
  (directory / "x y").unlink()
  lines = examples.find_bad_examples("10\n2\n3\nx y")
  assert len(lines) == 4
  assert lines[0].startswith("train/2: cut or damaged at byte 0 ")
  assert lines[1:3] == [
    f"train/3 record {number}: not an image that can be decoded"
    for number in (1, 3)
  ]
  assert lines[3].startswith("train/x y: ")
  assert "No such file" in lines[3]
