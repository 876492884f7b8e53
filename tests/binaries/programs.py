"""Starts programs, or calls them in this process, which has TensorFlow."""

import contextlib
import dataclasses
import gc
import importlib
import io
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

from binaries import command_line
from binaries import config_flags
from binaries import run_centralized
from binaries import run_federated
from binaries import smoke
from binaries import training_flags

_ROOT = pathlib.Path(__file__).parents[2]
# A child of a process that has imported TensorFlow begins four seconds sooner
# than a program that imports it.
_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["tff_fedemb.training.train"])
_TOO_LATE = "it ended before it was killed"


@dataclasses.dataclass(frozen=True)
class Ended:
  """Exit status, standard output and standard error of a program."""

  status: int
  output: str
  errors: str


def launch(module: str, *arguments: str, log, options=(), **settings):
  """Begins `python -m MODULE` from the repository, as users do.

  Args:
    module: Module of the program.
    *arguments: Arguments of the program.
    log: Path of a file that takes what the program says, after what it has.
    options: Options of Python.
    **settings: Settings of `subprocess.Popen`.
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


def _train(arguments, log):
  with (
    open(log, "w") as output,
    contextlib.redirect_stdout(output),
    contextlib.redirect_stderr(output),
  ):
    command_line.run(run_federated.main, ["run_federated", *arguments])


def train_and_kill(*arguments: str, run_dir, rounds=7) -> None:
  """Trains in a process of its own, and kills it after so many rounds."""
  process = _FORKSERVER.Process(
    target=_train, args=(arguments, f"{run_dir}.log")
  )
  process.start()
  _kill_after(rounds, process, process.is_alive, run_dir)
  assert process.exitcode == -signal.SIGKILL, _TOO_LATE


def kill_in_the_middle(process: subprocess.Popen, run_dir, rounds=7) -> None:
  """Kills a training program that has reported so many rounds."""
  _kill_after(rounds, process, lambda: process.poll() is None, run_dir)
  assert process.wait() == -signal.SIGKILL, _TOO_LATE


def _kill_after(rounds, process, is_alive, run_dir) -> None:
  metrics = run_dir / "metrics.csv"
  while is_alive():
    if metrics.exists() and len(metrics.read_text().splitlines()) > rounds:
      process.kill()
    time.sleep(0.02)


def check_refused(ended: Ended, message: str) -> None:
  """Checks that a program ended with one line, which begins so."""
  assert ended.status == 1
  assert ended.errors.startswith(f"error: {message}"), ended.errors
  assert ended.errors.count("\n") == 1


def call(program: str, *arguments: str) -> Ended:
  """Runs a program's `main` as `python -m binaries.PROGRAM` does.

  An error that would be a stack trace for a user is raised here.
  """
  main = importlib.import_module(f"binaries.{program}").main
  output, errors = io.StringIO(), io.StringIO()
  status = 0
  collections = gc.get_stats()[1]["collections"]
  with (
    contextlib.redirect_stdout(output),
    contextlib.redirect_stderr(errors),
  ):
    try:
      command_line.run(main, [program, *arguments])
    except SystemExit as end:
      status = end.code or 0
  # Objects that an error held, such as a lock, go as if the process had ended.
  # Those of a short program are still among the young, which are quickly seen.
  is_young = gc.get_stats()[1]["collections"] == collections
  gc.collect(1 if is_young else 2)
  return Ended(status, output.getvalue(), errors.getvalue())


def succeed(program: str, *arguments: str) -> str:
  """Calls a program, which has to end well and quietly; returns its output."""
  ended = call(program, *arguments)
  assert (ended.status, ended.errors) == (0, "")
  return ended.output


def read_spec(program: str, *arguments: str):
  """The spec that the flags of a training program describe."""
  with config_flags.Parser(
    [program, *arguments], "", expand=smoke.expand
  ) as parser:
    parser.add(training_flags.RunOptions)
    is_pooled = program == "run_centralized"
    flags = training_flags.SpecFlags(
      parser, run_centralized.OBJECTIVES if is_pooled else None
    )
    parser.parse()
    return flags.create()
