"""Tests of a tuning that is ended while a trial trains, and goes on."""

import json
import os
import shlex
import signal
import time

import pytest

from tasks.synthetic import emnist
from tests.binaries import programs

pytestmark = pytest.mark.slow

_TIMEOUT_SECONDS = 240.0
_ROUNDS = 20
_TRIAL = (
  "--task=emnist",
  "--noise_multiplier=5",
  "--clients_per_round=2",
  f"--rounds={_ROUNDS}",
  "--batch_size=64",
  "--evaluate_every=0",
  "--checkpoint_every=2",
  "--delta=0.01",
  "--extrapolated_num_users=0",
)


def _wait_for_rounds(process, run_dir, number, log):
  """Waits until a trial has so many rounds in its metrics."""
  path, deadline = run_dir / "metrics.csv", time.monotonic() + _TIMEOUT_SECONDS
  while not path.exists() or len(path.read_text().splitlines()) <= number:
    assert process.poll() is None and time.monotonic() < deadline, (
      log.read_text()
    )
    time.sleep(0.02)


def test_ended_tuning_goes_on_with_its_trial(tmp_path):
  emnist.write_emnist(tmp_path, num_users=6, seed=2, examples_per_user=30)
  space = tmp_path / "space.json"
  space.write_text('{"server_learning_rate": {"values": [0.5]}}')
  directory, log = tmp_path / "tuning", tmp_path / "log"
  trials = directory / "trials"
  command = (
    *("binaries.tune", f"--output_dir={directory}", f"--search_space={space}"),
    f"--trial_flags={shlex.join((*_TRIAL, f'--data_dir={tmp_path}'))}",
    # A geometric distribution of mean 1 has a single outcome.
    "--mean_trials=1",
  )
  drawn, rounds = None, 0
  for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
    process = programs.launch(
      *command,
      log=log,
      start_new_session=True,
      # Background jobs of a shell ignore it, and so do their children.
      preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
      rounds += 3
      _wait_for_rounds(process, trials / "000", rounds, log)
      os.killpg(process.pid, number)
      assert process.wait(timeout=_TIMEOUT_SECONDS) == status, log.read_text()
    finally:
      process.kill()
    assert not (directory / "release/tuning.json").exists()
    # A trial that was ended has no outcome.
    assert not (trials / "000.json").exists()
    found = (trials / "num_trials.json").read_bytes()
    assert drawn in (None, found)
    drawn = found
  said = (trials / "000.log").read_text()
  assert said.count("the same command goes on from there.") == 1
  ended = programs.start(*command)
  assert ended.status == 0, ended.errors
  assert ended.output.startswith("| best trial | |")
  said = (trials / "000.log").read_text()
  assert said.count("Resuming after round") == 2
  assert (trials / "num_trials.json").read_bytes() == drawn
  summary = json.loads((trials / "000/summary.json").read_text())
  assert summary["rounds"] == _ROUNDS
  # Rounds that the kill had lost ran again, as another release.
  assert sum(map(int, summary["rounds_by_runs"].values())) == _ROUNDS
  report = json.loads((directory / "release/tuning.json").read_text())
  assert report["best"]["hyperparameters"] == {"server_learning_rate": 0.5}
