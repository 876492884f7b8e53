"""Applies a function to chunks of some work on the machines of a Ray cluster.

For what is no round, such as embedding many images: nothing is added up, so a
chunk may run as often as it likes.
"""

import collections
from collections.abc import Callable, Iterable, Iterator
import contextlib
import os
from typing import Any, TypeVar

from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import ray_chunks
from tff_fedemb.runtime import ray_cluster

_ATTEMPTS = 4
# Chunks a worker that are sent, so that it need not wait for us.
_CHUNKS_AHEAD = 2
_WAIT_SECONDS = 0.5

_Chunk = TypeVar("_Chunk")
_Result = TypeVar("_Result")


@contextlib.contextmanager
def open_map(
  config: runtime_lib.RuntimeConfig,
) -> Iterator[Callable[..., Iterator[Any]]]:
  """Joins a cluster to map on it, and leaves it afterwards.

  Args:
    config: Where it is, and what workers are to have.

  Yields:
    As `map`: what applies a function to chunks and returns an iterator over the
    results, in the order of the chunks. The function is pickled.

  Raises:
    errors.FieldError: As `ray_cluster.Cluster`.
  """
  cluster = ray_cluster.Cluster(config)
  try:
    yield lambda function, chunks: _map(cluster, function, chunks)
  finally:
    cluster.close()


def _map(
  cluster: ray_cluster.Cluster,
  function: Callable[[_Chunk], _Result],
  chunks: Iterable[_Chunk],
) -> Iterator[_Result]:
  """Yields results, and reads few chunks ahead of them.

  Raises:
    LostChunkError: If workers die again and again with a chunk.
    HeadLostError: If the head is gone.
    Exception: What the function raises.
  """
  call = cluster.ray.remote(
    num_cpus=cluster.demand.cores,
    num_gpus=cluster.demand.gpus,
    max_retries=_ATTEMPTS - 1,
  )(_call)
  # Sent to each machine once.
  function_there = cluster.ray.put(function)
  running: collections.deque[Any] = collections.deque()
  for chunk in chunks:
    running.append(call.remote(cluster.demand.cores, function_there, chunk))
    if len(running) > _CHUNKS_AHEAD * cluster.count_workers():
      yield _wait(cluster, running.popleft())
  while running:
    yield _wait(cluster, running.popleft())


def _call(cores: int, function: Callable[[Any], Any], chunk: Any) -> Any:
  # Before TensorFlow computes anything there.
  os.environ["TF_NUM_INTRAOP_THREADS"] = str(cores)
  os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
  return function(chunk)


def _wait(cluster: ray_cluster.Cluster, result: Any) -> Any:
  exceptions = cluster.ray.exceptions
  while not cluster.ray.wait([result], timeout=_WAIT_SECONDS)[0]:
    cluster.check_head()
  try:
    return cluster.ray.get(result)
  except exceptions.RayTaskError as error:
    raise error.cause from None
  except (
    exceptions.WorkerCrashedError,
    exceptions.OutOfMemoryError,
    exceptions.ObjectLostError,
  ) as error:
    raise ray_chunks.LostChunkError(
      f"a chunk must not end its worker, found {_ATTEMPTS} workers that died"
      " with it. If memory ran out, give workers more cores each."
    ) from error
