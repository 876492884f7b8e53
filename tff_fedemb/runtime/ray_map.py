"""Runs chunks of work on the machines of a Ray cluster, in their order.

A chunk is a task of Ray's, which Ray runs again elsewhere if a worker or its
machine dies, and also if a result is lost with a machine. A chunk may therefore
run more than once; its results are handed on once, in the order of the chunks.
"""

import collections
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
import contextlib
import functools
import os
import time
from typing import Any, TypeVar

from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import ray_cluster

# How often a chunk is run whose workers die; `import_ray` sets the same number
# for those whose memory runs out.
_ATTEMPTS = 4
# Chunks for each worker that run, or have run, before an earlier one has ended.
_CHUNKS_AHEAD = 4
_WAIT_SECONDS = 0.5

_Chunk = TypeVar("_Chunk")
_Result = TypeVar("_Result")


class LostChunkError(errors.DataError):
  """A chunk was lost again and again with the workers that ran it."""


@contextlib.contextmanager
def open_map(
  config: runtime_lib.RuntimeConfig,
) -> Iterator[Callable[..., Iterator[Any]]]:
  """Joins a cluster to map on it, and leaves it afterwards.

  Args:
    config: Address of the cluster, and resources of its workers.

  Yields:
    As `map`: what applies a function to chunks and returns an iterator over the
    results, in the order of the chunks. The function is pickled.

  Raises:
    errors.FieldError: As `ray_cluster.Cluster`.
  """
  cluster = ray_cluster.Cluster(config)
  try:
    yield functools.partial(_map, cluster)
  finally:
    cluster.close()


def _map(
  cluster: ray_cluster.Cluster,
  function: Callable[[_Chunk], _Result],
  chunks: Iterable[_Chunk],
) -> Iterator[_Result]:
  """Yields results, and reads few chunks ahead of them."""
  call = create_task(cluster, _call)
  # Sent to each machine once.
  function_there = cluster.ray.put(function)
  results = run_in_order(
    cluster,
    lambda chunk: [call.remote(cluster.cores, function_there, chunk)],
    chunks,
  )
  return (result for (result,) in results)


def _call(cores: int, function: Callable[[Any], Any], chunk: Any) -> Any:
  # Before TensorFlow computes anything there.
  os.environ["TF_NUM_INTRAOP_THREADS"] = str(cores)
  os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
  return function(chunk)


def create_task(
  cluster: ray_cluster.Cluster, function: Callable[..., Any], **options: Any
) -> Any:
  """Makes a task of a function, which Ray runs again if its worker dies.

  Args:
    cluster: Its workers are what the task asks for.
    function: One of a module that workers can import.
    **options: Further ones of `ray.remote`.
  """
  return cluster.ray.remote(
    num_cpus=cluster.cores,
    num_gpus=cluster.gpus,
    max_retries=_ATTEMPTS - 1,
    # A process with a GPU is used again like any other: it starts slowly.
    max_calls=0,
    **options,
  )(function)


def run_in_order(
  cluster: ray_cluster.Cluster,
  submit: Callable[[_Chunk], Sequence[Any]],
  chunks: Iterable[_Chunk],
  *,
  describe: Callable[[_Chunk], str] = lambda chunk: "a chunk",
) -> Generator[list[Any], None, None]:
  """Runs a task for each chunk; close the iterator to end those that run.

  Args:
    cluster: Cluster that runs the tasks.
    submit: Maps a chunk to the references of its task's results.
    chunks: Few of them are read ahead of the results.
    describe: Returns the name of a chunk in messages.

  Yields:
    The results of each chunk, in the order of the chunks.

  Raises:
    LostChunkError: If workers die again and again with a chunk.
    ray_cluster.HeadLostError: If the head is gone.
    Exception: What a task raises.
  """
  remaining = iter(chunks)
  given: collections.deque[tuple[_Chunk, Sequence[Any]]] = collections.deque()
  running: list[Any] = []
  try:
    while True:
      # While no machine has room, one waits for those that may come.
      most_given = max(cluster.count_workers(), 1) * _CHUNKS_AHEAD
      most_running = max(cluster.count_tasks(), 1)
      while len(given) < most_given and len(running) < most_running:
        for chunk in remaining:
          given.append((chunk, submit(chunk)))
          running.append(given[-1][1][0])
          break
        else:
          break
      if not given:
        return
      cluster.check_head()
      if running:
        _, running = cluster.ray.wait(
          running, timeout=_WAIT_SECONDS, fetch_local=False
        )
      while given and given[0][1][0] not in running:
        chunk, references = given.popleft()
        yield fetch(cluster, references, describe(chunk))
  finally:
    if not cluster.is_lost:
      for reference in running:
        # Ray may know nothing of a task that has just ended.
        with contextlib.suppress(TypeError, ValueError):
          cluster.ray.cancel(reference, force=True)


def fetch(
  cluster: ray_cluster.Cluster,
  references: Sequence[Any],
  name: str,
  *,
  seconds: float = float("inf"),
) -> list[Any]:
  """Waits for results and returns them.

  Args:
    cluster: Cluster that they come from.
    references: References to the results.
    name: Their common name in messages.
    seconds: Longest time to wait.

  Raises:
    TimeoutError: If they take longer.
    Exception: As `run_in_order`.
  """
  references = list(references)
  deadline = time.monotonic() + seconds
  left = references
  while left:
    _, left = cluster.ray.wait(
      left, num_returns=len(left), timeout=_WAIT_SECONDS
    )
    cluster.check_head()
    if left and time.monotonic() > deadline:
      raise TimeoutError
  try:
    return cluster.ray.get(references)
  except cluster.ray.exceptions.RayTaskError as error:
    raise error.cause from None
  except cluster.ray.exceptions.RayError as error:
    cluster.check_head(now=True)
    raise LostChunkError(
      f"{name} must not end its worker, found {_ATTEMPTS} workers that died"
      f" with it, the last: {errors.first_line(error)}. If memory ran out, give"
      " workers more cores each, or less data at a time; the same command goes"
      " on after the last whole round, if there are rounds."
    ) from error
