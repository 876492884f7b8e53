"""How a measured process speaks with who measures it."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import os
import sys

RoundFn = Callable[[int], object]


@contextlib.contextmanager
def answering() -> Iterator[Callable[[RoundFn], None]]:
  """Yields what runs rounds on request, until the input ends.

  It says "ready" when it is called, then runs a round for each line it reads
  and answers "done". Its argument is called with the number of the round.
  """
  # Libraries print; the answers must stay alone on the pipe.
  answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
  os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

  def run(run_round: RoundFn) -> None:
    print("ready", file=answers, flush=True)
    for round_num, _ in enumerate(sys.stdin):
      run_round(round_num)
      print("done", file=answers, flush=True)

  with answers:
    yield run
