"""One runtime on one case, in its own process: `worker CASE RUNTIME PRECISION`.

`binaries.benchmark` starts it and measures.
"""

from collections.abc import Callable
import sys
import tempfile

import tensorflow as tf

from benchmarks import bare_training
from benchmarks import cases
from benchmarks import fedemb_round
from benchmarks import photos
from benchmarks import rounds
from tff_fedemb import runtime as runtimes
from tff_fedemb.runtime import base
from tff_fedemb.runtime import worker_process


def _create_round(
  case: cases.Case, runtime_name: str, compute_precision: str, data_dir: str
) -> Callable[[list[str]], None]:
  """Returns what trains on clients, by their ids."""
  if runtime_name == "bare":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    return bare_training.BareLoop(
      case, num_threads=base.count_cores()
    ).run_round
  if runtime_name == "keras":
    return bare_training.KerasStep(case).run_round
  # Before TensorFlow computes anything, and so before the data are made.
  runtime = runtimes.create_runtime(
    runtime_name, compute_precision=compute_precision
  )
  task = photos.create_task(data_dir, case) if case.photos else None
  state = runtime.initialize(fedemb_round.build_process(case, task))

  def run_round(client_ids):
    nonlocal state
    state, _ = runtime.next(state, client_ids)

  return run_round


def main(case_name: str, runtime_name: str, compute_precision: str) -> None:
  """Runs rounds on request until its input ends."""
  worker_process.end_worker_on_exit()
  case = cases.CASES[case_name]

  def create_round():
    run = _create_round(case, runtime_name, compute_precision, data_dir)
    return lambda round_num: run(case.client_ids(round_num))

  with tempfile.TemporaryDirectory() as data_dir:
    rounds.answer(create_round)


if __name__ == "__main__":
  main(*sys.argv[1:])
