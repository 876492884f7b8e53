"""Tests of lines that are printed."""

import io
import sys

import pytest

from tests.binaries import closing
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


def test_warnings_come_before_what_there_is_room_for():
  lines, extras = ["a figure"], ["first " * 9, "second " * 20, "third"]
  text = progress.end(lines, extras=extras, rest="the rest")
  closing.check_size(text)
  assert text.splitlines() == [
    "a figure",
    ("first " * 9).strip(),
    ("second " * 11).strip(),
    "  " + ("second " * 9).strip(),
    "third",
    "the rest",
  ]
  text = progress.end(
    lines, warnings=["x " * 50, *"abcdefg"], extras=extras, rest="the rest"
  )
  closing.check_size(text)
  told = text.splitlines()
  assert told[1].startswith("warning: x x") and told[1].endswith(" ...")
  assert told[2:] == [
    *(f"warning: {name}" for name in "abcd"),
    "warning: there are 3 more",
    "the rest",
  ]
  # The first is always there.
  text = progress.end(["a figure"] * 6, warnings="ab", rest="the rest")
  assert text.splitlines()[6:] == ["warning: a (1 more)", "the rest"]
  warnings = ["x " * 50, "b", "c"]
  text = progress.end(["a figure"] * 6, warnings=warnings, rest="the rest")
  closing.check_size(text)
  assert text.splitlines()[6].endswith("x ... (2 more)")
