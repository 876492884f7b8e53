"""Tests of how a measured process answers."""

import subprocess
import sys

_SCRIPT = """
import sys
from benchmarks import worker
worker.answer(lambda: lambda round_num: print('noise', round_num))
"""


def test_answers_each_line_and_nothing_else():
  found = subprocess.run(
    [sys.executable, "-c", _SCRIPT],
    input="\n\n",
    capture_output=True,
    text=True,
    check=True,
  )
  assert found.stdout.split() == ["ready", "done", "done"]
  assert found.stderr.splitlines() == ["noise 0", "noise 1"]
