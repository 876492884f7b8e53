"""Tests of the ways in which a training program ends before its time.

SIGKILL, which leaves no time to save anything, is in `run_federated_test`.
"""

import errno
import importlib.util
import json
import os
import shutil
import signal
import time

import pandas as pd
import psutil
import pytest

from tasks.synthetic import emnist
from tests.binaries import programs
from tff_fedemb.plots import training_plots

pytestmark = pytest.mark.slow

_TIMEOUT_SECONDS = 240.0
_RAY_SECONDS = 20.0
_ROUNDS = 40
_FLAGS = (
  "--task=emnist",
  "--clients_per_round=2",
  "--users_per_client=2",
  f"--rounds={_ROUNDS}",
  "--batch_size=64",
  "--evaluate_every=0",
  # No checkpoint but those of the start and of the end, whatever it is.
  f"--checkpoint_every={_ROUNDS}",
  "--max_evaluation_images=100",
)
# Rounds of each program before it is ended.
_ROUNDS_BEFORE = 3


# By name: what ends the program, its exit status, and what it says.
_ENDINGS = {
  # Ctrl-C, which reaches every process of the terminal, workers as well.
  "interrupt": (
    lambda process, _: os.killpg(process.pid, signal.SIGINT),
    *(130, "interrupted"),
  ),
  # `kill` sends this signal, to the program alone.
  "terminate": (
    lambda process, _: process.terminate(),
    *(128 + signal.SIGTERM, "Interrupted after round"),
  ),
  "damage": (
    lambda _, data_file: os.truncate(data_file, 0),
    *(1, "Traceback"),
  ),
}


def _start(directory, log, *more):
  """Starts the program in a session of its own, as in a terminal."""
  log.unlink(missing_ok=True)
  return programs.launch(
    "binaries.run_federated",
    *_FLAGS,
    f"--data_dir={directory}",
    f"--run_dir={directory / 'run'}",
    *more,
    log=log,
    start_new_session=True,
    # Background jobs of a shell ignore it, and so do their children.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )


def _processes(session_id):
  """Names of the processes of a session, which includes orphans."""
  names = []
  for process in psutil.process_iter():
    try:
      if os.getsid(process.pid) == session_id:
        names.append(process.name())
    except (ProcessLookupError, psutil.NoSuchProcess):
      pass
  return names


def _rounds_on_file(directory):
  path = directory / "run" / "metrics.csv"
  return len(path.read_text().splitlines()) - 1 if path.exists() else 0


def _newest_checkpoint(directory):
  paths = (directory / "run" / "checkpoints").glob("round_*")
  return max(int(path.name.removeprefix("round_")) for path in paths)


def _end_in_the_middle(process, directory, data_file, end):
  """Waits for some rounds, ends the program, returns its exit status."""
  rounds = _rounds_on_file(directory) + _ROUNDS_BEFORE
  deadline = time.monotonic() + _TIMEOUT_SECONDS
  while _rounds_on_file(directory) < rounds and process.poll() is None:
    assert time.monotonic() < deadline, "the program must train"
    time.sleep(0.02)
  has_worker = "worker_binary" in _processes(process.pid)
  end(process, data_file)
  return process.wait(timeout=_TIMEOUT_SECONDS), has_worker


@pytest.mark.parametrize(
  ("runtime", "endings"),
  [
    ("in_process", "damage terminate interrupt"),
    ("tff", "damage terminate interrupt"),
    pytest.param(
      *("ray", "terminate interrupt"),
      marks=pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is an extra"
      ),
    ),
  ],
)
def test_ended_run_is_saved_and_leaves_no_process(
  data_dir, tmp_path, runtime, endings
):
  data_file = tmp_path / emnist.FILE_NAME
  log = tmp_path / "log"
  rounds_done = 0
  # None stands for the program that nothing ends.
  for ending in [*endings.split(), None]:
    shutil.copyfile(data_dir / data_file.name, data_file)
    more = ["--ray_workers=1"] if runtime == "ray" else []
    process = _start(tmp_path, log, f"--runtime={runtime}", *more)
    try:
      if ending is None:
        assert process.wait(timeout=_TIMEOUT_SECONDS) == 0, log.read_text()
      else:
        end, status, message = _ENDINGS[ending]
        found, has_worker = _end_in_the_middle(
          process, tmp_path, data_file, end
        )
        text = log.read_text()
        assert found == status, text
        assert message in text
        assert ("Traceback" in text) == (ending == "damage")
        # The check below means something only if there was one.
        assert has_worker == (runtime == "tff")
    finally:
      process.kill()
    # Ray's processes end by themselves when the program has.
    deadline = time.monotonic() + (_RAY_SECONDS if runtime == "ray" else 0)
    while _processes(process.pid) and time.monotonic() < deadline:
      time.sleep(0.1)
    assert _processes(process.pid) == []
    if rounds_done:
      assert f"Resuming after round {rounds_done}." in log.read_text()
    newest = _newest_checkpoint(tmp_path)
    # A round is on file shortly before it is done.
    assert newest >= rounds_done + _ROUNDS_BEFORE - 1
    assert newest in (_rounds_on_file(tmp_path), _rounds_on_file(tmp_path) - 1)
    rounds_done = newest
  run = tmp_path / "run"
  assert json.loads((run / "summary.json").read_text())["rounds"] == _ROUNDS
  assert list(pd.read_csv(run / "metrics.csv")["round_num"]) == list(
    range(1, _ROUNDS + 1)
  )


def test_a_full_disk_is_one_line(data_dir, tmp_path, monkeypatch):
  """There is room for all but the pictures."""
  run_dir = tmp_path / "run"
  command = (
    *("run_federated", *_FLAGS, "--rounds=3", "--noise_multiplier=1"),
    *(f"--data_dir={data_dir}", f"--run_dir={run_dir}"),
    "--extrapolated_num_users=0",
  )

  def fail(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device", "overview.png")

  with monkeypatch.context() as patched:
    patched.setattr(training_plots, "plot_overview", fail)
    ended = programs.call(*command)
  programs.check_refused(ended, "overview.png cannot be")
  assert "the same command goes on after round 3" in ended.errors
  ended = programs.call(*command)
  assert ended.status == 0, ended.errors
  summary = json.loads((run_dir / "summary.json").read_text())
  assert summary["rounds_by_runs"] == {"1": 3}
