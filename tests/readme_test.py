"""Runs the Python of the README."""

import pathlib
import re

_README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def test_python_blocks_run(capsys):
  blocks = re.findall(r"```python\n(.*?)```", _README.read_text(), re.DOTALL)
  assert blocks
  for block in blocks:
    exec(compile(block, _README.name, "exec"), {})
  assert "@SERVER" in capsys.readouterr().out


def test_files_that_it_names_exist():
  text = _README.read_text()
  folders = "docs|binaries/flagfiles|tff_fedemb"
  for path in re.findall(rf"(?:{folders})/[\w/.]+", text):
    assert (_README.parent / path.rstrip(".")).exists(), path
