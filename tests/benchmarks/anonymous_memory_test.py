"""Tests of the measuring of memory that is no file's."""

import subprocess
import sys
import time

from benchmarks import anonymous_memory

_MEGABYTE = 1_000_000
# A hundred megabytes of its own, and as many of a file.
_SCRIPT = """
import mmap, sys, time
own = b'x' * 100_000_000
with open(sys.argv[1], 'rb') as file:
  mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
total = sum(mapped[:: mmap.PAGESIZE])
print('ready', flush=True)
sys.stdin.read()
"""


def test_does_not_count_a_file(tmp_path):
  path = tmp_path / "file"
  path.write_bytes(b"x" * (100 * _MEGABYTE))
  command = (sys.executable, "-c", _SCRIPT, str(path))
  with (
    anonymous_memory.Sampler() as sampler,
    subprocess.Popen(
      command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process,
  ):
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
      if sampler.peak(command) > 100 * _MEGABYTE:
        break
      time.sleep(0.01)
    process.stdin.close()
  assert 100 * _MEGABYTE < sampler.peak(command) < 150 * _MEGABYTE
  assert sampler.peak(["none"]) == 0
