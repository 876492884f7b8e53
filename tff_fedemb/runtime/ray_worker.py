"""Trains chunks of a round's clients on the machines of a Ray cluster.

A chunk is trained and added up by one thread, in the order of its clients,
whatever else the worker does. Nothing here is random, and nothing of one chunk
is kept for the next: a chunk gives the same bits wherever, and however often,
it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
import dataclasses
import os
from typing import Any

from tff_fedemb import errors
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import client_fold
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import secure_sums


@dataclasses.dataclass(frozen=True)
class ChunkResult:
  """The outcome of a chunk beside the sum of its clients.

  Attributes:
    total: Its secure sums.
    skipped: Clients that were left out, in their order.
    error: Why the first client that failed did, unless it was left out.
  """

  total: secure_sums.RoundTotal
  skipped: list[client_error.ClientError]
  error: client_error.ClientError | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
  """Setup of a worker, before it is given clients.

  Attributes:
    get_graphs: Returns the graphs; called once by each process.
    key: Identifies the graphs.
    paths: Files and directories it has to see, by the setting's name.
    num_threads: Number of chunks that run at a time.
    compute_precision: Precision of the clients, one of `precision.PRECISIONS`.
    skips: Whether to leave out clients whose data or training fail.
  """

  get_graphs: Callable[[], client_fold.ClientGraphs]
  key: str
  paths: Mapping[str, str]
  num_threads: int
  compute_precision: str
  skips: bool


class _Worker:
  """Sessions of a process, one set for each of its threads."""

  def __init__(self, setup: Setup):
    for name, path in setup.paths.items():
      if not os.path.exists(path):
        raise errors.FieldError(
          name,
          "be at a path that every machine of the cluster sees",
          f"no {path} on {os.uname().nodename}",
        )
    precision.check_precision(setup.compute_precision)
    # All of these before TensorFlow computes anything.
    os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    graphs = setup.get_graphs()
    self.key, self._skips = setup.key, setup.skips
    self._sums = graphs.sums
    # Sessions of their own, so that a failing chunk cancels no other. Chunks
    # may be of one client, beside which a large zero takes long.
    self._folds = [
      client_fold.ClientFold(
        graphs, num_threads=1, sum_threads=1, keeps_zero=True
      )
      for _ in range(setup.num_threads)
    ]

  def fold(
    self, prepared: Sequence[Any], chunks: Sequence[Sequence[str]]
  ) -> list[tuple[ChunkResult, list[Any]]]:
    def fold_one(fold, client_ids):
      skipped: list[client_error.ClientError] = []
      accumulator, total, error = [], self._sums.start_round(), None
      try:
        accumulator, total = fold(
          prepared, client_ids, skipped.append if self._skips else None
        )
      except client_error.ClientError as found:
        error = found
      return ChunkResult(total, skipped, error), accumulator

    with futures.ThreadPoolExecutor(len(self._folds)) as threads:
      return [*threads.map(fold_one, self._folds, chunks)]

  def close(self) -> None:
    for fold in self._folds:
      fold.close()


# Each process has one, which lasts from round to round.
_worker: _Worker | None = None


def fold_chunks(
  setup: Setup,
  prepared: Sequence[Any] = (),
  chunks: Sequence[Sequence[str]] = (),
) -> list[Any]:
  """Trains the clients of some chunks, and adds up the updates of each chunk.

  Without any it makes the process ready.

  Args:
    setup: Graphs to run, and how.
    prepared: Values that the server sends to each client of the round.
    chunks: Clients of each chunk; at most as many chunks as threads.

  Returns:
    A `ChunkResult` of each chunk, then for each chunk the leaves of its sum,
    none if a client failed. They are apart, so that a sum can stay with the
    worker until its turn.

  Raises:
    errors.FieldError: If this machine cannot take part.
  """
  global _worker
  if _worker is None or _worker.key != setup.key:
    if _worker is not None:
      _worker.close()
    _worker = None
    _worker = _Worker(setup)
  pairs = _worker.fold(prepared, chunks)
  return [[result for result, _ in pairs], *(total for _, total in pairs)]
