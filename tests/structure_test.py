"""The house's rules: who may import whom, and what belongs where.

Read from the sources' syntax trees; nothing of the project is imported.
"""

import ast
import functools
import graphlib
import pathlib
import re

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_SOURCES = ("tff_fedemb", "tasks", "binaries", "benchmarks")
_MAX_LINES_OF_CODE = 400
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# Each may import those in the lines before its own, and its neighbours, as long
# as packages form no circle. Packages of the library come first.
_LAYERS = """
errors checks config imports progress registry split_mix whole_files
data
participation
models evaluation plots deployment
mechanisms
algorithms
accounting
planning
audit runtime
phones
records
rounds
spec
serving
report features
training
__init__
tasks
benchmarks
binaries
""".splitlines()
# Flags of programs that are not ours.
_OTHERS_FLAGS = {
  *("--abbrev", "--always", "--dirty", "--exclude", "--git-dir"),
  "--work-tree",
}

# Modules that no test imports, and the tests that go through them. No test runs
# `benchmarks.pfl_round`: it needs torch and pfl, which are not installed here.
_TESTED_THROUGH = dict(
  line.split()
  for line in (_ROOT / "tests/tested_through.txt").read_text().splitlines()
)


@functools.cache
def _modules():
  """Paths and syntax trees of the modules below `_SOURCES`, by their names."""
  modules = {}
  for top in _SOURCES:
    for path in sorted((_ROOT / top).rglob("*.py")):
      name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
      tree = ast.parse(path.read_text(encoding="utf-8"))
      modules[name.removesuffix(".__init__")] = path, tree
  return modules


def _imports(tree):
  """Names of the project's modules that a syntax tree imports, anywhere."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        longer = f"{node.module}.{alias.name}"
        names.add(longer if longer in _modules() else node.module)
  return {name for name in names if name in _modules()}


@functools.cache
def _graph():
  return {
    name: _imports(tree) - {name} for name, (_, tree) in _modules().items()
  }


def _package(name):
  """The package of a module of the library, or the folder of any other."""
  top, *inner = name.split(".")
  return (inner or ["__init__"])[0] if top == "tff_fedemb" else top


def _check(violations):
  violations = sorted(set(violations))
  assert not violations, "\n".join(violations)


def test_no_import_points_upward():
  rank = {name: i for i, line in enumerate(_LAYERS) for name in line.split()}
  _check(
    f"{name} imports {imported}"
    for name, imports in _graph().items()
    for imported in imports
    if rank[_package(name)] < rank[_package(imported)]
  )


def test_neither_modules_nor_packages_form_a_circle():
  packages = {_package(name): set() for name in _graph()}
  for name, imports in _graph().items():
    packages[_package(name)] |= {*map(_package, imports)} - {_package(name)}
  for graph in (_graph(), packages):
    # An error names those that are in a circle.
    graphlib.TopologicalSorter(graph).prepare()


def test_neither_library_nor_tasks_name_flags():
  _check(
    f"{name} names {flag}"
    for name, (path, _) in _modules().items()
    if name.split(".")[0] in ("tff_fedemb", "tasks")
    and path.name != "__main__.py"
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text())
    if flag not in _OTHERS_FLAGS
  )


def test_bazel_knows_every_folder_of_tests():
  folders = {path.parent for path in (_ROOT / "tests").rglob("*_test.py")}
  _check(
    f"{folder.relative_to(_ROOT)} has no BUILD"
    for folder in folders - {_ROOT / "tests"}
    if not (folder / "BUILD").exists()
  )


def _num_lines_of_code(source):
  """Lines with code on them: docstrings and comments make no file too long."""
  docstrings = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
      text = node.body[0]
      docstrings.update(range(text.lineno, text.end_lineno + 1))
  return sum(
    bool(line.strip()) and not line.lstrip().startswith("#")
    for number, line in enumerate(source.splitlines(), start=1)
    if number not in docstrings
  )


def test_docstrings_and_comments_are_no_code():
  source = (
    '"""A page\nof words."""\n\nx = """two\nlines"""  # Why.\n# A comment.\n'
  )
  assert _num_lines_of_code(source) == 2


def test_no_file_is_long():
  _check(
    f"{path.relative_to(_ROOT)} has {lines} lines of code"
    for top in (*_SOURCES, "tests")
    for path in (_ROOT / top).rglob("*.py")
    if (lines := _num_lines_of_code(path.read_text(encoding="utf-8")))
    > _MAX_LINES_OF_CODE
  )


def test_no_comment_opens_without_a_subject():
  # A comment, a docstring and an entry of one begin so, but not the next lines.
  begins = r'^(?! *#).*\n *# |\S  # |^ *r?"""|^ +[*\w, ]+: '
  opening = re.compile(f"({begins})(Of|From) .*", re.MULTILINE)
  _check(
    f"{path.relative_to(_ROOT)}: {found[0]}"
    for top in (*_SOURCES, "examples", "tests")
    for path in (_ROOT / top).rglob("*.py")
    for found in opening.finditer(path.read_text(encoding="utf-8"))
  )


def test_every_module_is_tested():
  tested = set()
  for path in (_ROOT / "tests").rglob("*.py"):
    tested |= _imports(ast.parse(path.read_text(encoding="utf-8")))
    inner = path.relative_to(_ROOT / "tests").with_suffix("")
    tested.add(".".join(inner.parts).removesuffix("_test"))
  _check(
    f"{name} has no test"
    for name, (path, _) in _modules().items()
    if path.name not in ("__init__.py", "__main__.py")
    and name not in tested
    and name.removeprefix("tff_fedemb.") not in tested
    and not (_ROOT / _TESTED_THROUGH.get(name, "none")).exists()
  )
