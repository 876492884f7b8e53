"""Runs the clients of a round on the machines of a Ray cluster.

The server's part of a round, noise included, is computed in this process; the
clients are dealt in chunks, by their order, to workers that add up a chunk's
updates, and the sums of chunks are added up here, in the order of the chunks.
A chunk's size depends on the number of clients and on the model, so the result
does not depend on the workers.
"""

from collections.abc import Mapping, Sequence
import contextlib
import itertools
from typing import Any

import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import in_process
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import ray_cluster
from tff_fedemb.runtime import ray_worker
from tff_fedemb.runtime import secure_sums

# Enough chunks for some dozens of workers to end at about the same time, but no
# more sums to send and add up than needed: a chunk costs about 20 ms of a
# processor beside its clients.
_CHUNKS_AT_LEAST = 64
_LARGEST_CHUNK = 16
# With a small model, a chunk would cost as much as its clients, so they are
# dealt to fewer workers.
_CHUNKS_OF_SMALL_AT_LEAST = 12
# Starting may include the installation of an environment on busy cores.
_START_SECONDS = 900.0


def deal(
  client_ids: Sequence[str],
  clients_per_chunk: int | None = None,
  *,
  clients_per_call: int = 1,
) -> list[Sequence[str]]:
  """Divides the clients of a round into chunks, in their order.

  Args:
    client_ids: The clients.
    clients_per_chunk: Clients of a chunk; the last one may have fewer [a 64th
      of them, or as many as a call if there are 12 chunks then; 1 to 16. The
      last chunks are smaller, so that workers end at about the same time].
    clients_per_call: Clients that a worker trains by one call, see
      `client_loops`: several for a small model.

  Returns:
    Consecutive slices of `client_ids`, none of them empty.
  """
  num_clients = len(client_ids)
  of_call = min(clients_per_call, num_clients // _CHUNKS_OF_SMALL_AT_LEAST)
  size = clients_per_chunk or min(
    max(num_clients // _CHUNKS_AT_LEAST, of_call, 1), _LARGEST_CHUNK
  )
  last = [] if clients_per_chunk else [size // 2] * 2 + [size // 4] * 2
  before = num_clients - sum(last)
  sizes = [size] * (before // size) + [before % size] + last
  ends = itertools.accumulate(filter(None, sizes), initial=0)
  return [client_ids[start:end] for start, end in itertools.pairwise(ends)]


class RayRuntime(in_process.InProcessRuntime):
  """A runtime on a cluster; see the module's docstring.

  It treats clients that fail, and secure sums, as `in_process` does: the sums
  are simulated, each worker sees what its clients send.

  Privacy: noise is added once, by this process, to the sum of all chunks. A
  chunk that ran more than once is added once.
  """

  _setup: ray_worker.Setup
  _task: Any

  def __init__(self, config: runtime_lib.RuntimeConfig):
    """Joins the cluster.

    Args:
      config: Its `concurrent_clients` are those of each worker.

    Raises:
      errors.FieldError: If Ray is not installed, the cluster cannot be joined
        or has no room for what is asked for, or this machine's processor lacks
        the precision.
    """
    super().__init__(config)
    self.concurrent_clients = config.concurrent_clients or (
      1 if config.ray_worker_gpus else config.ray_worker_cores
    )
    # No client runs in this process.
    self._client_devices = [""]
    self._clients_per_call = 1 if config.ray_worker_gpus else None
    self._paths: dict[str, str] = {}
    self._cluster: ray_cluster.Cluster | None = ray_cluster.Cluster(config)

  def require_paths(self, paths: Mapping[str, str]) -> None:
    """Keeps the paths for each worker to look for before its first client.

    Args:
      paths: As in the base class; each worker of the cluster has to see them.
    """
    self._paths = dict(paths)

  def initialize(
    self, process: tff.templates.IterativeProcess
  ) -> in_process.FlatState:
    """Compiles the process here, and starts the workers.

    Args:
      process: As in the base class.

    Returns:
      The initial state, which stays in this process.

    Raises:
      errors.DataError: If the workers do not start within 15 minutes.
      errors.FieldError: As `InProcessRuntime.initialize`, or if a machine lacks
        a required path or the precision.
      RuntimeError: If the runtime is closed, or in a fork.
      TypeError: As `InProcessRuntime.initialize`.
    """
    cluster = self._cluster
    if cluster is None:
      raise RuntimeError("the runtime must be open, found it closed.")
    state = super().initialize(process)
    self._setup = ray_worker.Setup(
      graphs=cluster.ray.put(self._client_graphs),
      paths=self._paths,
      num_threads=self.concurrent_clients,
      compute_precision=self._config.compute_precision,
      skips=self._skip_fn is not None,
    )
    # Processes with another precision are not reused.
    variables = precision.environment(self._config.compute_precision)
    self._task = cluster.create_task(
      ray_worker.fold_chunks,
      runtime_env={"env_vars": variables} if variables else None,
      # Ray's default could leave a machine idle.
      scheduling_strategy="SPREAD",
    )
    self._start_workers(cluster)
    return state

  def _start_workers(self, cluster: ray_cluster.Cluster) -> None:
    """Waits until there are workers on all of the cluster.

    Raises:
      errors.DataError: If they do not start.
      errors.FieldError: If a machine does not see a required path.
    """
    references = [
      self._task.remote(self._setup) for _ in range(cluster.count_workers())
    ]
    try:
      cluster.fetch(references, "a start", seconds=_START_SECONDS)
    except (ImportError, RuntimeError, TimeoutError, errors.DataError) as error:
      raise errors.DataError(
        f"{len(references)} workers must start within {_START_SECONDS:.0f} s,"
        f" found {errors.first_line(error)}. They need cores that no other"
        " program uses (ray_workers asks for fewer), this program's code and"
        " its pinned environment; docs/cluster.md says how."
      ) from error

  def _fold_clients(
    self, prepared: Sequence[Any], client_ids: Sequence[str]
  ) -> tuple[list[Any], secure_sums.RoundTotal]:
    """Folds the chunks of a round on the cluster, merged in their order."""
    cluster = base.check_initialized(self._cluster)
    # The model is sent to each machine once a round.
    prepared_there = cluster.ray.put(prepared)

    def submit(chunks: Sequence[Sequence[str]]) -> Any:
      return self._task.options(num_returns=1 + len(chunks)).remote(
        self._setup, prepared_there, chunks
      )

    chunks = deal(
      client_ids,
      self._config.ray_clients_per_chunk,
      clients_per_call=self._client_graphs.clients_per_call,
    )
    # A task has a chunk for each thread of its worker.
    num_threads = self.concurrent_clients
    tasks = [
      chunks[start : start + num_threads]
      for start in range(0, len(chunks), num_threads)
    ]
    accumulator: list[Any] | None = None
    total = self._client_graphs.sums.start_round()
    with contextlib.closing(
      cluster.run_in_order(submit, tasks, describe=_describe)
    ) as outcomes:
      for facts, *sums in outcomes:
        for (chunk_total, skipped), leaves in zip(facts, sums, strict=True):
          self.skipped_clients += skipped
          total.add(chunk_total.totals, num_clients=chunk_total.num_survivors)
          accumulator = (
            self._server["merge"](accumulator, leaves)
            if accumulator
            else leaves
          )
    if accumulator is None:
      return super()._fold_clients(prepared, [])
    return accumulator, total

  def close(self) -> None:
    """Ends the sessions of this process, and leaves the cluster."""
    super().close()
    if self._cluster is not None and not self._is_in_fork:
      self._cluster.close()
      self._cluster = None


def _describe(chunks: Sequence[Sequence[str]]) -> str:
  """Names chunks by their first client, whose id may be long."""
  first, *others = itertools.chain.from_iterable(chunks)
  more = f" and {len(others)} more" if others else ""
  return f"the chunk of client {first[:80]!r}{more}"
