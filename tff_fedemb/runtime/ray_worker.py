"""Trains chunks of a round's clients on the machines of a Ray cluster.

One thread trains a chunk and adds it up, in the order of its clients,
independently of the worker's other threads. Nothing here is random, and no
state passes from one chunk to the next, so a chunk gives the same bits
wherever, and however often, it runs.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import dataclasses
import importlib
import os
from typing import Any

from tff_fedemb import errors
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import client_fold
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import process_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
  """Setup of a worker, before it is given clients.

  Attributes:
    graphs: Reference to `client_fold.ClientGraphs`, which each process reads
      once.
    paths: Files and directories it has to see, by the setting's name.
    num_threads: Number of chunks that run at a time.
    compute_precision: Precision of the clients, one of `precision.PRECISIONS`.
    skips: Whether to leave out clients whose data or training fail.
  """

  graphs: Any
  paths: Mapping[str, str]
  num_threads: int
  compute_precision: str
  skips: bool


# Sessions of this process, a set for each of its threads, by the key of their
# setup. They last from round to round.
_folds: dict[str, list[client_fold.ClientFold]] = {}


def _open_folds(setup: Setup) -> list[client_fold.ClientFold]:
  """Checks this machine, and makes a fold for each thread.

  Args:
    setup: Its paths have to exist here.

  Returns:
    Folds of one thread each.

  Raises:
    errors.FieldError: If a path is missing, or the processor lacks the
      precision.
  """
  for name, path in setup.paths.items():
    if not os.path.exists(path):
      raise errors.FieldError(
        name,
        "be at a path that every machine of the cluster sees",
        f"no {path} on {os.uname().nodename}",
      )
  precision.check_precision(setup.compute_precision)
  # Set these before TensorFlow computes anything. A worker's threads do not
  # depend on its machine's environment.
  os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
  process_settings.prepare()
  os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
  graphs = importlib.import_module("ray").get(setup.graphs)
  # Each thread has sessions of its own, so that a failing chunk cancels no
  # other.
  return [
    client_fold.ClientFold(graphs, num_threads=1, sum_threads=1)
    for _ in range(setup.num_threads)
  ]


def fold_chunks(
  setup: Setup,
  prepared: Sequence[Any] = (),
  chunks: Sequence[Sequence[str]] = (),
) -> list[Any]:
  """Trains the clients of some chunks, and adds up the updates of each chunk.

  Without chunks it only makes this process ready.

  Args:
    setup: Graphs to run, and how.
    prepared: Values that the server sends to each client of the round.
    chunks: Clients of each chunk; at most as many chunks as threads.

  Returns:
    Secure sums and left-out clients of each chunk, in one list, then for each
    chunk the leaves of its sum. They are apart, so that a sum can stay with the
    worker until its turn.

  Raises:
    client_error.ClientError: If a client failed, unless it is left out.
    errors.FieldError: If this machine cannot take part.
  """
  key = setup.graphs.hex()
  if key not in _folds:
    while _folds:
      for fold in _folds.popitem()[1]:
        fold.close()
    _folds[key] = _open_folds(setup)

  def fold_one(fold: client_fold.ClientFold, client_ids: Sequence[str]):
    skipped: list[client_error.ClientError] = []
    leaves, total = fold(
      prepared, client_ids, skipped.append if setup.skips else None
    )
    return leaves, (total, skipped)

  with futures.ThreadPoolExecutor(setup.num_threads) as threads:
    folded = list(threads.map(fold_one, _folds[key], chunks))
  facts, sums = [], []
  for leaves, of_chunk in folded:
    facts.append(of_chunk)
    sums.append(leaves)
  return [facts, *sums]
