"""The house's rules: who may import whom, and what belongs where.

Read from the sources' syntax trees; nothing of the project is imported.
"""

import ast
import functools
import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_SOURCES = ("tff_fedemb", "tasks", "binaries", "benchmarks")
_MAX_LINES = 450

# Each may import those before it in this list, and itself.
_LAYERS = ("tff_fedemb", "tasks", "benchmarks", "binaries")
# Inside the library; a package may also import its neighbours, as long as
# packages form no circle.
_LIBRARY_LAYERS = (
  (
    *("errors", "checks", "config", "progress", "registry", "split_mix"),
    "whole_files",
  ),
  (
    *("aggregators", "data", "deployment", "models", "participation"),
    "strategies",
  ),
  ("algorithms",),
  ("evaluation", "plots", "privacy", "runtime"),
  ("output_files", "program"),
  ("run",),
  ("serving",),
  ("features", "report"),
  ("training",),
)
# Modules of `binaries` that several programs share.
_SHARED_BY_PROGRAMS = (
  *("command_line", "choice_flags", "config_flags", "smoke"),
  "training_flags",
)
_BENCHMARK_DOORS = ("binaries.benchmark", "binaries.benchmark_features")

# Flags of programs that are not ours.
_OTHERS_FLAGS = {"--porcelain", "--show-toplevel", "--untracked-files"}

# Modules that no test imports, and the tests that go through them.
_TESTED_THROUGH = {
  "tff_fedemb.progress": "tests/data/sqlite_examples_test.py",
  "tff_fedemb.whole_files": "tests/data/tfrecord_files_test.py",
  "tff_fedemb.aggregators.adaptive_clipping": (
    "tests/aggregators/adaptive_clipping_test.py"
  ),
  **{
    f"tff_fedemb.algorithms.{name}": "tests/algorithms/contrastive_test.py"
    for name in ("algorithm", "centralized")
  },
  # Needs torch and pfl, which are not installed here: no test runs it.
  "benchmarks.pfl_round": "tests/binaries/benchmark_test.py",
  "benchmarks.worker": "tests/benchmarks/results_test.py",
  "binaries.benchmark_features": "tests/binaries/benchmark_test.py",
  "binaries.choice_flags": "tests/binaries/mistakes_test.py",
  "binaries.evaluate": "tests/serving/evaluate_test.py",
  "binaries.export": "tests/serving/lite_export_test.py",
  "binaries.prepare_data": "tests/binaries/mistakes_test.py",
  "binaries.training_flags": "tests/binaries/run_centralized_test.py",
  "tff_fedemb.report.account_output": "tests/binaries/account_test.py",
  "tff_fedemb.report.mechanism_choices": "tests/binaries/account_test.py",
  "tff_fedemb.report.training_report": "tests/binaries/run_federated_test.py",
  "tff_fedemb.run.experiment": "tests/binaries/run_federated_test.py",
  "tff_fedemb.serving.image_sources": "tests/binaries/extract_features_test.py",
  "tff_fedemb.serving.match": "tests/binaries/match_test.py",
  "tff_fedemb.training.audit": "tests/binaries/audit_test.py",
  "tff_fedemb.training.audit_settings": "tests/binaries/audit_test.py",
  "tff_fedemb.training.audit_slots": "tests/binaries/audit_test.py",
  "tff_fedemb.training.opening": "tests/binaries/run_federated_test.py",
  "tff_fedemb.training.train": "tests/binaries/run_federated_test.py",
  "tasks.user_photos": "tests/tasks/gld_test.py",
  "tff_fedemb.data.tfds_directories": "tests/tasks/tfds_test.py",
  "tff_fedemb.models.sequences": "tests/models/backbones_test.py",
  "tff_fedemb.aggregators.query_mean": "tests/aggregators/mechanisms_test.py",
  **{
    f"tff_fedemb.data.photo_{name}": "tests/tasks/photos_test.py"
    for name in ("checks", "folder", "index", "listing", "splits", "table")
  },
  "tff_fedemb.program.storage": "tests/program/checkpoints_test.py",
  "tff_fedemb.runtime.tflite_client": "tests/algorithms/client_file_test.py",
  "tff_fedemb.runtime.client_fold": "tests/runtime/in_process_test.py",
  "tff_fedemb.runtime.ray_worker": "tests/runtime/ray_test.py",
  "tff_fedemb.features.method": "tests/features/registry_test.py",
  "tff_fedemb.features.settings": "tests/binaries/classify_features_test.py",
  **{
    f"tff_fedemb.features.extraction.{name}": (
      "tests/binaries/extract_features_test.py"
    )
    for name in ("extracting", "settings")
  },
}


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
  """`tff_fedemb.<package>`, or the folder of any other module."""
  parts = name.split(".")
  return ".".join(parts[:2]) if parts[0] == "tff_fedemb" else parts[0]


def _check(violations):
  violations = sorted(set(violations))
  assert not violations, "\n".join(violations)


def _circles(graph):
  """Names that can be reached from themselves, as texts."""
  for start in graph:
    reached, waiting = set(), list(graph[start])
    while waiting:
      name = waiting.pop()
      if name not in reached:
        reached.add(name)
        waiting.extend(graph[name])
    if start in reached:
      yield f"{start} imports itself by way of others"


def test_no_import_points_upward():
  rank = {name: index for index, name in enumerate(_LAYERS)}
  _check(
    f"{name} imports {imported}"
    for name, imports in _graph().items()
    for imported in imports
    if rank[name.split(".")[0]] < rank[imported.split(".")[0]]
  )


def test_only_their_doors_import_the_benchmarks():
  _check(
    f"{name} imports {imported}"
    for name, imports in _graph().items()
    for imported in imports
    if imported.startswith("benchmarks")
    and not name.startswith("benchmarks")
    and name not in _BENCHMARK_DOORS
  )


def test_the_library_is_layered():
  rank = {
    f"tff_fedemb.{package}": index
    for index, layer in enumerate(_LIBRARY_LAYERS)
    for package in layer
  }
  names = [name for name in _graph() if name.startswith("tff_fedemb.")]
  _check(
    f"{name} imports {imported}"
    for name in names
    for imported in _graph()[name]
    if rank[_package(name)] < rank[_package(imported)]
  )


def test_modules_form_no_circle():
  _check(_circles(_graph()))


def test_packages_form_no_circle():
  graph = {_package(name): set() for name in _graph()}
  for name, imports in _graph().items():
    graph[_package(name)].update(map(_package, imports))
  _check(_circles({name: graph[name] - {name} for name in graph}))


@pytest.mark.parametrize("folder", ["tff_fedemb", "tasks"])
def test_neither_library_nor_tasks_know_flags(folder):
  def violations():
    for name, (path, tree) in _modules().items():
      if name.split(".")[0] != folder or path.name == "__main__.py":
        continue
      if any(
        "absl.flags" in ast.unparse(node) or "import flags" in ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
      ):
        yield f"{name} imports absl's flags"
      flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text()))
      for flag in flags - _OTHERS_FLAGS:
        yield f"{name} names {flag}"

  _check(violations())


def test_every_module_of_binaries_is_a_program():
  _check(
    f"{name} has no main"
    for name, (path, tree) in _modules().items()
    if name.startswith("binaries.")
    and name.partition(".")[2] not in _SHARED_BY_PROGRAMS
    and not any(
      isinstance(node, ast.FunctionDef) and node.name == "main"
      for node in tree.body
    )
  )


def test_bazel_knows_every_folder_of_tests():
  folders = {path.parent for path in (_ROOT / "tests").rglob("*_test.py")}
  _check(
    f"{folder.relative_to(_ROOT)} has no BUILD"
    for folder in folders - {_ROOT / "tests"}
    if not (folder / "BUILD").exists()
  )


def test_no_file_is_long():
  _check(
    f"{path.relative_to(_ROOT)} has more than {_MAX_LINES} lines"
    for top in (*_SOURCES, "tests")
    for path in (_ROOT / top).rglob("*.py")
    if len(path.read_text(encoding="utf-8").splitlines()) > _MAX_LINES
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


def test_modules_keep_their_private_names_to_themselves():
  def violations():
    for name, (_, tree) in _modules().items():
      modules = {imported.rpartition(".")[2] for imported in _graph()[name]} - {
        node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)
      }
      for node in ast.walk(tree):
        if (
          isinstance(node, ast.Attribute)
          and isinstance(node.value, ast.Name)
          and node.value.id in modules
          and re.match(r"_[^_]", node.attr)
        ):
          yield f"{name} uses {node.value.id}.{node.attr}"

  _check(violations())


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
