"""A measured process: `worker MODULE ARGUMENTS`.

The module's `create_round` is called with the arguments.
"""

from collections.abc import Callable
import functools
import importlib
import os
import sys


def answer(create_round: Callable[[], Callable[[int], object]]) -> None:
  """Runs rounds on request, until the input ends.

  It says "ready", then runs a round for each line it reads and answers "done";
  `create_round` gets ready, and returns what runs the round of a number.
  """
  # Libraries print; the answers must stay alone on the pipe.
  answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
  os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
  with answers:
    run_round = create_round()
    print("ready", file=answers, flush=True)
    for round_num, _ in enumerate(sys.stdin):
      run_round(round_num)
      print("done", file=answers, flush=True)


if __name__ == "__main__":
  # Imports of the one module are not to be in the memory of the other.
  _MODULE = importlib.import_module(f"benchmarks.{sys.argv[1]}")
  answer(functools.partial(_MODULE.create_round, *sys.argv[2:]))
