"""Folds clients: trains them side by side and adds up their updates.

An update is added to the others in the order of the client ids, whichever
client finishes first, so that the rounding of a sum does not depend on the
number of threads.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import graph_session
from tff_fedemb.runtime import secure_sums

# Number of calls, beyond the number of threads, that may run or wait while an
# earlier one is not added up yet. Some slack keeps a slow client from idling
# the other threads; a small number keeps memory near one model a thread.
_CALLS_AHEAD = 1
_ABANDON_SECONDS = 0.5
# Alignment in bytes; TensorFlow copies arrays that begin elsewhere.
_ALIGNMENT = 64
# Several threads add to a sum of at least this many numbers: widening float32
# to int64 in NumPy takes as long as a training step of a large model.
_LARGE_SUM = 2**20

# Errors that only the client's own data and training can cause. Memory that ran
# out or a device that failed may be the doing of other clients: if one client
# could decide whether another is left out, the guarantee would not hold.
_ERRORS_OF_THE_CLIENT = (
  tf.errors.DataLossError,
  tf.errors.FailedPreconditionError,
  tf.errors.InvalidArgumentError,
  tf.errors.NotFoundError,
  tf.errors.OutOfRangeError,
  # A killed worker counts as a phone that stopped answering.
  client_error.KilledError,
)


def leave_out(
  client_id: str,
  error: Exception,
  skip_fn: Callable[[client_error.ClientError], None] | None,
) -> None:
  """Reports a client that failed and whose update is not added.

  Args:
    client_id: The client.
    error: Why it failed.
    skip_fn: Receives the error if only the client can have caused it; None
      leaves no client out.

  Raises:
    client_error.ClientError: If the client is not left out.
  """
  if skip_fn is None or not isinstance(error, _ERRORS_OF_THE_CLIENT):
    raise client_error.ClientError(client_id, error) from error
  # The cause is left out: its traceback holds the model that was sent.
  skip_fn(client_error.ClientError(client_id, error))


def _aligned_zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
  """Zeros that a session can be fed without a copy.

  Args:
    shape: Shape of the array.
    dtype: Type of its elements.

  Returns:
    A writable array of zeros whose memory begins at a multiple of 64 bytes.
  """
  num_bytes = math.prod(shape) * dtype.itemsize
  memory = np.zeros(num_bytes + _ALIGNMENT, np.uint8)
  start = -memory.ctypes.data % _ALIGNMENT
  return memory[start : start + num_bytes].view(dtype).reshape(shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientGraphs:
  """The graphs that folding runs, as plain data for another process.

  Attributes:
    work: Work of one client, or of several one after the other; on one or more
      devices.
    zero: The sum of no update.
    accumulate: Maps a sum and one or more updates to their sum.
    addends: As `client_loops.find_addends` of one update.
    sums: The secure sums.
    clients_per_call: Largest number of clients in a call of `work`.
    mixed_bfloat16: Whether clients multiply in bfloat16, see `precision`.
  """

  work: Sequence[graph_session.RunnableGraph]
  zero: graph_session.RunnableGraph
  accumulate: graph_session.RunnableGraph
  addends: Sequence[int] | None
  sums: secure_sums.SecureSums
  clients_per_call: int
  mixed_bfloat16: bool


class ClientFold:
  """Threads and sessions that fold clients.

  Up to `num_threads` clients run at a time. Call it once for each round; it
  keeps its sessions until `close`.
  """

  def __init__(
    self,
    graphs: ClientGraphs,
    *,
    num_threads: int,
    threads_per_client: int = 1,
    sum_threads: int = 0,
  ):
    """Starts threads; sessions are opened as they are needed.

    Args:
      graphs: Graphs to run.
      num_threads: Threads, one client each; at least 1.
      threads_per_client: Threads inside of a client's computations.
      sum_threads: Threads that add up in a session; 0 leaves the choice to
        TensorFlow.
    """
    self._addends = graphs.addends
    # Shapes and types of the sum of no update, once it is known to be zeros.
    self._zeros: list[tuple[Any, Any]] | None = None
    self._secure_sums = graphs.sums
    self._clients_per_call = graphs.clients_per_call
    self._work = graph_session.SessionPool(
      graphs.work,
      num_threads=threads_per_client,
      mixed_bfloat16=graphs.mixed_bfloat16,
    )
    self._zero = graph_session.SessionPool(
      [graphs.zero], num_threads=sum_threads
    )
    self._accumulate = graph_session.SessionPool(
      [graphs.accumulate], num_threads=sum_threads
    )
    self._num_threads = num_threads
    self._is_abandoned = False
    self._threads = futures.ThreadPoolExecutor(
      max_workers=num_threads, thread_name_prefix="client"
    )
    self._adders = futures.ThreadPoolExecutor(
      max_workers=num_threads, thread_name_prefix="sum"
    )

  def __call__(
    self,
    prepared: Sequence[Any],
    client_ids: Sequence[Any],
    skip_fn: Callable[[client_error.ClientError], None] | None,
  ) -> tuple[list[Any], secure_sums.RoundTotal]:
    """Trains clients and adds up their updates in the order of the ids.

    Args:
      prepared: Values that the server sends to each client.
      client_ids: Possibly none at all; or strings of bytes, if the process
        takes what clients sent.
      skip_fn: Receives the errors of clients that are left out of the sum, in
        the order of the ids. None leaves no client out: the first error ends
        the call.

    Returns:
      The leaves of the sum, and the secure sums.

    Raises:
      client_error.ClientError: If a client's computation failed, and is not
        left out. Clients still at work are cancelled, also when Ctrl-C ends
        the call.
    """
    total = self._secure_sums.start_round()
    accumulator = self._start_sum()
    calls = self._split(client_ids)
    pending: collections.deque[futures.Future] = collections.deque()
    try:
      while True:
        room = self._num_threads + _CALLS_AHEAD - len(pending)
        for clients in itertools.islice(calls, room):
          pending.append(self._threads.submit(self._train, clients, prepared))
        if not pending:
          return self._finish_sum(accumulator), total
        # The call stays in the queue while it runs, so that `_abandon` finds
        # it. After that nothing refers to it, so that its updates are freed
        # once added.
        futures.wait([pending[0]])
        for clients, outcome in pending.popleft().result():
          accumulator = self._add(accumulator, clients, outcome, skip_fn, total)
    except BaseException:
      self._abandon(pending)
      raise

  def _start_sum(self) -> list[Any]:
    """Returns the sum of no update, which may be added to.

    Returns:
      The leaves of the sum. If addition is plain, they are writable NumPy
      arrays of their own; their graph runs in the first round alone if it gives
      zeros.
    """
    if self._zeros is not None:
      return [_aligned_zeros(*spec) for spec in self._zeros]
    leaves = self._zero()
    if self._addends is None:
      return leaves
    leaves = [np.asarray(leaf) for leaf in leaves]
    if not any(map(np.any, leaves)):
      self._zeros = [(leaf.shape, leaf.dtype) for leaf in leaves]
    return [np.require(leaf, requirements=["C", "W"]) for leaf in leaves]

  def _finish_sum(self, accumulator: list[Any]) -> list[Any]:
    """Returns a sum as sessions do, which make no arrays of scalars."""
    if self._addends is None:
      return accumulator
    return [leaf[()] for leaf in accumulator]

  def _split(self, client_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the clients of each call, fewer towards the end of a round.

    So no thread is idle for long while another runs the last call.

    Args:
      client_ids: Clients of the round.

    Yields:
      Consecutive slices of 1 to `clients_per_call` clients.
    """
    start = 0
    while start < len(client_ids):
      share = (len(client_ids) - start) // (2 * self._num_threads)
      stop = start + min(max(share, 1), self._clients_per_call)
      yield client_ids[start:stop]
      start = stop

  def _train(
    self, client_ids: Sequence[str], prepared: Sequence[Any]
  ) -> list[tuple[Sequence[str], list[Any] | Exception]]:
    """Runs clients by one call, or if one of them fails, by several.

    Halving the clients of a call until the failing one is alone keeps the
    updates of the others.

    Args:
      client_ids: Clients of one call; at least one.
      prepared: Values that the server sends to each client.

    Returns:
      In the order of the ids, clients and their updates, or one client and why
      it failed.
    """
    clients: Any = client_ids[0]
    if self._clients_per_call > 1:
      clients = np.array(client_ids, object)
    try:
      updates = self._work([clients], prepared)
      self._secure_sums.check(updates)
      return [(client_ids, updates)]
    except Exception as error:
      if len(client_ids) == 1 or self._is_abandoned:
        return [(client_ids, error)]
    middle = len(client_ids) // 2
    return [
      *self._train(client_ids[:middle], prepared),
      *self._train(client_ids[middle:], prepared),
    ]

  def _add(
    self,
    accumulator: list[Any],
    client_ids: Sequence[str],
    outcome: list[Any] | Exception,
    skip_fn: Callable[[client_error.ClientError], None] | None,
    total: secure_sums.RoundTotal,
  ) -> list[Any]:
    """Adds the updates of clients, or reports the one that failed.

    Args:
      accumulator: Leaves of the sum so far; changed in place if addition is
        plain.
      client_ids: Clients of the outcome, one alone if it is an error.
      outcome: Leaves of their updates, with a leading dimension `[clients]` if
        calls may have several, or an error.
      skip_fn: As in `__call__`.
      total: Secure sums; gets the clients' summands.

    Returns:
      Leaves of the new sum.

    Raises:
      client_error.ClientError: If the client failed, and is not left out.
    """
    if not isinstance(outcome, Exception):
      updates, summands = self._secure_sums.split(outcome)
      # Results of a loop have a leading dimension.
      has_loops = self._clients_per_call > 1
      for index in range(len(client_ids)):
        total.add([s[index] for s in summands] if has_loops else summands)
      if self._addends is None:
        return self._accumulate(accumulator, updates)
      for leaf, place in zip(accumulator, self._addends, strict=True):
        addends = updates[place]
        for addend in addends if has_loops else [addends]:
          self._add_to_leaf(leaf, addend)
      return accumulator
    (client_id,) = client_ids
    leave_out(client_id, outcome, skip_fn)
    return accumulator

  def _add_to_leaf(self, leaf: np.ndarray, addend: np.ndarray) -> None:
    """Adds to a sum in place; on all threads if it is large.

    Args:
      leaf: A tensor of the sum.
      addend: A tensor of one update, of the same shape; cast to the type of the
        sum as TensorFlow would.
    """

    def add(part: slice) -> None:
      # Cast as TensorFlow would.
      np.add(
        total[part],
        summand[part],
        out=total[part],
        dtype=leaf.dtype,
        casting="unsafe",
      )

    total = leaf.reshape(-1)
    summand = np.asarray(addend).reshape(-1)
    if leaf.size < _LARGE_SUM:
      add(slice(None))
      return
    size = -(-leaf.size // self._num_threads)
    parts = [slice(k, k + size) for k in range(0, leaf.size, size)]
    # Iterating raises the error of any part.
    for _ in self._adders.map(add, parts):
      pass

  def _abandon(self, pending: Iterable[futures.Future]) -> None:
    """Cancels the clients whose results are no longer needed.

    Closing their sessions ends running computations. It returns once no client
    runs any more.

    Args:
      pending: Calls that have not been added up.
    """
    self._is_abandoned = True
    for future in pending:
      future.cancel()
    self._work.close()
    # A client that was just about to open its session is caught the next time.
    while futures.wait(pending, timeout=_ABANDON_SECONDS).not_done:
      self._work.close()
    self._is_abandoned = False

  def close(self) -> None:
    """Ends the threads and closes the sessions.

    Running clients are cancelled. The fold cannot be used afterwards.
    """
    self._is_abandoned = True
    self._threads.shutdown(wait=False, cancel_futures=True)
    self._adders.shutdown(wait=True)
    for sessions in (self._work, self._zero, self._accumulate):
      sessions.close()
    self._threads.shutdown(wait=True)
