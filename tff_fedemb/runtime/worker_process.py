"""Ends TFF's `worker_binary` on every way out of a program.

Importing TFF 0.87 creates a default execution context, which starts a worker
process with the first computation. TFF ends it when the context is collected,
which happens so late during the end of the program that the modules it needs
are gone: the worker stays behind, holding the program's standard output open,
and "Exception ignored" is printed even if there never was a worker.
"""

import atexit
from collections.abc import Callable
import functools
import gc
import os
import signal
import sys
import threading
import time
from typing import Any

import psutil

_WORKER_NAME = "worker_binary"
_GRACE_SECONDS = 5.0
_STARTING_SECONDS = 0.1


def end_worker() -> None:
  """Ends the workers of this process now.

  TFF's default execution context is gone afterwards: computations that need it
  raise a `RuntimeError`.

  It takes 0.1 s, and up to 10 s more if a worker does not end when it is asked
  to. Without TFF it does nothing.
  """
  # A program that never imported TFF does not pay for the import here.
  tff: Any = sys.modules.get("tensorflow_federated")
  if tff is None:
    return
  _drop_default_context(tff)
  # If Ctrl-C has ended a worker, a thread of TFF's starts another one. The hook
  # prevents that from here on, and the pause lets a worker appear that has
  # begun to start.
  sys.addaudithook(_refuse_worker)
  time.sleep(_STARTING_SECONDS)
  _end_worker_children()


def end_worker_on_exit() -> None:
  """Ends the workers when this process ends, however it ends.

  Call it once, in the main thread of a program; calling it again does no harm.
  It covers the normal end, an exception, Ctrl-C and, unless the program handles
  it itself, SIGTERM, which would otherwise end Python at once; with this it
  raises `SystemExit` in the main thread.
  """
  _register(os.getpid())
  let_workers_be_interrupted()
  if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
  ):
    signal.signal(signal.SIGTERM, _exit_on_signal)


def let_workers_be_interrupted() -> None:
  """Makes sure that TFF can end the workers that start from now on.

  TFF sends SIGINT to a worker and waits. A shell makes its background jobs
  ignore SIGINT, their children inherit that, and the wait would never end. A
  handler that does nothing ignores the signal as well, but is not inherited.
  """
  if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
  ):
    signal.signal(signal.SIGINT, lambda *_: None)


def _exit_on_signal(signal_number: int, frame: Any) -> None:
  """Ends the program as if it had called `sys.exit`; a signal handler.

  Args:
    signal_number: The signal; further ones of it are ignored.
    frame: Unused.

  Raises:
    SystemExit: Always, with status 128 plus the number, as shells have it.
  """
  del frame  # Unused.
  # One is enough: a second one must not interrupt the clean-up.
  signal.signal(signal_number, signal.SIG_IGN)
  raise SystemExit(128 + signal_number)


@functools.cache
def _register(process_id: int) -> None:
  """Ends the workers of a process at its exit; done once for each process."""

  def end_own_worker():
    # A forked child inherits the registration, but the workers are its
    # parent's.
    if os.getpid() == process_id:
      end_worker()

  atexit.register(end_own_worker)
  sys.unraisablehook = functools.partial(
    _ignore_gone_worker, sys.unraisablehook
  )


def _refuse_worker(event: str, arguments: tuple[Any, ...]) -> None:
  """Raises where Python is about to start a worker; an audit hook.

  Args:
    event: Name of the audit event; only `subprocess.Popen` matters.
    arguments: Arguments of the event; the first is the executable.

  Raises:
    RuntimeError: If the executable is TFF's worker.
  """
  if (
    event == "subprocess.Popen"
    and os.path.basename(arguments[0]) == _WORKER_NAME
  ):
    raise RuntimeError("the program must go on for TFF to start a worker.")


def _drop_default_context(tff: Any) -> None:
  """Lets TFF end the worker itself while Python is still whole."""

  class EndedContext(tff.framework.SyncContext):
    """Stands in for the execution context that is gone."""

    def invoke(self, comp: Any, arg: Any):
      raise RuntimeError(
        "computations must run before the worker is ended, found a call"
        " after it."
      )

  tff.framework.set_default_context(EndedContext())
  gc.collect()


def _ignore_gone_worker(hook: Callable[[Any], object], unraisable: Any) -> None:
  """Hides the error of ending a worker that has ended; a hook of Python."""
  # Ctrl-C may have ended the worker that TFF sends a signal to.
  if not isinstance(unraisable.exc_value, ProcessLookupError):
    hook(unraisable)


def _end_worker_children() -> None:
  """Ends the workers that TFF left running, by their process ids.

  Workers that do not end within five seconds of SIGTERM are killed.
  """
  workers = []
  for child in psutil.Process().children():
    try:
      if child.name() == _WORKER_NAME:
        child.terminate()
        workers.append(child)
    except psutil.NoSuchProcess:
      pass
  _, alive = psutil.wait_procs(workers, timeout=_GRACE_SECONDS)
  for worker in alive:
    worker.kill()
  psutil.wait_procs(alive, timeout=_GRACE_SECONDS)
