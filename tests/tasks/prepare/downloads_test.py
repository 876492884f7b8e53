"""Tests of checksums and of what is said of files."""

import hashlib
import pathlib
import re

import pytest

from tasks.prepare import downloads
from tff_fedemb import errors

_MD5 = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
  "text", [_MD5, f"{_MD5}\n", f"{_MD5.upper()}  images_000.tar\n"]
)
def test_md5_file(tmp_path, text):
  path = tmp_path / "md5.txt"
  path.write_text(text)
  assert downloads.read_md5_file(path) == _MD5


def test_md5_of_more_than_a_piece(tmp_path):
  content = bytes(range(256)) * 10_000
  (tmp_path / "file").write_bytes(content)
  pieces = []
  found = downloads.compute_md5(tmp_path / "file", pieces.append)
  assert found == hashlib.md5(content).hexdigest()
  assert sum(pieces) == len(content)
  downloads.check_md5(tmp_path / "file", {"file": found})
  downloads.check_md5(tmp_path / "file", {"another": _MD5})
  with pytest.raises(
    errors.DataError, match=f"file must have MD5 {_MD5}, found"
  ):
    downloads.check_md5(tmp_path / "file", {"file": _MD5})


def test_known_md5_are_md5():
  for md5 in downloads.KNOWN_MD5.values():
    assert re.fullmatch("[0-9a-f]{32}", md5)


@pytest.mark.parametrize(
  ("name", "is_compressed"),
  [("images_000.tar", False), ("a.tar.gz", True), ("a.tgz", True)],
)
def test_compressed_by_name(name, is_compressed):
  archive = downloads.Archive(pathlib.Path(name))
  assert archive.is_compressed is is_compressed


@pytest.mark.parametrize(
  ("count", "text"),
  [
    (0, "0 B"),
    (999, "999 B"),
    (1000, "1.0 kB"),
    (20_480, "20.5 kB"),
    (186e9, "186.0 GB"),
    (1.5e12, "1.5 TB"),
    (2e15, "2000.0 TB"),
  ],
)
def test_format_bytes(count, text):
  assert downloads.format_bytes(count) == text


def test_format_names():
  assert downloads.format_names("ab") == "a, b"
  assert downloads.format_names("abcde") == "a, b, c and 2 more"
