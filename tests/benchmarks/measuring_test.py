"""Tests of the measuring, with processes that do a known amount of work."""

import sys

import psutil
import pytest

from benchmarks import measuring
from tff_fedemb import errors

_MEGABYTE = 1_000_000
# Sleeps, computes and remembers as much as its arguments say, in each round.
_SCRIPT = """
import sys, time
sleep, compute, megabytes = map(float, sys.argv[1:])
memory = b'x' * int(megabytes * 1e6)
print('ready', flush=True)
for line in sys.stdin:
  time.sleep(sleep)
  end = time.process_time() + compute
  while time.process_time() < end:
    pass
  print('done', flush=True)
"""


def _command(*, sleep=0.0, compute=0.0, megabytes=0):
  work = (str(sleep), str(compute), str(megabytes))
  return (sys.executable, "-c", _SCRIPT, *work)


def _measure(*commands, rounds=1, warmup_rounds=0):
  return measuring.measure(commands, rounds=rounds, warmup_rounds=warmup_rounds)


def test_measures_wall_time_cpu_time_and_memory():
  idle, busy, large = _measure(
    _command(sleep=0.3),
    _command(compute=0.3),
    _command(megabytes=200),
    rounds=3,
    warmup_rounds=1,
  )
  assert len(idle.rounds) == 3
  assert idle.rounds.wall_seconds.median() >= 0.3
  assert idle.rounds.cpu_seconds.median() < 0.1
  assert busy.rounds.wall_seconds.median() >= 0.29
  assert busy.rounds.cpu_seconds.median() >= 0.27
  assert large.peak_memory_bytes > 200 * _MEGABYTE
  assert idle.peak_memory_bytes < 100 * _MEGABYTE


def test_counts_the_processes_behind_a_process():
  # The outer process does nothing but pass the lines on.
  inner = _command(compute=0.2, megabytes=150)
  outer = "import subprocess, sys; subprocess.call(sys.argv[1:])"
  (found,) = _measure((sys.executable, "-c", outer, *inner))
  assert found.rounds.cpu_seconds.median() >= 0.17
  assert found.peak_memory_bytes > 150 * _MEGABYTE


def test_measures_the_memory_that_is_resident_after_each_round():
  # 100 MB in the second round, which are given back in the third one.
  script = """
import sys
print('ready', flush=True)
for megabytes in (0, 100, 0):
  input()
  memory = b'x' * (megabytes * 1_000_000)
  print('done', flush=True)
sys.stdin.read()
"""
  (found,) = _measure((sys.executable, "-c", script), rounds=3)
  before, during, after = found.rounds.resident_memory_bytes
  assert 95 * _MEGABYTE < during - before < 105 * _MEGABYTE
  assert abs(after - before) < 5 * _MEGABYTE
  assert found.peak_memory_bytes >= during


def test_anonymous_memory_does_not_count_a_file(tmp_path):
  # A hundred megabytes of its own, and as many of a file.
  path = tmp_path / "file"
  path.write_bytes(b"x" * (100 * _MEGABYTE))
  script = """
import mmap, sys, time
own = b'x' * 100_000_000
with open(sys.argv[1], 'rb') as file:
  mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
total = sum(mapped[:: mmap.PAGESIZE])
print('ready', flush=True)
for line in sys.stdin:
  time.sleep(0.3)
  print('done', flush=True)
"""
  (found,) = _measure((sys.executable, "-c", script, str(path)))
  anonymous = found.peak_anonymous_memory_bytes
  assert 100 * _MEGABYTE < anonymous < 150 * _MEGABYTE
  assert found.peak_memory_bytes > 200 * _MEGABYTE


@pytest.mark.parametrize(
  "script",
  [
    "raise ValueError('no such case')",
    "print('ready', flush=True); input(); raise ValueError('no such case')",
  ],
)
def test_failing_process_is_an_error_that_says_why(script):
  command = (sys.executable, "-c", script)
  with pytest.raises(errors.DataError, match="ValueError: no such case"):
    _measure(command)


def test_leaves_no_process():
  failing = (sys.executable, "-c", "pass")
  with pytest.raises(errors.DataError):
    _measure(_command(), failing)
  _measure(_command())
  assert not [
    child
    for child in psutil.Process().children(recursive=True)
    if _SCRIPT in child.cmdline()
  ]
