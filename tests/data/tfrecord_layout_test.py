"""Tests of how federated photos lie in files."""

import subprocess
import sys

import pytest

from tff_fedemb.data import tfrecord_layout


def test_reads_what_a_generator_says(tmp_path):
  (tmp_path / "generator.json").write_text('{"seed": 3, "name": "gld"}')
  found = tfrecord_layout.read_generator(tmp_path)
  assert found == {"seed": 3, "name": "gld"}


@pytest.mark.parametrize("content", [None, b"", b"[1]", b"{", b"\xff\xfe"])
def test_nothing_if_there_is_no_such_file(tmp_path, content):
  if content is not None:
    (tmp_path / "generator.json").write_bytes(content)
  assert tfrecord_layout.read_generator(tmp_path) == {}


def test_does_without_tensorflow():
  code = (
    "import sys; from tff_fedemb.data import tfrecord_layout;"
    " sys.exit('tensorflow' in sys.modules)"
  )
  subprocess.run([sys.executable, "-c", code], check=True)
