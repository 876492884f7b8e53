"""Executes a notebook whose code cells are bash or plain Python.

Jupyter does the same with such cells, but needs thirty packages, some of them
in later versions than TensorFlow Federated pins. To execute the
tutorial and keep what it prints and shows:

  .venv/bin/python -m tests.notebook
"""

import ast
import base64
import contextlib
import io
import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any

_ROOT = pathlib.Path(__file__).parents[1]
TUTORIAL = _ROOT / "docs" / "tutorial.ipynb"
_BASH = "%%bash\n"


def _as_terminal(text: str) -> str:
  """What remains to be seen where a progress bar overwrites its line."""
  lines = text.removesuffix("\n").split("\n") if text else []
  return "".join(f"{line.rsplit(chr(13), 1)[-1]}\n" for line in lines)


def _stream(name: str, text: str) -> list[dict[str, Any]]:
  lines = _as_terminal(text).splitlines(keepends=True)
  stream = {"name": name, "output_type": "stream", "text": lines}
  return [stream] if lines else []


def _run_bash(script: str) -> list[dict[str, Any]]:
  """Runs a script; an error in any of its lines is one of the cell."""
  ended = subprocess.run(
    ["bash", "-e", "-o", "pipefail", "-c", script],
    capture_output=True,
    check=False,
  )
  # Not as text, which takes the return of a progress bar for a new line.
  printed, errors = ended.stdout.decode(), ended.stderr.decode()
  if ended.returncode:
    raise RuntimeError(f"{script}\n{printed}\n{errors}")
  return _stream("stdout", printed) + _stream("stderr", errors)


def _show(value: Any) -> dict[str, Any]:
  """A picture as PNG, tables as HTML, anything else in words."""
  data: dict[str, Any] = {
    "text/plain": [f"<{type(value).__name__}>"]
    if hasattr(value, "_repr_png_")
    else repr(value).splitlines(keepends=True)
  }
  if hasattr(value, "_repr_png_"):
    data["image/png"] = base64.b64encode(value._repr_png_()).decode()
  if hasattr(value, "_repr_html_"):
    data["text/html"] = value._repr_html_().splitlines(keepends=True)
  return data


def _run_python(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
  """Runs statements; if the last is an expression its value is shown."""
  tree = ast.parse(source)
  last = None
  if tree.body and isinstance(tree.body[-1], ast.Expr):
    last = ast.Expression(tree.body.pop().value)
  with contextlib.redirect_stdout(io.StringIO()) as printed:
    exec(compile(tree, "cell", "exec"), names)
    value = None if last is None else eval(compile(last, "cell", "eval"), names)
  outputs = _stream("stdout", printed.getvalue())
  if value is not None:
    shown = {"output_type": "execute_result", "metadata": {}}
    outputs.append(shown | {"data": _show(value), "execution_count": None})
  return outputs


def execute(notebook: dict[str, Any], folder: str | os.PathLike[str]) -> None:
  """Executes all cells in a folder, and puts their outputs in their places.

  Raises:
    RuntimeError: If a script fails.
  """
  names: dict[str, Any] = {}
  before, environment = os.getcwd(), dict(os.environ)
  paths = filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))
  os.environ["PYTHONPATH"] = os.pathsep.join(paths)
  os.environ["XDG_CACHE_HOME"] = os.path.join(os.path.abspath(folder), ".cache")
  os.chdir(folder)
  try:
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
      source = "".join(cell["source"])
      if source.startswith(_BASH):
        cell["outputs"] = _run_bash(source.removeprefix(_BASH))
      else:
        cell["outputs"] = _run_python(source, names)
      cell["execution_count"] = number
      for output in cell["outputs"]:
        if "execution_count" in output:
          output["execution_count"] = number
  finally:
    os.chdir(before)
    os.environ.clear()
    os.environ.update(environment)


def main() -> None:
  """Executes the tutorial in an empty folder and keeps its outputs."""
  notebook = json.loads(TUTORIAL.read_text())
  with tempfile.TemporaryDirectory() as folder:
    docs = pathlib.Path(folder, "docs")
    docs.mkdir()
    execute(notebook, docs)
  content = json.dumps(notebook, indent=1, ensure_ascii=False)
  TUTORIAL.write_text(content + "\n")


if __name__ == "__main__":
  main()
