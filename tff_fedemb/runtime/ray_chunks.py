"""Deals the chunks of a round to workers and hands back what they bring.

Results come back in the order of the chunks, each once, whoever made them and
however often: workers may die, in which case others run their chunks, and one
that takes much longer than others is not waited for. So neither the number of
workers nor what befalls them changes a bit of the result, and no client counts
twice, which would double its sensitivity.
"""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import heapq
import statistics
import time
from typing import Any

from tff_fedemb import errors
from tff_fedemb.runtime import ray_cluster
from tff_fedemb.runtime import ray_worker

# How often a chunk is run whose workers die.
_ATTEMPTS = 4
# Workers in a row that die before they are ready.
_FAILED_STARTS = 3
# An environment may have to be installed first, and cores be busy.
_START_SECONDS = 900.0
# A chunk runs a second time elsewhere once it has taken as many times as long
# as the middle one, and no less than some seconds.
_STRAGGLING, _STRAGGLING_SECONDS = 4.0, 5.0
# Chunks a thread that run before an earlier one has ended, and sums of theirs
# that are fetched before their turn; the others stay with the workers.
CHUNKS_AHEAD, SUMS_AHEAD = 4, 4
# How often to look whether machines came or went.
_LOOK_SECONDS = 2.0
_WAIT_SECONDS = 0.5


class LostChunkError(errors.DataError):
  """Clients were lost again and again with the workers that ran them."""


class WorkerStartError(errors.DataError):
  """Workers do not start on the cluster."""


@dataclasses.dataclass(frozen=True)
class _Task:
  """A chunk that was given to a worker: when, and what Ray calls its sum."""

  start: float
  round_number: int
  chunk: int
  accumulator: Any


@dataclasses.dataclass(eq=False)
class _Worker:
  """An actor, what it has been given, and whether it may be given any."""

  actor: Any
  ready: Any
  # By what Ray calls the result.
  running: dict[Any, _Task] = dataclasses.field(default_factory=dict)
  is_ready: bool = False


@dataclasses.dataclass(kw_only=True)
class _Round:
  """A round's chunks: which wait, which have come back, how often they ran."""

  number: int
  prepared: Any
  chunks: Sequence[Sequence[str]]
  skips: bool
  waiting: list[int]
  done: dict[int, tuple[ray_worker.ChunkResult, _Task]] = dataclasses.field(
    default_factory=dict
  )
  # Sums of some that are done.
  fetched: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
  # Chunks before it have been handed on.
  next_chunk: int = 0
  losses: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  seconds: list[float] = dataclasses.field(default_factory=list)

  def has(self, chunk: int) -> bool:
    return chunk < self.next_chunk or chunk in self.done

  def find_wanted(self) -> list[_Task]:
    """Those whose sums are to be fetched."""
    some = range(self.next_chunk, self.next_chunk + SUMS_AHEAD)
    return [
      self.done[chunk][1]
      for chunk in some
      if chunk in self.done and chunk not in self.fetched
    ]

  def name(self, chunk: int) -> str:
    first, *others = self.chunks[chunk]
    some = f"client {first[:80]!r}"
    return f"{some} and {len(others)} more" if others else some


class ChunkPool:
  """Workers of one process, on a cluster that may change."""

  def __init__(
    self,
    cluster: ray_cluster.Cluster,
    graphs: Any,
    *,
    paths: Mapping[str, str],
    **options: Any,
  ):
    """Starts workers on all of the cluster, and waits until they are ready.

    Args:
      cluster: Where they run.
      graphs: What they run, a `client_fold.ClientGraphs`.
      paths: As in `ray_worker.ChunkWorker.check`.
      **options: Others of `ray_worker.ChunkWorker`.

    Raises:
      errors.FieldError: If a machine does not see what it has to.
      WorkerStartError: If they do not start.
    """
    self._cluster = cluster
    self._ray = cluster.ray
    self._paths = dict(paths)
    self._options = options
    self._threads = options["num_threads"]
    self._graphs = self._ray.put(graphs)
    self._actor_class = self._ray.remote(
      num_cpus=cluster.demand.cores,
      num_gpus=cluster.demand.gpus,
      max_concurrency=self._threads,
      max_restarts=0,
    )(ray_worker.ChunkWorker)
    self._workers: list[_Worker] = []
    self._failed_starts = 0
    self._last_look = 0.0
    self._round_number = 0
    self._wait_until(lambda: all(w.is_ready for w in self._workers))

  def close(self) -> None:
    """Ends the workers."""
    for worker in list(self._workers):
      self._drop(worker)
    self._graphs = None

  def fold(
    self, prepared: Any, chunks: Sequence[Sequence[str]], *, skips: bool
  ) -> Iterator[tuple[ray_worker.ChunkResult, list[Any]]]:
    """Runs the chunks of a round.

    Args:
      prepared: What the server sends to each client; it is sent to each machine
        once.
      chunks: Clients.
      skips: Whether to leave out clients whose data or training fail.

    Yields:
      The result and the sum of each chunk, in their order.

    Raises:
      errors.DataError: If workers die again and again, or the head is gone.
    """
    self._round_number += 1
    current = _Round(
      number=self._round_number,
      prepared=self._ray.put(prepared),
      chunks=chunks,
      skips=skips,
      waiting=list(range(len(chunks))),
    )
    self._last_look = 0.0
    self._wait_until(lambda: any(w.is_ready for w in self._workers))
    while current.next_chunk < len(chunks):
      self._look_at_cluster()
      self._deal(current)
      self._receive(current)
      while current.next_chunk in current.fetched:
        accumulator = current.fetched.pop(current.next_chunk)
        result, _ = current.done.pop(current.next_chunk)
        current.next_chunk += 1
        yield result, accumulator
    self._end_stragglers()

  def _wait_until(self, condition: Callable[[], bool]) -> None:
    """Waits for workers to be ready."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
      self._look_at_cluster()
      if self._workers and condition():
        return
      self._receive(None)
      if time.monotonic() > deadline:
        free = self._ray.available_resources()
        raise WorkerStartError(
          f"workers must be ready within {_START_SECONDS:.0f} s, found"
          f" {sum(w.is_ready for w in self._workers)} of {len(self._workers)}"
          f" and {free.get('CPU', 0.0):g} cores of the cluster free. Other"
          " programs may use it; ray_workers asks for fewer workers."
        )

  def _look_at_cluster(self) -> None:
    """Starts workers where there is room, and gives up those without any."""
    self._cluster.check_head()
    now = time.monotonic()
    if now - self._last_look < _LOOK_SECONDS:
      return
    self._last_look = now
    wanted = self._cluster.count_workers()
    for worker in reversed(self._workers[:]):
      if len(self._workers) > wanted and not worker.is_ready:
        self._drop(worker)
    if len(self._workers) < wanted:
      self._cluster.check_head(now=True)
    while len(self._workers) < wanted:
      actor = self._actor_class.remote(self._graphs, **self._options)
      ready = actor.check.remote(self._paths)
      self._workers.append(_Worker(actor, ready))

  def _drop(self, worker: _Worker) -> None:
    self._workers.remove(worker)
    worker.running.clear()
    if not self._cluster.is_lost:
      self._ray.kill(worker.actor)

  def _deal(self, current: _Round) -> None:
    """Gives chunks to workers that have room for them."""
    ready = [worker for worker in self._workers if worker.is_ready]
    threads = self._threads * len(ready)
    # Of what ends early not all is to wait for what ends late.
    last = current.next_chunk + CHUNKS_AHEAD * threads + 2
    while current.waiting and current.waiting[0] < last:
      # One more than it has threads for, so that it need not wait for us, as
      # long as there are enough for the others.
      ahead = 1 if len(current.waiting) > threads else 0
      room = [w for w in ready if len(w.running) < self._threads + ahead]
      if not room:
        return
      worker = min(room, key=lambda w: len(w.running))
      self._give(worker, heapq.heappop(current.waiting), current)
    # Those that are left wait for an earlier one.
    self._give_again(ready, current)

  def _give(self, worker: _Worker, chunk: int, current: _Round) -> None:
    result, accumulator = worker.actor.fold.options(num_returns=2).remote(
      current.prepared, current.chunks[chunk], current.skips
    )
    worker.running[result] = _Task(
      time.monotonic(), current.number, chunk, accumulator
    )

  def _give_again(self, ready: Sequence[_Worker], current: _Round) -> None:
    """Gives chunks that take too long to workers that have nothing to do."""
    if not current.seconds:
      return
    patience = max(
      _STRAGGLING * statistics.median(current.seconds), _STRAGGLING_SECONDS
    )
    now = time.monotonic()
    copies = collections.Counter(
      task.chunk
      for worker in self._workers
      for task in worker.running.values()
      if task.round_number == current.number
    )
    for worker in ready:
      for task in list(worker.running.values()):
        idle = [other for other in ready if not other.running]
        if (
          idle
          and task.round_number == current.number
          and copies[task.chunk] == 1
          and not current.has(task.chunk)
          and now - task.start > patience
        ):
          copies[task.chunk] += 1
          self._give(idle[0], task.chunk, current)

  def _receive(self, current: _Round | None) -> None:
    """Waits for a moment for something to come, and takes it."""
    waited_for = {
      result: worker
      for worker in self._workers
      for result in ([*worker.running] if worker.is_ready else [worker.ready])
    }
    wanted = current.find_wanted() if current is not None else []
    sums = {task.accumulator: task for task in wanted}
    if not waited_for and not sums:
      time.sleep(_WAIT_SECONDS)
      return
    found, _ = self._ray.wait([*sums, *waited_for], timeout=_WAIT_SECONDS)
    for result in found:
      if current is not None and result in sums:
        self._fetch(sums[result], current)
        continue
      worker = waited_for[result]
      exceptions = self._ray.exceptions
      try:
        value = self._ray.get(result)
      except exceptions.RayActorError as error:
        self._bury(worker, error, current)
      except exceptions.ObjectLostError as error:
        # The machine is gone after the worker had done it.
        self._lose(worker.running.pop(result), error, current)
      else:
        if worker.is_ready:
          self._accept(worker.running.pop(result), value, current)
        else:
          self._failed_starts = 0
          worker.is_ready = True
          if value is not None:
            raise value

  def _fetch(self, task: _Task, current: _Round) -> None:
    """Takes a sum, or has its chunk run again if its machine is gone."""
    try:
      current.fetched[task.chunk] = self._ray.get(task.accumulator)
    except self._ray.exceptions.ObjectLostError as error:
      del current.done[task.chunk]
      self._lose(task, error, current)

  def _accept(
    self, task: _Task, result: ray_worker.ChunkResult, current: _Round | None
  ) -> None:
    """Keeps a result, unless it is of another round or there is one."""
    if (
      current is not None
      and task.round_number == current.number
      and not current.has(task.chunk)
    ):
      current.done[task.chunk] = result, task
      current.seconds.append(result.seconds)

  def _bury(
    self, worker: _Worker, error: Exception, current: _Round | None
  ) -> None:
    """Takes leave of a worker that died, or is out of reach."""
    self._workers.remove(worker)
    self._cluster.check_head(now=True)
    self._ray.kill(worker.actor)
    self._last_look = 0.0
    if not worker.is_ready:
      self._failed_starts += 1
      if self._failed_starts >= _FAILED_STARTS:
        raise WorkerStartError(
          f"workers must start, found {self._failed_starts} that died at once:"
          f" {_explain(error)}. They need this program's code and its pinned"
          " environment; docs/cluster.md says how."
        ) from error
    for task in worker.running.values():
      self._lose(task, error, current)

  def _lose(
    self, task: _Task, error: Exception, current: _Round | None
  ) -> None:
    """Has a chunk run again that was lost, unless it is somewhere else."""
    chunk = task.chunk
    if (
      current is None
      or task.round_number != current.number
      or current.has(chunk)
    ):
      return
    current.losses[chunk] += 1
    if current.losses[chunk] >= _ATTEMPTS:
      raise LostChunkError(
        f"chunk {chunk + 1} of the round's {len(current.chunks)}"
        f" ({current.name(chunk)}) must not end its worker, found"
        f" {_ATTEMPTS} workers that died with it, the last: {_explain(error)}."
        " If memory ran out, give workers more cores each, or clients less"
        " data; the same command goes on after the last whole round."
      ) from error
    heapq.heappush(current.waiting, chunk)

  def _end_stragglers(self) -> None:
    """Ends workers that were still busy with an earlier round."""
    for worker in self._workers[:]:
      tasks = worker.running.values()
      if any(task.round_number < self._round_number for task in tasks):
        self._drop(worker)


def _explain(error: Exception) -> str:
  """What Ray says of a death, without addresses and identifiers."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  telling = [
    line
    for line in lines
    if any(word in line for word in ("OOM", "memory", "Error:", "exit", "died"))
    and not line.startswith(("class_name", "actor_id", "pid", "ip:"))
  ]
  return (telling or lines or [type(error).__name__])[-1][:300].rstrip(".")
