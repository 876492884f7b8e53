"""Hook of MkDocs that makes pages of files outside of docs/.

README.md becomes the home page. Notebooks, the reference of each package, the
flags of the programs and all files that a page links to get pages as well.
"""

from concurrent import futures
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import griffe
from mkdocs.structure import files as files_lib

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DOCS = _ROOT / "docs"
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_LANGUAGES = {".py": "python", ".md": "markdown", ".yaml": "yaml"}

# Files of the repository that are pages, by what the page is called.
_PAGES = {
  "index.md": "README.md",
  "contributing.md": "CONTRIBUTING.md",
  "changelog.md": "CHANGELOG.md",
  **{
    f"{path.stem}.md": path.relative_to(_ROOT).as_posix()
    for folder in (_DOCS, _ROOT / "examples")
    for path in folder.glob("*.ipynb")
  },
}


def _page_of(path: str) -> str:
  """Returns what the page of a file of the repository is called."""
  for page, origin in _PAGES.items():
    if path == origin:
      return page
  if path.startswith("docs/"):
    return path.removeprefix("docs/")
  return f"source/{path}.md"


def _output(output: dict[str, Any]) -> str:
  """Returns what a cell of a notebook printed or showed, as Markdown."""
  data = output.get("data", {})
  if "image/png" in data:
    return f"![](data:image/png;base64,{''.join(data['image/png']).strip()})\n"
  if "text/html" in data:
    return f"{''.join(data['text/html'])}\n"
  text = "".join(output.get("text", data.get("text/plain", [])))
  return f"```text\n{text.rstrip()}\n```\n"


def _notebook(path: pathlib.Path) -> str:
  """Returns a notebook as Markdown."""
  parts = []
  for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
      parts.append(f"{source}\n")
      continue
    language = "bash" if source.startswith("%%bash") else "python"
    source = source.removeprefix("%%bash\n")
    parts.append(f"```{language}\n{source}\n```\n")
    parts.extend(map(_output, cell["outputs"]))
  return "\n".join(parts)


def _source(path: pathlib.Path) -> str:
  """Returns a page that shows a file, and that the search leaves out."""
  language = _LANGUAGES.get(path.suffix, "text")
  text = path.read_text(encoding="utf-8")
  name = path.relative_to(_ROOT).as_posix()
  return (
    f"---\nsearch:\n  exclude: true\n---\n# {name}\n\n"
    f"`````{language}\n{text}\n`````\n"
  )


def _public_names() -> dict[str, str]:
  """Returns the paths of what `tff_fedemb` offers, by its public names.

  They are read from its imports, and nothing is imported.
  """
  package = griffe.load(
    "tff_fedemb", search_paths=[_ROOT], submodules=False, allow_inspection=False
  )
  return {
    name: member.target_path
    for name, member in package.members.items()
    if member.is_alias and member.target_path.startswith("tff_fedemb.")
  }


def _help(program: str) -> str:
  """Returns what a program says of itself and its flags."""
  command = [sys.executable, "-m", program, "--help"]
  ended = subprocess.run(
    command, cwd=_ROOT, capture_output=True, text=True, check=False
  )
  if ended.returncode:
    raise RuntimeError(f"{program} --help: {ended.stderr}")
  return ended.stdout.replace(f"{_ROOT}/", "")


def _programs() -> str:
  """Returns the page of all programs and their flags."""
  names = [
    f"binaries.{path.stem}"
    for path in sorted((_ROOT / "binaries").glob("*.py"))
    if "__main__" in path.read_text()
  ]
  names.append("tasks.synthetic")
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    helps = [*pool.map(_help, names)]
  sections = [
    f"## {name}\n\n```text\n{text.strip()}\n```\n"
    for name, text in zip(names, helps, strict=True)
  ]
  return "\n".join(["# Programs and their flags\n", *sections])


def _reference() -> dict[str, str]:
  """Returns the pages of the reference."""
  # Links elsewhere go to the pages of the packages, which have these as well.
  # Pages that explain come first in the search.
  front = "---\nsearch:\n  boost: 0.01\n---\n"
  objects = [
    f"::: {path}\n    options:\n      skip_local_inventory: true\n"
    f"      heading: tff_fedemb.{name}\n      toc_label: {name}\n"
    for name, path in sorted(_public_names().items())
  ]
  pages = {
    "reference/tff_fedemb.md": "\n".join(
      [f"{front}# Public names\n", *objects]
    ),
    "reference/programs.md": front + _programs(),
  }
  for path in (_ROOT / "tff_fedemb").glob("*/__init__.py"):
    package = path.parent.name
    pages[f"reference/{package}.md"] = (
      f"{front}# tff_fedemb.{package}\n\n::: tff_fedemb.{package}\n"
    )
  return pages


class Brackets(griffe.Extension):
  """Keeps `[0, 1] [default]` in docstrings from being taken for a link."""

  def on_instance(self, *, obj, **_):
    """Escapes the second bracket."""
    if obj.docstring:
      obj.docstring.value = re.sub(r"\]\s+\[", r"] \\[", obj.docstring.value)


def on_files(files, config):
  """Adds the pages that are made of other files, and points links at them."""
  texts = {path.name: path.read_text() for path in _DOCS.glob("*.md")}
  for page, origin in _PAGES.items():
    path = _ROOT / origin
    is_notebook = path.suffix == ".ipynb"
    texts[page] = _notebook(path) if is_notebook else path.read_text()
  made = _reference()

  def point(match, page):
    link, section = match.groups()
    path = os.path.join(os.path.dirname(_PAGES.get(page, f"docs/{page}")), link)
    path = os.path.normpath(path)
    target = _page_of(path)
    if target.startswith("source/") and (_ROOT / path).is_file():
      made[target] = _source(_ROOT / path)
    target = os.path.relpath(target, os.path.dirname(page))
    return f"]({target}{section or ''})"

  for page, text in texts.items():
    made[page] = _LINK.sub(functools.partial(point, page=page), text)
  for page, text in made.items():
    if written := files.get_file_from_path(page):
      files.remove(written)
    files.append(files_lib.File.generated(config, page, content=text))
  return files
