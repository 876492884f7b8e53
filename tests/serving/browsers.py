"""Chromium without a window, for tests of pages."""

import shutil
import subprocess

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_BROWSER = next(filter(None, map(shutil.which, _NAMES)), None)

needed = pytest.mark.skipif(
  _BROWSER is None,
  reason=f"needs one of {', '.join(_NAMES)} (apt install chromium)",
)


def open_page(address, tmp_path, *options):
  """The page once its scripts have run, as HTML."""
  return subprocess.run(
    [
      _BROWSER,
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--dump-dom",
      f"--user-data-dir={tmp_path}/profile",
      *options,
      address,
    ],
    check=True,
    capture_output=True,
    text=True,
    timeout=120,
  ).stdout
