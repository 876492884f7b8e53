"""Tests of lines that are printed."""

import io
import sys

import pytest

from tff_fedemb import progress

_NAME = "Zo\xeb caf\udce9.png"


@pytest.mark.parametrize(
  ("encoding", "handler", "expected"),
  [
    ("ascii", "strict", rb"Zo\xeb caf\udce9.png"),
    ("utf-8", "strict", b"Zo\xc3\xab caf\\udce9.png"),
    # In the C locale Python gives back what it was given.
    ("utf-8", "surrogateescape", b"Zo\xc3\xab caf\xe9.png"),
  ],
)
def test_says_names_in_any_encoding(monkeypatch, encoding, handler, expected):
  output = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=handler)
  monkeypatch.setattr(sys, "stdout", output)
  progress.say(_NAME)
  output.flush()
  assert output.buffer.getvalue() == expected + b"\n"
  monkeypatch.setattr(sys, "stdout", io.StringIO())
  progress.say("Zo\xeb")
  assert sys.stdout.getvalue() == "Zo\xeb\n"
