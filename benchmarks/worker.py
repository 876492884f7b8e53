"""One runtime on one case, in its own process: `worker CASE RUNTIME PRECISION`.

`binaries.benchmark` starts it and measures.
"""

from collections.abc import Callable
import sys
import tempfile

import tensorflow as tf

from benchmarks import bare_loop
from benchmarks import cases
from benchmarks import keras_step
from benchmarks import rounds
from tff_fedemb import runtime as runtimes
from tff_fedemb.runtime import base
from tff_fedemb.runtime import worker_process


def _create_bare_round(case: cases.Case) -> Callable[[list[str]], None]:
  tf.config.threading.set_intra_op_parallelism_threads(1)
  loop = bare_loop.BareLoop(case, num_threads=base.count_cores())
  return loop.run_round


def _create_round(
  case: cases.Case,
  runtime_name: str,
  compute_precision: str,
  data_dir: str,
) -> Callable[[list[str]], None]:
  # Before TensorFlow computes anything, and so before the data are made.
  runtime = runtimes.create_runtime(
    runtime_name, compute_precision=compute_precision
  )
  task = case.create_task(data_dir)
  state = runtime.initialize(cases.build_process(case, task))

  def run_round(client_ids):
    nonlocal state
    state, _ = runtime.next(state, client_ids)

  return run_round


def main(case_name: str, runtime_name: str, compute_precision: str) -> None:
  """Runs rounds on request until its input ends."""
  worker_process.end_worker_on_exit()
  case = cases.CASES[case_name]
  with rounds.answering() as run, tempfile.TemporaryDirectory() as data_dir:
    if runtime_name == "bare":
      run_round = _create_bare_round(case)
    elif runtime_name == "keras":
      run_round = keras_step.KerasStep(case).run_round
    else:
      run_round = _create_round(case, runtime_name, compute_precision, data_dir)
    run(lambda round_num: run_round(case.client_ids(round_num)))


if __name__ == "__main__":
  main(*sys.argv[1:])
