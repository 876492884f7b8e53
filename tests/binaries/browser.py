"""A headless Chromium, told what to do by its DevTools protocol over a pipe.

https://chromedevtools.github.io/devtools-protocol/
"""

import contextlib
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT_SECONDS = 120
_COMPLAINTS = {
  *("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"),
}


def find() -> str | None:
  """The program, `None` if there is none."""
  return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
  """A page that is open: asks the browser, and keeps what it reports."""

  def __init__(self, read_end: int, write_end: int):
    self._read_end, self._write_end = read_end, write_end
    self._buffer = b""
    self._numbers = itertools.count(1)
    self._session = None
    self.events = []
    target = self.call("Target.createTarget", url="about:blank")["targetId"]
    self._session = self.call(
      "Target.attachToTarget", targetId=target, flatten=True
    )["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
      self.call(f"{domain}.enable")

  def _receive(self) -> dict:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while b"\0" not in self._buffer:
      left = max(deadline - time.monotonic(), 0)
      if not select.select([self._read_end], [], [], left)[0]:
        raise TimeoutError("the browser says nothing")
      read = os.read(self._read_end, 2**20)
      if not read:
        raise EOFError("the browser has ended")
      self._buffer += read
    message, _, self._buffer = self._buffer.partition(b"\0")
    return json.loads(message)

  def call(self, method: str, **parameters) -> dict:
    """Calls a method of the protocol; returns its result."""
    number = next(self._numbers)
    message = {"id": number, "method": method, "params": parameters}
    if self._session is not None:
      message["sessionId"] = self._session
    data = json.dumps(message).encode() + b"\0"
    while data:
      data = data[os.write(self._write_end, data) :]
    while (answer := self._receive()).get("id") != number:
      self.events.append(answer)
    assert "error" not in answer, answer["error"]
    return answer["result"]

  def _count_loads(self) -> int:
    return sum(e["method"] == "Page.loadEventFired" for e in self.events)

  def open(self, path: pathlib.Path, width: int, height: int = 900) -> None:
    """Opens a file in a window of a size, and waits until it is loaded."""
    self.call(
      "Emulation.setDeviceMetricsOverride",
      width=width,
      height=height,
      deviceScaleFactor=1,
      mobile=False,
    )
    before = self._count_loads()
    self.call("Page.navigate", url=path.resolve().as_uri())
    while self._count_loads() == before:
      self.events.append(self._receive())

  def evaluate(self, expression: str):
    """Evaluates JavaScript; returns its JSON value."""
    result = self.call(
      "Runtime.evaluate",
      expression=expression,
      returnByValue=True,
      awaitPromise=True,
    )
    assert "exceptionDetails" not in result, result
    return result["result"].get("value")

  @property
  def requests(self) -> list[str]:
    """Addresses that were asked for, those of data in the page left out."""
    addresses = [
      event["params"]["request"]["url"]
      for event in self.events
      if event["method"] == "Network.requestWillBeSent"
    ]
    return [a for a in addresses if not a.startswith("data:")]

  @property
  def complaints(self) -> list[dict]:
    """Messages of the console, and exceptions."""
    return [
      event["params"] for event in self.events if event["method"] in _COMPLAINTS
    ]


@contextlib.contextmanager
def start():
  """Starts the browser; yields an empty page."""
  to_browser, from_us = os.pipe()
  from_browser, to_us = os.pipe()
  with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
    process = subprocess.Popen(
      [
        # The browser reads its descriptor 3 and writes its descriptor 4.
        *("bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{to_us}', "bash"),
        *(find(), "--headless"),
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
      ],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      pass_fds=(to_browser, to_us),
    )
    os.close(to_browser)
    os.close(to_us)
    try:
      yield Page(from_browser, from_us)
    finally:
      process.kill()
      process.wait()
      os.close(from_us)
      os.close(from_browser)
