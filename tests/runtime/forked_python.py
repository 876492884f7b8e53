"""A Python that has imported what takes long before it starts.

For tests whose processes are killed again and again: each would import for five
seconds of a processor. One process imports, and forks for each that is asked
for; what is asked for runs as `__main__` and is killed as any other. Run as a
program, with a directory and modules to import, this is that process.
"""

from collections.abc import Iterator, Sequence
import contextlib
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile

_ROOT = pathlib.Path(__file__).parents[2]
_LENGTH_BYTES = 8
# Other scripts of Ray's want to be children of who starts them.
_WORKER = "/default_worker.py"
# Ray finds where to write a process's name by the first of the variables of its
# environment, so that one comes first which nobody changes.
_FIRST_VARIABLE = "FORKED_PYTHON"
# Takes the place of Python: lives as long as what was forked for it, and what
# was forked as long as it. It imports little, and runs other scripts itself.
_EXECUTABLE = """\
#!{python} -IS
import json, os, socket, sys
arguments = [argument for argument in sys.argv[1:] if argument != "-u"]
if arguments[0] != "-m" and not arguments[0].endswith({worker!r}):
  os.execv({python!r}, [{python!r}, *sys.argv[1:]])
request = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
connection = socket.socket(socket.AF_UNIX)
connection.connect({path!r})
length = len(request).to_bytes({length_bytes}, "big")
socket.send_fds(connection, [length], [0, 1, 2])
connection.sendall(request)
status = connection.recv(1)
sys.exit(status[0] if status else 1)
"""


@contextlib.contextmanager
def start(*modules: str) -> Iterator[str]:
  """Starts it, with some modules; yields what to run instead of Python."""
  with tempfile.TemporaryDirectory(prefix="fork_") as directory:
    executable = pathlib.Path(directory, "python")
    executable.write_text(
      _EXECUTABLE.format(
        python=sys.executable,
        worker=_WORKER,
        path=f"{directory}/socket",
        length_bytes=_LENGTH_BYTES,
      )
    )
    executable.chmod(0o700)
    with subprocess.Popen(
      [sys.executable, "-m", __spec__.name, directory, *modules],
      cwd=_ROOT,
      env={_FIRST_VARIABLE: "1"} | os.environ,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    ) as process:
      assert process.stdout.readline() == "ready\n"
      try:
        yield os.fspath(executable)
      finally:
        process.stdin.close()


def _receive(connection: socket.socket) -> tuple[list, list[int]]:
  """Returns what is asked for, and standard input, output and errors."""
  length, files, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 3)
  remaining = int.from_bytes(length, "big")
  parts = []
  while remaining:
    parts.append(connection.recv(remaining))
    remaining -= len(parts[-1])
  return json.loads(b"".join(parts)), files


def _become(request: Sequence, files: Sequence[int]) -> list[str]:
  """Has a child be what was asked for; returns its arguments."""
  arguments, environment, directory = request
  os.setsid()
  for number, file in enumerate(files):
    os.dup2(file, number)
    os.close(file)
  for name in os.environ.keys() - environment - {_FIRST_VARIABLE}:
    del os.environ[name]
  for name, value in environment.items():
    if os.environ.get(name) != value:
      os.environ[name] = value
  tempfile.tempdir = None
  os.chdir(directory)
  return arguments


def _serve(listener: socket.socket) -> list[str] | None:
  """Forks; returns arguments to a child, and None when all are to end."""
  # Process, and whom to tell of its end, by what tells us of it.
  children: dict[int, tuple[int, socket.socket]] = {}
  while True:
    owners = {opened.fileno(): pid for pid, opened in children.values()}
    # One at a time: it may be what another was about.
    found, *_ = select.select([0, listener, *children, *owners], [], [])[0]
    if found == 0:
      for pid in owners.values():
        os.kill(pid, signal.SIGKILL)
      return None
    if found is listener:
      connection, _ = listener.accept()
      request, files = _receive(connection)
      if not (pid := os.fork()):
        others = (other for _, other in children.values())
        for opened in (listener, connection, *others):
          opened.close()
        for number in children:
          os.close(number)
        return _become(request, files)
      for number in files:
        os.close(number)
      children[os.pidfd_open(pid)] = pid, connection
    elif found in children:
      pid, connection = children.pop(found)
      os.close(found)
      status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
      with connection, contextlib.suppress(BrokenPipeError):
        connection.send(bytes([status % 256]))
    else:
      # Who asked for it is gone.
      os.kill(owners[found], signal.SIGKILL)


def _run(arguments: list[str], executable: str) -> None:
  """Does what Python does with arguments."""
  sys.executable = executable
  if arguments[0] == "-m":
    sys.argv = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    return
  sys.argv = arguments
  runpy.run_path(arguments[0], run_name="__main__")


def main(directory: str, *modules: str) -> None:
  """Imports, then forks until standard input ends."""
  for module in modules:
    importlib.import_module(module)
  with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(f"{directory}/socket")
    listener.listen(64)
    print("ready", flush=True)
    arguments = _serve(listener)
  if arguments is None:
    # What was imported may wait for threads of its own, or the children.
    os._exit(0)
  _run(arguments, f"{directory}/python")


if __name__ == "__main__":
  main(*sys.argv[1:])
