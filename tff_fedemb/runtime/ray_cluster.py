"""A Ray cluster: how it is joined, and chunks of work that run on it.

A chunk is a task of Ray's, which Ray places, and runs again elsewhere if a
worker or its machine dies, or a result is lost with a machine. A chunk may
therefore run more than once; its results are handed on once, in the order of
the chunks. If the head of the cluster is gone for long, Ray ends the program.

Without an address, Ray is started on this machine, in a directory of its own.
Ray's processes die with the one that started them.
"""

import collections
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
import contextlib
import importlib
import itertools
import logging
import os
import signal
import socket
import tempfile
import threading
from typing import Any, TypeVar
import warnings

from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import base

_INSTALL = "`make setup RAY=1` installs it, or `pip install ray`."
# Number of times that a chunk is run whose workers die; `import_ray` sets the
# same number for workers that run out of memory.
_ATTEMPTS = 4
# Chunks for each worker that run, or have ended, while an earlier one runs.
_CHUNKS_AHEAD = 4

_Chunk = TypeVar("_Chunk")
_Result = TypeVar("_Result")


def import_ray() -> Any:
  """Returns the module of Ray.

  Three environment variables are set first, unless you have set them: Ray
  reports no use, gives up on a lost head after 20 s, and tries a task that ran
  out of memory again three times.

  Raises:
    errors.FieldError: If it is not installed.
  """
  # Ray must not report its use to its makers.
  os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
  # By default Ray looks for a lost head for a minute.
  os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "20")
  # By default a task that runs out of memory is tried again without end.
  os.environ.setdefault("RAY_task_oom_retries", "3")
  # A worker without GPUs is to see none; Ray warns that this will change.
  warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
  try:
    return importlib.import_module("ray")
  except ImportError as error:
    raise errors.FieldError(
      "runtime", "be another where Ray is not installed", "ray", _INSTALL
    ) from error


class Cluster:
  """A connection to a cluster; one of a process at a time.

  It uses a Ray that this process has already initialized, and leaves that one
  running when it is closed.

  Attributes:
    ray: The module of Ray.
  """

  def __init__(self, config: runtime_lib.RuntimeConfig):
    """Joins the cluster, or starts one of this machine, and checks its size.

    Args:
      config: Address of the cluster, and resources of its workers.

    Raises:
      errors.FieldError: If it cannot be joined, or lacks what is asked for.
    """
    self.ray = import_ray()
    self._cores, self._gpus = config.ray_worker_cores, config.ray_worker_gpus
    self._most_workers = config.ray_workers
    self._directory: tempfile.TemporaryDirectory | None = None
    self._is_owner = not self.ray.is_initialized()
    try:
      if self._is_owner:
        self._join(config)
      if (room := self._count_room()) < (self._most_workers or 1):
        raise errors.FieldError(
          "ray_workers",
          f"be at most the {room} that the cluster has room for, with"
          f" {self._cores} cores and {self._gpus:g} GPUs each",
          self._most_workers or 1,
        )
    except BaseException:
      self.close()
      raise

  def _join(self, config: runtime_lib.RuntimeConfig) -> None:
    """Connects to the cluster at the address, or starts one here.

    Args:
      config: Its `ray_address` is None to start Ray on this machine.

    Raises:
      errors.FieldError: If no head answers within 10 s, or Ray refuses.
    """
    options: dict[str, Any] = {
      "log_to_driver": False,
      "logging_level": logging.CRITICAL,
    }
    address = config.ray_address
    if address is None:
      # The name is short because paths of sockets have at most 107 bytes.
      self._directory = tempfile.TemporaryDirectory(
        prefix="ray_", ignore_cleanup_errors=True
      )
      cores = base.count_cores()
      if config.ray_workers:
        cores = min(cores, config.ray_workers * config.ray_worker_cores)
      options |= {
        "num_cpus": cores,
        "include_dashboard": False,
        "_temp_dir": self._directory.name,
        # Without these, Ray starts workers that are not needed.
        "_system_config": {
          "enable_worker_prestart": False,
          "enable_metrics_collection": False,
          # By default workers give way to all other processes.
          "worker_niceness": 0,
        },
      }
    # Ray sets a handler of its own, which ends the program with another status.
    handler = signal.getsignal(signal.SIGTERM)
    try:
      with errors.as_field_error(
        "ray_address",
        "be auto, or HOST:PORT of the head of a Ray cluster that can be joined",
        address or "a Ray of this machine",
      ):
        if address is not None and address != "auto":
          # Ray would end the program if no head answers.
          host, _, port = address.rpartition(":")
          socket.create_connection((host, int(port)), timeout=10).close()
        self.ray.init(address=address or "local", **options)
    finally:
      if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)

  def _count_room(self) -> int:
    """Number of workers that there is room for, as machines come and go.

    Returns:
      Sum over live machines of the workers that fit on each, by cores and GPUs;
      what other programs use is not deducted.
    """
    count = 0
    for node in self.ray.nodes():
      if node["Alive"]:
        resources = node["Resources"]
        room = resources.get("CPU", 0.0) / self._cores
        if self._gpus:
          room = min(room, resources.get("GPU", 0.0) / self._gpus)
        count += int(room + 1e-9)
    return count

  def count_workers(self) -> int:
    """Number of workers: as many as fit now, or as were asked for.

    Returns:
      At least 1.
    """
    room = self._count_room()
    return max(min(room, self._most_workers or room), 1)

  def create_task(self, function: Callable[..., Any], **options: Any) -> Any:
    """Makes a task of a function, which Ray runs again if its worker dies.

    Args:
      function: One of a module that workers can import.
      **options: Further ones of `ray.remote`.

    Returns:
      Ray's remote function; `.remote(...)` submits it.
    """
    return self.ray.remote(
      num_cpus=self._cores,
      num_gpus=self._gpus,
      max_retries=_ATTEMPTS - 1,
      # A process with a GPU is used again like any other, since it starts
      # slowly.
      max_calls=0,
      **options,
    )(function)

  def map(
    self, function: Callable[[_Chunk], _Result], chunks: Iterable[_Chunk]
  ) -> Iterator[_Result]:
    """As `map`, on the cluster: reads few chunks ahead of the results.

    Args:
      function: Function of a chunk, which is pickled.
      chunks: Chunks of work.

    Returns:
      Iterator over the results, in the order of the chunks.

    Raises:
      errors.DataError: When it is iterated over, if workers die again and again
        with a chunk.
    """
    call = self.create_task(_call)
    # Sent to each machine once.
    function_there = self.ray.put(function)
    results = self.run_in_order(
      lambda chunk: [call.remote(self._cores, function_there, chunk)], chunks
    )
    return (result for (result,) in results)

  def run_in_order(
    self,
    submit: Callable[[_Chunk], Sequence[Any]],
    chunks: Iterable[_Chunk],
    *,
    describe: Callable[[_Chunk], str] = lambda chunk: "a chunk",
  ) -> Generator[list[Any], None, None]:
    """Runs a task for each chunk; close the iterator to end those that run.

    Args:
      submit: Maps a chunk to the references of its task's results.
      chunks: Few of them are read ahead of the results.
      describe: Returns the name of a chunk in messages.

    Yields:
      The results of each chunk, in the order of the chunks.

    Raises:
      errors.DataError: If workers die again and again with a chunk.
      Exception: What a task raises.
    """
    remaining = iter(chunks)
    given: collections.deque[tuple[_Chunk, Sequence[Any]]] = collections.deque()
    running: list[Any] = []
    try:
      while True:
        workers = self.count_workers()
        # Keep workers busy with a second chunk each, unless there is room for
        # more workers.
        is_limited = workers < self._count_room()
        most_running = workers if is_limited else 2 * workers
        room = min(
          most_running - len(running), _CHUNKS_AHEAD * workers - len(given)
        )
        for chunk in itertools.islice(remaining, max(room, 0)):
          given.append((chunk, submit(chunk)))
          running.append(given[-1][1][0])
        if not given:
          return
        _, running = self.ray.wait(running, fetch_local=False)
        while given and given[0][1][0] not in running:
          chunk, references = given.popleft()
          yield self.fetch(references, describe(chunk))
    finally:
      # A Ray of this machine ends with the program, and its tasks with it.
      # Cancelling a task whose answer is on its way can end this process (Ray
      # 2.60).
      for reference in running if self._directory is None else ():
        # Ray may have forgotten a task that has just ended.
        with contextlib.suppress(TypeError, ValueError):
          self.ray.cancel(reference)

  def fetch(
    self,
    references: Sequence[Any],
    name: str,
    *,
    seconds: float | None = None,
  ) -> list[Any]:
    """Waits for results and returns them.

    Args:
      references: References to the results.
      name: Their common name in messages.
      seconds: Longest time to wait [without end].

    Returns:
      The results, in the order of the references.

    Raises:
      TimeoutError: If they take longer.
      Exception: As `run_in_order`.
    """
    try:
      return self.ray.get(list(references), timeout=seconds)
    except self.ray.exceptions.GetTimeoutError:
      raise
    except self.ray.exceptions.RayTaskError as error:
      raise error.cause from None
    except self.ray.exceptions.RayError as error:
      raise errors.DataError(
        f"{name} must not end its worker, found {_ATTEMPTS} workers that died"
        f" with it, the last: {errors.first_line(error)}. If memory ran out,"
        " give workers more cores each, or less data at a time; the same"
        " command goes on after the last whole round, if there are rounds."
      ) from error

  def close(self) -> None:
    """Leaves the cluster; ends what was started on this machine."""
    if self._is_owner:
      self.ray.shutdown()
    self._is_owner = False
    if self._directory is not None:
      self._directory.cleanup()


def _call(cores: int, function: Callable[[Any], Any], chunk: Any) -> Any:
  """Applies a function in a worker, on its own cores."""
  # Set these before TensorFlow computes anything there.
  os.environ["TF_NUM_INTRAOP_THREADS"] = str(cores)
  os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
  return function(chunk)


@contextlib.contextmanager
def open_map(
  config: runtime_lib.RuntimeConfig,
) -> Iterator[Callable[..., Iterator[Any]]]:
  """Joins a cluster to map on it, and leaves it afterwards.

  Args:
    config: Address of the cluster, and resources of its workers.

  Yields:
    `Cluster.map`.

  Raises:
    errors.FieldError: As `Cluster`.
  """
  with contextlib.closing(Cluster(config)) as cluster:
    yield cluster.map
