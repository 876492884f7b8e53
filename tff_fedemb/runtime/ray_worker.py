"""What runs on the machines of a Ray cluster: chunks of a round's clients.

A chunk is trained and added up by one thread, in the order of its clients,
whatever else the worker does. Nothing here is random or keeps anything from one
chunk for the next: a chunk comes out the same wherever, and however often, it
runs.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import queue
import time
from typing import Any

from tff_fedemb import errors
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import client_fold
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import secure_sums


@dataclasses.dataclass(frozen=True)
class ChunkResult:
  """What comes of a chunk beside the sum of its clients.

  Attributes:
    total: Its secure sums.
    skipped: Clients that were left out, in their order.
    error: Why the first client that failed did, unless it was left out.
    seconds: How long it took.
  """

  total: secure_sums.RoundTotal
  skipped: list[client_error.ClientError]
  error: client_error.ClientError | None
  seconds: float


class ChunkWorker:
  """An actor: a TensorFlow of its own, and as many threads as clients."""

  def __init__(
    self,
    graphs: client_fold.ClientGraphs,
    *,
    num_threads: int,
    compute_precision: str,
  ):
    """Imports the graphs; sessions open with the first chunks.

    Args:
      graphs: What a client does.
      num_threads: Chunks that run at a time.
      compute_precision: Of the clients, one of `precision.PRECISIONS`.
    """
    # All of these before TensorFlow computes anything.
    os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    precision.set_environment(compute_precision)
    self._precision = compute_precision
    self._sums = graphs.sums
    self._folds: queue.SimpleQueue[client_fold.ClientFold] = queue.SimpleQueue()
    for _ in range(num_threads):
      # Sessions of their own, so that a failing chunk cancels no other.
      # Chunks may be of one client, beside which a large zero takes long.
      self._folds.put(
        client_fold.ClientFold(
          graphs, num_threads=1, sum_threads=1, keeps_zero=True
        )
      )

  def check(self, paths: Mapping[str, str]) -> errors.FieldError | None:
    """Returns what keeps this machine from taking part, if anything does.

    Args:
      paths: Files and directories it has to see, by the setting's name.
    """
    for name, path in paths.items():
      if not os.path.exists(path):
        return errors.FieldError(
          name,
          "be at a path that every machine of the cluster sees",
          f"no {path} on {os.uname().nodename}",
        )
    try:
      precision.check_precision(self._precision)
    except errors.FieldError as error:
      return error
    return None

  def fold(
    self, prepared: Sequence[Any], client_ids: Sequence[str], skips: bool
  ) -> tuple[ChunkResult, list[Any]]:
    """Trains the clients of a chunk and adds up their updates.

    Args:
      prepared: What the server sends to each client of the round.
      client_ids: The clients, in their order.
      skips: Whether to leave out clients whose data or training fail.

    Returns:
      What came of it, and the leaves of the sum, none if a client failed. They
      are two, so that a sum can stay here until its turn.
    """
    start = time.perf_counter()
    fold = self._folds.get()
    skipped: list[client_error.ClientError] = []
    accumulator, total, error = [], self._sums.start_round(), None
    try:
      accumulator, total = fold(
        prepared, client_ids, skipped.append if skips else None
      )
    except client_error.ClientError as found:
      error = found
    finally:
      self._folds.put(fold)
    seconds = time.perf_counter() - start
    return ChunkResult(total, skipped, error, seconds), accumulator
