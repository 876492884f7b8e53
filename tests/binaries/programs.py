"""Starts programs, or calls them in this process, which has TensorFlow loaded.

Programs have flags of the same names, so each call begins without any flags of
ours: the program, and what programs share, are imported anew.
"""

import contextlib
import dataclasses
import gc
import importlib
import io
import os
import pathlib
import runpy
import subprocess
import sys
from unittest import mock

from absl import app
from absl import flags

_ROOT = pathlib.Path(__file__).parents[2]
_PACKAGES = ("binaries", "experiments")
# Absl knows by their addresses which modules define flags for others. Those
# that were imported for a call stay here, lest another module gets the address
# of one and loses its flags.
_FLAG_MAKERS = []


@dataclasses.dataclass(frozen=True)
class Ended:
  """Exit status, standard output and standard error of a program."""

  status: int
  output: str
  errors: str


def _is_ours(module: str) -> bool:
  return module.partition(".")[0] in (*_PACKAGES, "__main__")


def _copy(value):
  """Copies dictionaries and lists, also of each other, but no flags."""
  if isinstance(value, dict):
    return {key: _copy(item) for key, item in value.items()}
  return list(value) if isinstance(value, list) else value


@contextlib.contextmanager
def _without_our_flags():
  """Takes the flags of programs away, and gives them back afterwards."""
  state = vars(flags.FLAGS)
  kept = {name: _copy(value) for name, value in state.items()}
  modules = {name: sys.modules[name] for name in sys.modules if _is_ours(name)}
  main = modules.pop("__main__")
  by_module = flags.FLAGS.flags_by_module_dict()
  ours = [f.name for m, some in by_module.items() if _is_ours(m) for f in some]
  flags.FLAGS.remove_flag_values(ours)
  for name in modules:
    del sys.modules[name]
  try:
    yield
  finally:
    _FLAG_MAKERS.append(sys.modules.get("binaries.config_flags"))
    for name in [*filter(_is_ours, sys.modules)]:
      del sys.modules[name]
    sys.modules.update(modules, __main__=main)
    state.clear()
    state.update(kept)


@contextlib.contextmanager
def flags_of(program: str):
  """Has absl know the flags of one program only, which are not parsed."""
  with _without_our_flags():
    flags.FLAGS.unparse_flags()
    importlib.import_module(f"binaries.{program}")
    yield


def launch(module: str, *arguments: str, log, options=(), **settings):
  """Begins `python -m MODULE` from the repository, as users do.

  Args:
    module: Of the program.
    *arguments: Of the program.
    log: Path of a file that takes what the program says, after what it has.
    options: Of Python.
    **settings: Of `subprocess.Popen`.
  """
  with open(log, "a") as output:
    return subprocess.Popen(
      [sys.executable, *options, "-m", module, *arguments],
      cwd=_ROOT,
      # TensorFlow sets it in this process, and the program would inherit it.
      env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
      **{"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
      | settings,
    )


def start(module: str, *arguments: str, options=()) -> Ended:
  """Runs `python -m MODULE` to its end."""
  pipe = subprocess.PIPE
  with launch(
    module,
    *arguments,
    log=os.devnull,
    options=options,
    stdout=pipe,
    stderr=pipe,
    text=True,
  ) as process:
    output, errors = process.communicate()
  return Ended(process.returncode, output, errors)


def check_refused(ended: Ended, message: str) -> None:
  """Checks that a program ended with one line, which begins so."""
  assert ended.status == 1
  assert ended.errors.startswith(f"error: {message}"), ended.errors
  assert ended.errors.count("\n") == 1


def call(program: str, *arguments: str) -> Ended:
  """Runs a program as `python -m binaries.PROGRAM` does.

  What would be a stack trace for a user is raised here.
  """
  output, errors = io.StringIO(), io.StringIO()
  status = 0
  collections = gc.get_stats()[1]["collections"]
  # Absl defines them once a process.
  app.define_help_flags()
  with (
    _without_our_flags(),
    mock.patch.object(sys, "argv", [program, *arguments]),
    contextlib.redirect_stdout(output),
    contextlib.redirect_stderr(errors),
  ):
    try:
      runpy.run_module(f"binaries.{program}", run_name="__main__")
    except SystemExit as end:
      status = end.code or 0
  # What an error held, such as a lock, goes as with the end of a process. What
  # a short program has made is still among the young, which are quickly seen.
  is_young = gc.get_stats()[1]["collections"] == collections
  gc.collect(1 if is_young else 2)
  return Ended(status, output.getvalue(), errors.getvalue())
