"""Tests of what a process sets before TensorFlow computes anything."""

import os
import subprocess
import sys

import pytest

# Two threads allocate at the same time; glibc tells what arenas there are.
_PROGRAM = """
import ctypes
import threading
from tff_fedemb.runtime import process_settings

process_settings.prepare()

def allocate():
  kept = [bytes(10_000) for _ in range(100)]
  both.wait()

both = threading.Barrier(2)
threads = [threading.Thread(target=allocate) for _ in range(2)]
for thread in threads:
  thread.start()
for thread in threads:
  thread.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(
  "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="no glibc"
)
@pytest.mark.parametrize(("asked", "expected"), [(None, 1), ("8", 3)])
def test_threads_share_an_arena_unless_told_otherwise(asked, expected):
  environment = {
    name: value
    for name, value in os.environ.items()
    if name != "MALLOC_ARENA_MAX"
  }
  if asked is not None:
    environment["MALLOC_ARENA_MAX"] = asked
  ended = subprocess.run(
    [sys.executable, "-c", _PROGRAM],
    env=environment,
    capture_output=True,
    text=True,
    check=True,
  )
  assert ended.stderr.count("Arena ") == expected, ended.stderr
