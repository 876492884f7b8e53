"""Tests of how files that cannot be read are told."""

import errno

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
