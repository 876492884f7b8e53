"""Tests of what becomes of input that cannot be used."""

import pytest

from tff_fedemb import errors
from tff_fedemb.data import bad_examples


def _note(count):
  bad = bad_examples.BadExamples("fail")
  for i in range(count):
    bad.add(f"train/{i}", "empty")
  return bad


def test_fail_names_the_first_in_one_message():
  _note(0).check()
  with pytest.raises(errors.DataError) as error:
    _note(2).check()
  assert str(error.value) == (
    "data must be readable, found 2 bad examples: train/0: empty; train/1:"
    " empty. on_bad_example=skip leaves out what is bad."
  )
  with pytest.raises(errors.DataError) as error:
    _note(12).check()
  message = str(error.value)
  assert "12 bad examples: train/0: empty; " in message
  assert "train/4: empty; and 7 more" in message
  assert "train/5" not in message
  assert bad_examples.summarize(["a: cut"]) == "1 bad example: a: cut"
  assert bad_examples.name_first("abcdef") == "a, b, c, d, e, ..."
