"""Executes docs/tutorial.ipynb, and checks what is kept of it."""

import copy
import json
import pathlib

import pandas as pd
import pytest

from tests import notebook as executor

_NOTEBOOK = json.loads(executor.TUTORIAL.read_text())
_CODE = [c for c in _NOTEBOOK["cells"] if c["cell_type"] == "code"]


def _text(cell):
  """All that a cell printed."""
  return "".join("".join(x.get("text", "")) for x in cell["outputs"])


def test_outputs_are_kept_and_modest():
  assert [c["execution_count"] for c in _CODE] == [*range(1, len(_CODE) + 1)]
  content = executor.TUTORIAL.read_text()
  assert len(content) < 1_000_000
  # The notebook names no folder of the machine that executed it.
  for place in ("/tmp/", "/home/", "/root/", "/work/"):
    assert place not in content
  for name in ("person_0000", "epsilon", "recall@0.001"):
    assert any(name in _text(cell) for cell in _CODE)


def test_cells_run_as_in_jupyter(tmp_path):
  def cell(source):
    return {"cell_type": "code", "source": source.splitlines(keepends=True)}

  sources = ["x = 6\nprint('a')\nx * 7", "%%bash\nprintf 'b\\rc\\n'; pwd >&2"]
  cells = [cell(source) for source in sources]
  executor.execute({"cells": cells}, tmp_path)
  assert cells[0]["outputs"][0]["text"] == ["a\n"]
  assert cells[0]["outputs"][1]["data"] == {"text/plain": ["42"]}
  assert [x["name"] for x in cells[1]["outputs"]] == ["stdout", "stderr"]
  assert cells[1]["outputs"][0]["text"] == ["c\n"]
  assert cells[1]["outputs"][1]["text"] == [f"{tmp_path}\n"]
  before = pathlib.Path.cwd()
  with pytest.raises(RuntimeError, match="no_such_program"):
    executor.execute({"cells": [cell("%%bash\nno_such_program | cat")]}, ".")
  assert pathlib.Path.cwd() == before


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path):
  notebook = copy.deepcopy(_NOTEBOOK)
  (tmp_path / "docs").mkdir()
  executor.execute(notebook, tmp_path / "docs")
  folder = tmp_path / "runs" / "tutorial"
  summary = json.loads((folder / "run" / "summary.json").read_text())
  recall, untrained = (
    summary[name]["test"]["recall_at_far"]["0.001"]
    for name in ("evaluation", "evaluation_untrained")
  )
  assert recall > 3 * untrained
  assert (folder / "run" / "report.html").stat().st_size > 100_000
  # Recall asks for every pair; a query has ten photos of its person to be like.
  matches = pd.read_csv(folder / "matches.csv")
  known = matches["folder_class"].isin(
    path.name for path in (folder / "visitors" / "gallery").iterdir()
  )
  right = matches["nearest_class"] == matches["folder_class"]
  assert right[known].mean() > recall
  assert known.sum() > 100 and (~known).sum() > 20
