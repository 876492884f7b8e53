"""Runs the examples in the docstrings of the public names."""

import ast
import doctest
import pathlib

import numpy as np
import pytest

import tff_fedemb as fe

# These train, or need a run, and are parsed alone.
_PARSED = ("DataError", "Result", "export", "train")


def _public_names():
  path = pathlib.Path(fe.__file__)
  return [
    alias.asname or alias.name
    for block in ast.parse(path.read_text(encoding="utf-8")).body
    if isinstance(block, ast.With)
    for line in block.body
    for alias in line.names
  ]


@pytest.mark.parametrize("name", _public_names())
def test_an_example_runs_and_prints_what_it_says(name):
  documentation = getattr(fe, name).__doc__
  test = doctest.DocTestParser().get_doctest(
    documentation, {"fe": fe, "np": np}, f"fe.{name}", None, None
  )
  source = "".join(example.source for example in test.examples)
  # It says how the name is used.
  used = {node.attr for node in ast.walk(ast.parse(source)) if _is_ours(node)}
  assert name in used
  if name not in _PARSED:
    assert doctest.DocTestRunner().run(test).failed == 0


def _is_ours(node):
  return isinstance(node, ast.Attribute) and ast.unparse(node.value) == "fe"
