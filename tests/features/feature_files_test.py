"""Tests of files of features: what is written, read and refused."""

import numpy as np
import pytest

from tff_fedemb import errors
from tff_fedemb.features import feature_files

_USERS = np.array(["anna", "bjørn", "anna", "c"])
_of_both_ways = pytest.mark.parametrize("save", [np.savez, np.savez_compressed])


def _create(dtype=np.float32, users=_USERS):
  # Values that float32 and float64 both hold exactly.
  features = np.arange(12).reshape(4, 3) / 8 - 0.5
  return feature_files.FeatureSet(
    features.astype(dtype), np.array([2, 0, 1, 2]), users
  )


def _assert_equal(found, expected):
  np.testing.assert_array_equal(found.features, expected.features)
  assert found.features.dtype == expected.features.dtype
  np.testing.assert_array_equal(found.labels, expected.labels)
  assert found.labels.dtype == np.int64
  np.testing.assert_array_equal(found.users, expected.users)


def _check_refused(path, message=""):
  with pytest.raises(errors.DataError, match=message) as error:
    feature_files.read_features(path)
  assert str(error.value).startswith(f"{path}")
  assert "\n" not in str(error.value)


@pytest.mark.parametrize(
  ("dtype", "users"), [(np.float16, None), (np.float64, _USERS)]
)
def test_what_is_written_is_read_and_not_copied(tmp_path, dtype, users):
  path = tmp_path / "file.NPZ"
  written = _create(dtype, users)
  feature_files.write_features(path, written)
  found = feature_files.read_features(path)
  _assert_equal(found, written)
  assert not found.features.flags.writeable
  # A change of the file shows: it is the file.
  old = written.features.tobytes()
  content = path.read_bytes()
  assert content.count(old) == 1
  with path.open("rb+") as file:
    file.seek(content.index(old))
    file.write(dtype(9).tobytes())
  assert found.features[0, 0] == 9


@_of_both_ways
def test_however_it_was_saved(tmp_path, save):
  expected = _create()
  save(
    tmp_path / "file.npz",
    features=np.asarray(expected.features, order="F"),
    labels=expected.labels.astype(np.uint8),
    users=np.char.encode(expected.users, "utf-8"),
    other=np.zeros(2),
  )
  found = feature_files.read_features(tmp_path / "file.npz")
  _assert_equal(found, expected)
  assert isinstance(found.features, np.memmap) == (save is np.savez)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"features": np.ones([4, 3])}, "array under two names: .*'features'"),
    ({"repr": None}, r"no features and labels among \['label'"),
    ({"repr": np.ones([4, 0])}, r"n and d at least 1, found"),
    ({"repr": np.full([4, 1], None)}, "Object arrays cannot be loaded"),
    (
      {"label": np.ones(4)},
      r"labels must be integers \[4\].* 1.0 in row 0",
    ),
    (
      {"label": np.array([0, 1, 2**63, 0], np.uint64)},
      r"below 2\^63, found 9223372036854775808",
    ),
    (
      {"user": np.ones(4)},
      r"strings or integers \[4\],.* 1.0 in row 0",
    ),
    ({"user": _USERS[:2]}, r"found <U5 \[2\]"),
    ({"user": np.array([b"\xff"] * 4)}, "can't decode byte"),
  ],
)
def test_other_arrays_are_refused(tmp_path, changes, message):
  arrays = {"repr": np.ones([4, 3]), "label": np.arange(4), "user": _USERS}
  arrays |= changes
  path = tmp_path / "file.npz"
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
  _check_refused(path, message)


def test_damaged_files_are_refused(tmp_path):
  path = tmp_path / "file.npz"
  np.savez(path, repr=np.ones([50, 3]), label=np.arange(50))
  content = path.read_bytes()
  for damaged in (
    b"",
    b"no numbers",
    content[: len(content) // 2],
    content.replace(b"\x93NUMPY", b"\x93NUMBY"),
    content.replace(b"'shape': (50, 3)", b"'shape': (90, 3)"),
  ):
    path.write_bytes(damaged)
    _check_refused(path, "npz must be")
