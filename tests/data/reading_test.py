"""Tests of how files that cannot be read are told."""

import errno
import io
import zipfile

import pytest

from tff_fedemb.data import reading


@pytest.mark.parametrize(
  ("name", "kind", "text"),
  [
    (None, "file", "a must be a file that can be read, found: gone."),
    ("a/b", "folder", "a/b must be a folder that can be read, found: gone."),
  ],
)
def test_the_disk_knows_better_which_file_it_was(name, kind, text):
  error = OSError(errno.EIO, "gone", name)
  assert str(reading.create_error("a", error, kind)) == text


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x05\x06"])
def test_what_is_no_archive_is_one_of_its_errors(content):
  with pytest.raises(reading.ARCHIVE_ERRORS):
    zipfile.ZipFile(io.BytesIO(content))
