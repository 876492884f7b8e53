"""How a measured process speaks with who measures it."""

from collections.abc import Callable
import os
import sys


def answer(create_round: Callable[[], Callable[[int], object]]) -> None:
  """Runs rounds on request, until the input ends.

  It says "ready", then runs a round for each line it reads and answers "done".

  Args:
    create_round: Gets ready; returns what runs the round of a number.
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
