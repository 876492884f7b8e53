"""A learning process as TensorFlow graphs, and the round that runs them.

TFF compiles `process.next` to seven TensorFlow computations (its map-reduce
form: prepare, work, zero, accumulate, merge, report, update). Here all but one
are imported once and run in sessions of this process's own TensorFlow, several
clients at a time, and where calls are what costs most, some clients by a call
(`client_loops`).

Deterministic where the process is: an update is added to the others in the
order of the client ids, whichever client finishes first, so that the rounding
of a sum does not depend on the number of threads. A client's own random numbers
have to come from stateless operations for that, as the stream of a stateful one
belongs to the thread that happens to run the client.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import itertools
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_loops
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import secure_sums

# Calls beyond the number of threads that may have begun or ended while an
# earlier one is not yet added up: some slack so that a slow client does not
# idle the other threads, few enough that memory stays near one model a thread.
_CALLS_AHEAD = 1
_ABANDON_SECONDS = 0.5

# What a client's data and training alone can cause. Not memory that ran out or
# a device that failed, which may be the doing of other clients: if one client
# could decide whether another is left out, the guarantee would not hold.
_ERRORS_OF_THE_CLIENT = (
  tf.errors.DataLossError,
  tf.errors.FailedPreconditionError,
  tf.errors.InvalidArgumentError,
  tf.errors.NotFoundError,
  tf.errors.OutOfRangeError,
)

# The sessions optimize the graphs once they know the devices. Having TFF do it
# as well folds whatever is constant, and a zero per parameter is: with 25
# million parameters that took 3 s and 900 MB for the life of the process.
_UNOPTIMIZED = tf.compat.v1.ConfigProto()
_UNOPTIMIZED.graph_options.rewrite_options.disable_meta_optimizer = True


class CompiledProcess:
  """The computations of one process, ready to run on lists of NumPy arrays."""

  def __init__(
    self,
    process: tff.templates.IterativeProcess,
    *,
    concurrent_clients: int,
    client_devices: Sequence[str] = ("",),
    compute_precision: str = precision.FLOAT32,
    secure_sum_threshold: float = 0.0,
    clients_per_call: int | None = None,
  ):
    """Compiles the process.

    Args:
      process: A process that takes client ids.
      concurrent_clients: Threads, one client each; at least 1.
      client_devices: What the sessions are bound to in turn, as in
        `computation_graph.ComputationGraph`.
      compute_precision: Of the clients, one of `precision.PRECISIONS`.
      secure_sum_threshold: Share of a round's clients that have to last for
        its secure sums to be revealed.
      clients_per_call: Clients that a thread trains by one call at most
        [`client_loops.clients_per_call`]. It changes no bit of a result.

    Raises:
      TypeError: If the process takes anything but client ids.
      ValueError: If a secure sum of it has no bounds that it can be kept to.
    """
    base.check_process(process)
    form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
      process.next, _UNOPTIMIZED
    )
    self._secure_sums = secure_sums.SecureSums(form)
    self._secure_sum_threshold = secure_sum_threshold
    self._initialize = computation_graph.ComputationGraph(
      "initialize",
      tff.backends.mapreduce.get_state_initialization_computation(
        process.initialize, _UNOPTIMIZED
      ),
    )
    work = [
      computation_graph.ComputationGraph("work", form.work, device=device)
      for device in client_devices[:concurrent_clients]
    ]
    accumulate = computation_graph.ComputationGraph(
      "accumulate", form.accumulate
    )
    self._clients_per_call = clients_per_call or client_loops.clients_per_call(
      work[0]
    )
    has_loops = self._clients_per_call > 1
    self._work = computation_graph.SessionPool(
      [*map(client_loops.loop_over_clients, work)] if has_loops else [*work],
      num_threads=1,
      mixed_bfloat16=compute_precision == precision.MIXED_BFLOAT16,
    )
    graphs: dict[str, computation_graph.RunnableGraph] = {
      name: computation_graph.ComputationGraph(name, computation)
      for name, computation in (
        ("prepare", form.prepare),
        ("zero", form.zero),
        ("report", form.report),
        ("update", form.update),
      )
    }
    graphs["accumulate"] = (
      client_loops.loop_over_updates(accumulate) if has_loops else accumulate
    )
    # Between the clients all cores are free for the server's computations.
    self._server = {
      name: computation_graph.SessionPool([graph], num_threads=0)
      for name, graph in graphs.items()
    }
    result_type = process.next.type_signature.result
    self.state_type = process.initialize.type_signature.result
    self.metrics_type = result_type[1]
    self._num_state_leaves = computation_graph.count_leaves(self.state_type)
    self._num_threads = concurrent_clients
    self._is_abandoned = False
    self._threads = futures.ThreadPoolExecutor(
      max_workers=concurrent_clients, thread_name_prefix="client"
    )

  def initialize(self) -> list[Any]:
    """Returns the leaves of the initial state."""
    # Its session would hold the variables of a whole model.
    with contextlib.closing(
      computation_graph.GraphSession(self._initialize, num_threads=0)
    ) as session:
      return [computation_graph.align(leaf) for leaf in session()]

  def next(
    self,
    state: Sequence[Any],
    client_ids: Sequence[str],
    *,
    skip_fn: Callable[[base.ClientError], None] | None = None,
  ) -> tuple[list[Any], list[Any]]:
    """Runs a round, and adds up updates in the order of the ids.

    Args:
      state: The leaves of the state.
      client_ids: Possibly none at all.
      skip_fn: Receives the errors of clients that are left out of the sum, in
        the order of the ids. None leaves no client out: the first error ends
        the call.

    Returns:
      The leaves of the new state and those of the metrics.

    Raises:
      base.ClientError: If a client's computation failed, and is not left out.
        Clients still at work are cancelled, also when Ctrl-C ends the call.
      secure_sums.TooFewSurvivorsError: If the process sums securely and too
        many clients were left out.
    """
    total = self._secure_sums.start_round()
    accumulator = self._fold(
      self._server["prepare"](state), client_ids, skip_fn, total
    )
    revealed = total.reveal(
      len(client_ids), threshold=self._secure_sum_threshold
    )
    aggregate = self._server["report"](accumulator) + revealed
    leaves = self._server["update"](state, aggregate)
    return leaves[: self._num_state_leaves], leaves[self._num_state_leaves :]

  def _fold(
    self,
    prepared: Sequence[Any],
    client_ids: Sequence[str],
    skip_fn: Callable[[base.ClientError], None] | None,
    total: secure_sums.RoundTotal,
  ) -> list[Any]:
    """Runs the clients and adds up their updates."""
    accumulator = self._server["zero"]()
    calls = self._split(client_ids)
    pending: collections.deque[futures.Future] = collections.deque()
    try:
      while True:
        room = self._num_threads + _CALLS_AHEAD - len(pending)
        for clients in itertools.islice(calls, room):
          pending.append(self._threads.submit(self._train, clients, prepared))
        if not pending:
          return accumulator
        # In the queue while it runs, for `_abandon` to find; in no name after
        # that, so that its updates die as soon as they are added.
        futures.wait([pending[0]])
        for clients, outcome in pending.popleft().result():
          accumulator = self._add(accumulator, clients, outcome, skip_fn, total)
    except BaseException:
      self._abandon(pending)
      raise

  def _split(self, client_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the clients of each call, fewer to the end of a round.

    No thread is to be idle for long while another ends the last call.
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
    skip_fn: Callable[[base.ClientError], None] | None,
    total: secure_sums.RoundTotal,
  ) -> list[Any]:
    """Adds the updates of clients, or tells of the one that failed."""
    if not isinstance(outcome, Exception):
      updates, summands = self._secure_sums.split(outcome)
      for index in range(len(client_ids)):
        # Results of a loop have a leading dimension.
        has_loops = self._clients_per_call > 1
        total.add([s[index] for s in summands] if has_loops else summands)
      return self._server["accumulate"](accumulator, updates)
    (client_id,) = client_ids
    if skip_fn is None or not isinstance(outcome, _ERRORS_OF_THE_CLIENT):
      raise base.ClientError(client_id, outcome) from outcome
    # Without the cause, whose traceback holds the model that was sent.
    skip_fn(base.ClientError(client_id, outcome))
    return accumulator

  def _abandon(self, pending: Iterable[futures.Future]) -> None:
    """Ends the clients that nobody waits for any more."""
    self._is_abandoned = True
    for future in pending:
      future.cancel()
    self._work.close()
    # A client that was just about to open its session is caught the next time.
    while futures.wait(pending, timeout=_ABANDON_SECONDS).not_done:
      self._work.close()
    self._is_abandoned = False

  def close(self) -> None:
    """Ends the threads and closes the sessions."""
    self._is_abandoned = True
    self._threads.shutdown(wait=False, cancel_futures=True)
    self._work.close()
    for sessions in self._server.values():
      sessions.close()
    self._threads.shutdown(wait=True)
