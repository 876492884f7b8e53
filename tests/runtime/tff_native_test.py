"""Tests of TFF's own runtime behind our calls, and of the end of its worker."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import psutil
import pytest

from tests.runtime import builders
from tff_fedemb import runtime
from tff_fedemb.runtime import tff_native

_TIMEOUT_SECONDS = 300.0


def _workers(process: psutil.Process) -> list[psutil.Process]:
  return [
    child for child in process.children() if child.name() == "worker_binary"
  ]


def test_runs_rounds_and_ends_its_worker():
  workers_before = _workers(psutil.Process())
  with runtime.create_runtime("tff", concurrent_clients=2) as started:
    assert isinstance(started, tff_native.TffRuntime)
    state = started.initialize(builders.build_sums(builders.length))
    assert len(_workers(psutil.Process())) == len(workers_before) + 1
    # In bytes of UTF-8; a name of a file may be none.
    state, letters = started.next(state, ["Zo\xeb", "f\udcfc"])
    assert letters == 6
    state = started.load_state(started.structured_state(state))
    state, letters = started.next(state, [])
    assert letters == 0
    assert started.structured_state(state) == 2
    with pytest.raises(ValueError, match="must be int32, found float64"):
      started.load_state(np.float64(1.0))
  assert _workers(psutil.Process()) == workers_before
  with pytest.raises(RuntimeError, match="initialize must be called first"):
    started.next(state, ["ab"])
  with pytest.raises(RuntimeError, match="must be open"):
    started.initialize(builders.build_sums(builders.length))


def test_worker_computes_with_one_thread_an_operation(monkeypatch):
  name = "TF_NUM_INTRAOP_THREADS"
  monkeypatch.delenv(name, raising=False)
  workers_before = _workers(psutil.Process())
  with runtime.create_runtime("tff") as started:
    started.initialize(builders.build_sums(builders.length))
    (worker,) = set(_workers(psutil.Process())) - set(workers_before)
    assert worker.environ()[name] == "1"
  # This process goes on with as many threads as before.
  assert name not in os.environ


# A program with two workers, TFF's default one and a runtime's that nobody
# closes.
_PROGRAM = """
import sys
from tff_fedemb.runtime import worker_process
worker_process.end_worker_on_exit()
import numpy as np
import psutil
import tensorflow_federated as tff
from tests.runtime import builders
from tests.runtime import tff_native_test
from tff_fedemb import runtime

started = runtime.create_runtime('tff')
started.initialize(builders.build_sums(builders.length))
tff.tensorflow.computation(lambda x: x + 1, np.int32)(1)
for worker in tff_native_test._workers(psutil.Process()):
  print(worker.pid)
if sys.argv[1] == 'exception':
  raise ValueError('on purpose')
"""


@pytest.mark.slow
@pytest.mark.parametrize(
  ("ending", "return_code"), [("normal", 0), ("exception", 1)]
)
def test_no_worker_outlives_a_program(ending, return_code, tmp_path):
  """Endings by signals are in `binaries/ending_test`."""
  with open(tmp_path / "output", "w") as output:
    program = subprocess.run(
      [sys.executable, "-c", _PROGRAM, ending],
      stdout=output,
      stderr=subprocess.STDOUT,
      cwd=pathlib.Path(__file__).parents[2],
      timeout=_TIMEOUT_SECONDS,
      check=False,
    )
  text = (tmp_path / "output").read_text()
  assert program.returncode == return_code, text
  workers = [int(line) for line in text.splitlines() if line.isdigit()]
  assert len(workers) == 2, text
  assert not any(psutil.pid_exists(process_id) for process_id in workers)
  assert "Exception ignored" not in text
  assert ("on purpose" in text) == (ending == "exception")
