"""`round_process CASE RUNTIME`, a process that `results` measures.

It says "ready", then runs a round for each line it reads and answers "done".
"""

import importlib
import os
import sys

from tff_fedemb.runtime import process_settings


def main(case_name: str, runtime_name: str) -> None:
  """Runs rounds of `training_rounds` on request, until the input ends."""
  if runtime_name != "bare":
    # Our programs do so too, before NumPy and TensorFlow start threads.
    process_settings.prepare()
  training_rounds = importlib.import_module("benchmarks.training_rounds")
  # Libraries print; the answers must stay alone on the pipe.
  answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
  os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
  with answers:
    run_round = training_rounds.create_round(case_name, runtime_name)
    print("ready", file=answers, flush=True)
    for round_num, _ in enumerate(sys.stdin):
      run_round(round_num)
      print("done", file=answers, flush=True)


if __name__ == "__main__":
  main(*sys.argv[1:])
