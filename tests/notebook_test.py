"""Executes every notebook in a Jupyter kernel, and checks what is kept."""

import json

import nbclient
import nbformat
import pandas as pd
import pytest

from tests import notebook as executor

_TUTORIAL = executor.read(executor.TUTORIAL)


def _code(notebook):
  return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_outputs_are_kept_and_modest():
  code = _code(_TUTORIAL)
  assert [c.execution_count for c in code] == [*range(1, len(code) + 1)]
  content = executor.TUTORIAL.read_text()
  assert len(content) < 1_000_000
  # The notebook names no folder of the machine that executed it.
  for place in ("/tmp/", "/home/", "/root/", "/work/"):
    assert place not in content
  for name in ("person_0000", "epsilon", "recall@0.001"):
    assert any(name in executor.text(cell) for cell in code)


def test_cells_run_in_a_kernel(tmp_path):
  sources = [
    # A kernel's event loop is running.
    "import asyncio, os\nassert asyncio.get_running_loop()\nos.getcwd()",
    "%%bash\nprintf 'b\\rc\\n'; pwd >&2",
  ]
  cells = [nbformat.v4.new_code_cell(source) for source in sources]
  notebook = nbformat.v4.new_notebook(cells=cells)
  executor.execute(notebook, tmp_path)
  assert cells[0].outputs[0].data == {"text/plain": repr(str(tmp_path))}
  printed = {output.name: output.text for output in cells[1].outputs}
  assert printed == {"stdout": "c\n", "stderr": f"{tmp_path}\n"}
  cells[1].source = "%%bash\nno_such_program | cat"
  with pytest.raises(nbclient.exceptions.CellExecutionError, match="no_such"):
    executor.execute(notebook, tmp_path)


@pytest.fixture(name="execute", scope="module")
def _execute(tmp_path_factory):
  """Executes notebooks, each once; returns them and the folders around."""
  done = {}

  def execute(path):
    if path not in done:
      notebook = executor.read(path)
      folder = tmp_path_factory.mktemp(path.stem)
      (folder / "here").mkdir()
      executor.execute(notebook, folder / "here")
      done[path] = notebook, folder
    return done[path]

  return execute


@pytest.mark.slow
@pytest.mark.parametrize("path", executor.ALL, ids=lambda path: path.stem)
def test_a_notebook_runs(path, execute):
  notebook, _ = execute(path)
  assert all(cell.execution_count for cell in _code(notebook))
  for cell in _code(notebook):
    names = [output.get("name") for output in cell.outputs]
    assert "stderr" not in names, cell.outputs


@pytest.mark.slow
def test_the_first_run(execute):
  path = executor.EXAMPLES / "first_run.ipynb"
  notebook, folder = execute(path)
  code = _code(notebook)
  lines = [line for c in code for line in c.source.splitlines() if line.strip()]
  assert len(lines) <= 25
  printed = "".join(map(executor.text, code))
  assert "Privacy of 3 rounds for 200 users" in printed
  assert "epsilon" in printed
  assert (folder / "here" / "first.html").exists()


@pytest.mark.slow
def test_the_tutorial(execute):
  _, folder = execute(executor.TUTORIAL)
  folder = folder / "runs" / "tutorial"
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
