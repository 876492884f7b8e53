"""Tests of the program that serves a page to try a model."""

import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.features import extractions


@pytest.mark.slow
def test_serves_until_it_is_interrupted(tmp_path):
  extractions.export(tmp_path / "model", (2, 2, 1), 1.0)
  command = [
    *(sys.executable, "-m", "binaries.demo", "--port=0", "--threshold=0.5"),
    f"--saved_model={tmp_path / 'model'}",
  ]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
    said = program.stdout.readline()
    _, address, *_ = said.split()
    with urllib.request.urlopen(address, timeout=30) as page:
      assert b"Do two pictures show the same?" in page.read()
    program.send_signal(signal.SIGINT)
    assert program.stdout.read() == "The page is closed.\n"
  assert program.returncode == 0
