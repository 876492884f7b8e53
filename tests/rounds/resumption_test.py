"""A run with correlated noise that is killed many times stays one run.

The program that is killed is `resumption_run`.
"""

import functools
import multiprocessing
import os
import pathlib
import shutil
import tempfile
import time

import numpy as np
import pandas as pd
import psutil
import pytest

from tests.binaries import programs
from tests.rounds import resumption_run as run
from tests.runtime import ray_trouble
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import metrics

# Each comes in a tenth of its own of the 50 ms after a round; two after as many
# rounds, of which every other one has a checkpoint.
_NUM_KILLS = 10
# On a cluster, workers are killed before each kill of the program.
_WORKER_KILLS = int(os.environ.get("TFF_FEDEMB_WORKER_KILLS", "3"))
_PROGRAM_KILLS = int(os.environ.get("TFF_FEDEMB_PROGRAM_KILLS", "1"))

# A child of a process that has imported TensorFlow starts eight seconds sooner
# than a program that imports it.
_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["tests.rounds.resumption_run"])


def _fork(directory, aggregator):
  """Starts the run in a process that can be killed like the program."""
  process = _FORKSERVER.Process(
    target=run.main_with_log, args=(directory, aggregator)
  )
  process.start()
  return process


def _start(directory, aggregator, runtime):
  return programs.launch(
    "tests.rounds.resumption_run",
    os.fspath(directory),
    aggregator,
    runtime,
    log=f"{directory}.log",
  )


def _rounds_begun(directory):
  return len(list((directory / "weights").glob("*.npy")))


def _kill(directory, aggregator, rounds, moment):
  """Starts, waits for a number of rounds and a moment more, kills.

  Returns:
    Whether the process was still there to be killed.
  """
  wanted = _rounds_begun(directory) + rounds
  process = _fork(directory, aggregator)
  while process.is_alive() and _rounds_begun(directory) < wanted:
    time.sleep(0.001)
  time.sleep(moment)
  was_there = process.is_alive()
  process.kill()
  process.join()
  return was_there


def _weights(directory):
  """Returns everything that was ever released, by round."""
  weights = {round_num: [] for round_num in range(1, run.ROUNDS + 1)}
  for path in (directory / "weights").glob("*.npy"):
    try:
      released = np.load(path)
    except (EOFError, ValueError):
      continue  # Cut off by the kill.
    weights[int(path.name.split("_")[0])].append(released)
  return weights


def _check_as_one_run(directory, whole):
  released = _weights(directory)
  expected = _weights(whole)
  for round_num, models in released.items():
    assert models, f"round {round_num} was left out"
    for model in models:
      # Models that a kill threw away count too: different sums never have the
      # same noise, and the same sums never have different noise.
      np.testing.assert_allclose(model, expected[round_num][0], atol=1e-5)
  rounds = pd.read_csv(directory / "metrics.csv")["round_num"]
  assert list(rounds) == list(range(1, run.ROUNDS + 1))
  for name in ("report.json", "trace"):
    assert (directory / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.fixture(name="run_whole", scope="module")
def _run_whole(tmp_path_factory):
  """Runs without an interruption, once with each aggregator."""

  @functools.cache
  def run_whole(aggregator):
    directory = tmp_path_factory.mktemp("uninterrupted") / aggregator
    process = _fork(directory, aggregator)
    process.join()
    assert process.exitcode == 0
    return directory

  return run_whole


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", ["blt", "tree"])
def test_kills_leave_no_mark(aggregator, tmp_path, run_whole):
  generator = np.random.default_rng(5)
  whole, killed = run_whole(aggregator), tmp_path / "killed"
  rounds = generator.permutation(_NUM_KILLS) // 2
  parts = generator.permutation(_NUM_KILLS) + generator.uniform(size=_NUM_KILLS)
  moments = 0.05 / _NUM_KILLS * parts
  for kill in zip(rounds, moments, strict=True):
    assert _kill(killed, aggregator, *kill), "it ended before its time"
    if (chain := chain_lib.Chain(killed)).rounds:
      curve = chain_lib.Chain(whole).ledger.epsilon_curve(
        [chain.rounds], accountant="gaussian"
      )
      assert [chain.ledger.tightest_epsilon()] == curve
  last = _fork(killed, aggregator)
  last.join()
  assert last.exitcode == 0
  log = pathlib.Path(f"{killed}.log").read_text()
  assert "Resuming after round" in log
  assert "cannot be read" not in log
  _check_as_one_run(killed, whole)


def _last_model(directory):
  """Returns the model of the last round that was released."""
  names = (directory / "weights").glob("*.npy")
  return np.load(max(names, key=lambda path: int(path.name.split("_")[0])))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("aggregator", "runtime"),
  [("blt", "in_process"), ("tree", "in_process"), ("blt", "tff")],
)
def test_copies_go_on_with_noise_of_their_own(
  tmp_path, monkeypatch, aggregator, runtime
):
  monkeypatch.setattr(run, "_NOISE_SEED", None)
  monkeypatch.setattr(run, "ROUNDS", 6)
  # The deviation of 50 numbers would fall below the bound in one run of 60.
  monkeypatch.setattr(run, "DIM", 5_000)
  copied, other = tmp_path / "copied", tmp_path / "other"

  def end_after_round_3(log, values, rounds_done):
    del log, values  # Unused.
    if rounds_done == 3:
      raise SystemExit

  with monkeypatch.context() as patched, pytest.raises(SystemExit):
    patched.setattr(metrics.MetricsLog, "release", end_after_round_3)
    run.main(copied, aggregator, runtime)
  before = _last_model(copied)
  shutil.copytree(copied, other)
  run.main(copied, aggregator, runtime)
  # The updates of the other one differ by a thousandth.
  monkeypatch.setattr(run, "UPDATE_NORM", run.UPDATE_NORM * 1.001)
  run.main(other, aggregator, runtime)
  models = [_last_model(directory) for directory in (copied, other)]
  # Standard deviation of the noise on the mean of the clients.
  noise = run.NOISE_MULTIPLIER * run.CLIP_NORM / run.CLIENTS_PER_ROUND
  assert np.std(models[0] - models[1]) > noise
  assert all(np.std(model - before) > noise for model in models)


def _kill_workers(program, directory, generator):
  """Kills workers of a program on Ray, each after some more rounds."""
  for _ in range(_WORKER_KILLS):
    wanted = _rounds_begun(directory) + int(generator.integers(1, 3))
    while _rounds_begun(directory) < wanted:
      assert program.poll() is None, "it ended before its time"
      time.sleep(0.02)
    time.sleep(generator.uniform(0.0, 0.05))
    while not (workers := ray_trouble.find_workers()):
      assert program.poll() is None, "it ended before its time"
      time.sleep(0.1)
    workers[generator.integers(len(workers))].kill()


@pytest.fixture
def whole_blt(run_whole):
  return run_whole("blt")


@pytest.fixture
def short_directory(monkeypatch, whole_blt):
  """Sets a directory for Ray, whose sockets need short paths."""
  # The server that forks has a socket in the directory of before.
  del whole_blt  # Unused.
  with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as directory:
    monkeypatch.setenv("TMPDIR", directory)
    yield


@pytest.mark.slow
def test_kills_of_workers_and_program_leave_no_mark_on_a_cluster(
  tmp_path, whole_blt, short_directory
):
  pytest.importorskip("ray")
  del short_directory  # Unused.
  aggregator = "blt"
  generator = np.random.default_rng(7)
  killed = tmp_path / "killed"
  before = psutil.Process().children(recursive=True)
  for _ in range(_PROGRAM_KILLS):
    program = _start(killed, aggregator, "ray")
    _kill_workers(program, killed, generator)
    program.kill()
    program.wait()
  assert _start(killed, aggregator, "ray").wait() == 0
  log = pathlib.Path(f"{killed}.log").read_text()
  assert log.count("Resuming after round") == _PROGRAM_KILLS
  _check_as_one_run(killed, whole_blt)
  ray_trouble.wait_until(
    lambda: psutil.Process().children(recursive=True) == before
  )
