"""A Ray cluster as a runtime sees it: its resources, and how to join it.

Without an address, Ray is started on this machine with a directory of its own,
which is removed when the cluster is closed. Ray's processes die with the one
that started them; if that was killed, the next program removes the directory.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import importlib
import logging
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Any
import warnings

import yaml

from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import base

_INSTALL = "`make setup RAY=1` installs it, or `pip install ray==2.52.1`."
# How long the head may be out of reach, which a restart of it takes longer.
_HEAD_SECONDS = 10.0
_HEAD_CHECK_SECONDS = 2.0
_SHUTDOWN_SECONDS = 15.0
_PREFIX = "rayfed_"


class HeadLostError(errors.DataError):
  """The head of the cluster is gone, and with it who knows of its workers."""


def import_ray() -> Any:
  """Returns the module of Ray.

  Raises:
    errors.FieldError: If it is not installed.
  """
  # Nothing is to be told to anyone about who uses Ray.
  os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
  # Errors raise exceptions; the log of Ray's C++ code adds much else.
  os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
  # Ray's processes would look for a head that is gone for a minute.
  os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "20")
  # A task whose memory runs out would be tried again without end.
  os.environ.setdefault("RAY_task_oom_retries", "3")
  # A worker without GPUs is to see none, which it says will change.
  warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
  # Ray would tell the head of exceptions that nobody catches, and if it is the
  # head that is gone, wait a minute before anyone sees them.
  hook = sys.excepthook
  try:
    return importlib.import_module("ray")
  except ImportError as error:
    raise errors.FieldError(
      "runtime", "be another where Ray is not installed", "ray", _INSTALL
    ) from error
  finally:
    sys.excepthook = hook


def count_workers(
  resources: dict[str, float], *, cores: int, gpus: float
) -> int:
  """Counts the workers that a machine has room for.

  Args:
    resources: The machine's resources, by Ray's names.
    cores: Processor cores of a worker.
    gpus: GPUs of a worker, or less than one of them.
  """
  count = int(resources.get("CPU", 0.0) // cores)
  there = resources.get("GPU", 0.0)
  if not gpus:
    return count
  if gpus < 1:
    # A worker uses one GPU: what is left of several does not add up.
    return min(count, int(there) * int(1 / gpus + 1e-9))
  return min(count, int(there // gpus))


class Cluster:
  """A connection to a cluster; one of a process at a time."""

  def __init__(self, config: runtime_lib.RuntimeConfig):
    """Joins the cluster, or starts one of this machine, and checks its size.

    Args:
      config: Address of the cluster, and resources of its workers.

    Raises:
      errors.FieldError: If it cannot be joined, or lacks what is asked for.
    """
    self.ray = import_ray()
    self.cores, self.gpus = config.ray_worker_cores, config.ray_worker_gpus
    self._most_workers = config.ray_workers
    self._directory_lock: int | None = None
    # Whether the head is.
    self.is_lost = False
    self._is_owner = not self.ray.is_initialized()
    if self._is_owner:
      self._join(config)
    address = self.ray.get_runtime_context().gcs_address
    host, _, port = address.rpartition(":")
    self._head = host, int(port)
    self._last_looked = 0.0
    self._nodes: list[dict[str, Any]] = []
    try:
      self.check_head(now=True)
      self._check_size()
    except BaseException:
      self.close()
      raise

  def _join(self, config: runtime_lib.RuntimeConfig) -> None:
    options: dict[str, Any] = {
      "log_to_driver": False,
      "logging_level": logging.CRITICAL,
    }
    if config.ray_runtime_env is not None:
      options["runtime_env"] = _read_runtime_env(config.ray_runtime_env)
    address = config.ray_address
    if address is None:
      address = "local"
      directory, self._directory_lock = _create_directory()
      cores = base.count_cores()
      if config.ray_workers:
        cores = min(cores, config.ray_workers * config.ray_worker_cores)
      options |= {
        "num_cpus": cores,
        "include_dashboard": False,
        "_temp_dir": directory,
        # Workers of Ray's own that nobody asks for.
        "_system_config": {
          "enable_worker_prestart": False,
          "enable_metrics_collection": False,
          # Ray has workers give way to all else.
          "worker_niceness": 0,
        },
      }
    else:
      _check_address(address)
    # Ray sets one of its own, which ends the program with another status.
    handler = signal.getsignal(signal.SIGTERM)
    try:
      with _quiet():
        self.ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
      self.close()
      raise errors.FieldError(
        "ray_address",
        "be of a Ray cluster that can be joined",
        f"{address}: {errors.first_line(error)}",
        "Without it, Ray is started on this machine.",
      ) from error
    finally:
      if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)

  def count_workers(self) -> int:
    """Number of workers: as many as fit, or as were asked for.

    It changes when machines come and go.
    """
    fit = self._count_room()
    return min(fit, self._most_workers or fit)

  def count_tasks(self) -> int:
    """Number of tasks to give to Ray at a time.

    Twice as many as there are workers, so that these need not wait for us,
    unless Ray would run them all at once.
    """
    workers = self.count_workers()
    return workers if workers < self._count_room() else 2 * workers

  def _count_room(self) -> int:
    return sum(
      count_workers(machine, cores=self.cores, gpus=self.gpus)
      for machine in self._machines()
    )

  def _machines(self) -> list[dict[str, float]]:
    return [node["Resources"] for node in self._nodes if node["Alive"]]

  def _check_size(self) -> None:
    machines = self._machines()
    has = f"{len(machines)} " + ("machines" if len(machines) > 1 else "machine")
    for unit, name in (("cores", "CPU"), ("GPUs", "GPU")):
      each = [f"{machine.get(name, 0.0):g}" for machine in machines]
      has += f", {unit} {' + '.join(each)}"
    found = self.count_workers()
    if not found:
      raise errors.FieldError(
        "ray_worker_gpus" if self.gpus else "ray_worker_cores",
        "leave room for a worker on a machine of the cluster",
        f"{self.cores} cores and {self.gpus:g} GPUs a worker in a cluster of"
        f" {has}",
      )
    if self._most_workers and found < self._most_workers:
      raise errors.FieldError(
        "ray_workers",
        f"be at most the {found} that the cluster has room for",
        f"{self._most_workers} in a cluster of {has}",
        "Without it, all are used.",
      )

  def check_head(self, *, now: bool = False) -> None:
    """Looks after the head and the machines from time to time, in milliseconds.

    Ray waits long for a head that is gone, and then ends the program.

    Args:
      now: Whether to look in any case, before Ray is to ask the head.

    Raises:
      HeadLostError: If it has been out of reach for some seconds.
    """
    start = time.monotonic()
    if not now and start - self._last_looked < _HEAD_CHECK_SECONDS:
      return
    self._last_looked = start
    while True:
      try:
        socket.create_connection(self._head, _HEAD_CHECK_SECONDS).close()
        self._nodes = self.ray.nodes()
        return
      except OSError as error:
        if time.monotonic() - start > _HEAD_SECONDS:
          self.is_lost = True
          raise HeadLostError(
            f"the head of the Ray cluster at {self._head[0]}:{self._head[1]}"
            f" must be in reach, found {errors.first_line(error)}. The last"
            " whole round is kept: once a cluster is up, the same command goes"
            " on from there."
          ) from error
        time.sleep(_HEAD_SECONDS / 10)

  def close(self) -> None:
    """Leaves the cluster; ends what was started on this machine."""
    if self._is_owner and self.ray.is_initialized():
      # It waits for ever for a head that is gone.
      leaving = threading.Thread(target=self.ray.shutdown, daemon=True)
      leaving.start()
      leaving.join(0 if self.is_lost else _SHUTDOWN_SECONDS)
    self._is_owner = False
    # Ray may go on writing there for as long as the program runs.
    if self._directory_lock is not None and not self.is_lost:
      os.close(self._directory_lock)
      self._directory_lock = None
      remove_leftovers()


def _create_directory() -> tuple[str, int]:
  """Creates a directory of Ray's, locked while this program lives."""
  remove_leftovers()
  # The name is short: those of sockets are at most 107 bytes long.
  path = tempfile.mkdtemp(prefix=_PREFIX)
  lock = os.open(path, os.O_RDONLY)
  fcntl.flock(lock, fcntl.LOCK_EX)
  return path, lock


def remove_leftovers() -> None:
  """Removes the directories that no program has locked any more."""
  for path in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
    with contextlib.suppress(OSError):
      lock = os.open(path, os.O_RDONLY)
      try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
      finally:
        os.close(lock)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps what is not Python's from standard error, as Ray's log level."""
  sys.stderr.flush()
  kept = os.dup(2)
  try:
    with open(os.devnull, "wb") as nothing:
      os.dup2(nothing.fileno(), 2)
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)


def _check_address(address: str) -> None:
  """Refuses at once what Ray would try for a minute."""
  if address == "auto":
    return
  host, _, port = address.rpartition(":")
  try:
    socket.create_connection((host, int(port)), timeout=10).close()
  except (OSError, OverflowError, ValueError) as error:
    raise errors.FieldError(
      "ray_address",
      "be auto, or HOST:PORT of a cluster's head",
      f"{address}: {errors.first_line(error)}",
    ) from error


def _read_runtime_env(path: str) -> dict[str, Any]:
  """Reads a YAML file with a Ray runtime environment."""
  try:
    return dict(yaml.safe_load(pathlib.Path(path).read_text()))
  except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
    raise errors.FieldError(
      "ray_runtime_env",
      "be a YAML file with a runtime environment of Ray",
      f"{path}: {errors.first_line(error)}",
    ) from error
