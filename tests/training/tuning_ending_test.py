"""Tests of a tuning that is ended while a trial runs."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

# Runs one trial of a script, as `tune` does.
_PROGRAM = """
import sys
from binaries import command_line
from tff_fedemb.training import tuning as tuning_run
import numpy as np

def main():
  tuning_run.TuningRun(
      tuning_run.TuningConfig(
          run_dir=OUTPUT_DIR, search_space="unread", mean_trials=1.0),
      {"x": ("values", (1,))},
      (), command=(sys.executable, SCRIPT),
      generator=np.random.default_rng(0)).run()

command_line.run(main)
"""

# Tells that it runs, and that it was asked to end.
_SLEEPER = """
import pathlib, signal, sys, time
path = pathlib.Path(__file__).with_suffix("")
def end(*_):
  path.with_suffix(".ended").touch()
  sys.exit(143)
signal.signal(signal.SIGTERM, end)
path.with_suffix(".started").touch()
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_tuning_lets_its_trial_save(tmp_path, number):
  script = tmp_path / "sleeper.py"
  script.write_text(_SLEEPER)
  program = tmp_path / "program.py"
  program.write_text(
    _PROGRAM.replace(
      "OUTPUT_DIR", repr(os.fspath(tmp_path / "tuning"))
    ).replace("SCRIPT", repr(os.fspath(script)))
  )
  root = pathlib.Path(__file__).resolve().parents[2]
  with (tmp_path / "log").open("w") as log:
    process = subprocess.Popen(
      [sys.executable, os.fspath(program)],
      env={**os.environ, "PYTHONPATH": os.fspath(root)},
      stdout=log,
      stderr=log,
      # Background jobs of a shell ignore it, and so do their children.
      preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
  deadline = time.monotonic() + 60
  while not script.with_suffix(".started").exists():
    assert time.monotonic() < deadline, (tmp_path / "log").read_text()
    assert process.poll() is None, (tmp_path / "log").read_text()
    time.sleep(0.02)
  process.send_signal(number)
  assert process.wait(timeout=60) == (130 if number == signal.SIGINT else 143)
  assert script.with_suffix(".ended").exists()
  assert not (tmp_path / "tuning/release/tuning.json").exists()
