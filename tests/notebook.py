"""Executes a notebook in a Jupyter kernel, as its reader would.

To execute the tutorial and keep what it prints and shows:

  .venv/bin/python -m tests.notebook
"""

import os
import pathlib
import tempfile

import nbclient
import nbformat

_ROOT = pathlib.Path(__file__).parents[1]
_DOCS, EXAMPLES = _ROOT / "docs", _ROOT / "examples"
TUTORIAL = _DOCS / "tutorial.ipynb"
ALL = sorted([*_DOCS.rglob("*.ipynb"), *EXAMPLES.rglob("*.ipynb")])


def read(path: pathlib.Path) -> nbformat.NotebookNode:
  """Returns a notebook, which it checks."""
  return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def text(cell: nbformat.NotebookNode) -> str:
  """Returns all that a cell printed."""
  return "".join(output.get("text", "") for output in cell.outputs)


def execute(notebook: nbformat.NotebookNode, folder: pathlib.Path) -> None:
  """Executes all cells in a folder, and puts their outputs in their places.

  Raises:
    nbclient.exceptions.CellExecutionError: If a cell fails, or any command of
      a script.
  """
  paths = filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))
  environment = {
    "PYTHONPATH": os.pathsep.join(paths),
    # Otherwise bash would tell Jupyter of the last command alone.
    "SHELLOPTS": "errexit:pipefail",
    "XDG_CACHE_HOME": str(folder / ".cache"),
    "IPYTHONDIR": str(folder / ".ipython"),
  }
  nbclient.NotebookClient(
    notebook,
    resources={"metadata": {"path": str(folder)}},
    # The Python that runs this has it, whatever kernels the machine has.
    kernel_name="python3",
    coalesce_streams=True,
    record_timing=False,
    timeout=None,
  ).execute(env=os.environ | environment)


def main() -> None:
  """Executes the tutorial in an empty folder and keeps its outputs."""
  notebook = read(TUTORIAL)
  metadata = notebook.metadata.copy()
  with tempfile.TemporaryDirectory() as folder:
    docs = pathlib.Path(folder, "docs")
    docs.mkdir()
    execute(notebook, docs)
  # Without the versions of this machine.
  notebook.metadata = metadata
  nbformat.write(notebook, TUTORIAL)


if __name__ == "__main__":
  main()
