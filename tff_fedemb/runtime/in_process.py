"""Runs the rounds of a learning process in this Python process.

TFF compiles `process.next` to seven TensorFlow computations (its map-reduce
form: prepare, work, zero, accumulate, merge, report, update). Here all but one
are imported once and run in sessions of this process's own TensorFlow, several
clients at a time: no other process, no copy of the model over a socket, and
whatever devices TensorFlow sees.

Deterministic where the process is: an update is added to the others in the
order of the client ids, whichever client finishes first, so that the rounding
of a sum does not depend on the number of threads. A client's own random numbers
have to come from stateless operations for that, as the stream of a stateful one
belongs to the thread that happens to run the client.
"""

import collections
from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import itertools
import os
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import secure_sums

# Clients beyond the number of threads that may have begun or ended while an
# earlier one is not yet added up: some slack so that a slow client does not
# idle the other threads, few enough that memory stays near one model a thread.
_CLIENTS_AHEAD = 1
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


@dataclasses.dataclass(frozen=True, eq=False)
class FlatState:
  """Server state between rounds: arrays in the order of its type."""

  leaves: tuple[Any, ...]


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
    self._work = computation_graph.SessionPool(
      [
        computation_graph.ComputationGraph("work", form.work, device=device)
        for device in client_devices[:concurrent_clients]
      ],
      num_threads=1,
      mixed_bfloat16=compute_precision == precision.MIXED_BFLOAT16,
    )
    # Between the clients all cores are free for the server's computations.
    self._server = {
      name: computation_graph.SessionPool(
        [computation_graph.ComputationGraph(name, computation)],
        num_threads=0,
      )
      for name, computation in (
        ("prepare", form.prepare),
        ("zero", form.zero),
        ("accumulate", form.accumulate),
        ("report", form.report),
        ("update", form.update),
      )
    }
    result_type = process.next.type_signature.result
    self.state_type = process.initialize.type_signature.result
    self.metrics_type = result_type[1]
    self._num_state_leaves = computation_graph.count_leaves(self.state_type)
    self._max_pending = concurrent_clients + _CLIENTS_AHEAD
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
    remaining = iter(client_ids)
    pending: collections.deque[tuple[str, futures.Future]] = collections.deque()
    try:
      while True:
        room = self._max_pending - len(pending)
        for client_id in itertools.islice(remaining, room):
          future = self._threads.submit(self._run_client, client_id, prepared)
          pending.append((client_id, future))
        if not pending:
          return accumulator
        # In the queue while it runs, for `_abandon` to find; in no name after
        # that, so that its update dies as soon as it is added.
        futures.wait([pending[0][1]])
        accumulator = self._add(accumulator, *pending.popleft(), skip_fn, total)
    except BaseException:
      self._abandon([future for _, future in pending])
      raise

  def _run_client(self, client_id: str, prepared: Sequence[Any]) -> list[Any]:
    update = self._work([client_id], prepared)
    self._secure_sums.check(update)
    return update

  def _add(
    self,
    accumulator: list[Any],
    client_id: str,
    future: futures.Future,
    skip_fn: Callable[[base.ClientError], None] | None,
    total: secure_sums.RoundTotal,
  ) -> list[Any]:
    """Adds the update of a client that has ended, if it has one."""
    error = future.exception()
    if error is None:
      update, summands = self._secure_sums.split(future.result())
      total.add(summands)
      return self._server["accumulate"](accumulator, update)
    if skip_fn is None or not isinstance(error, _ERRORS_OF_THE_CLIENT):
      raise base.ClientError(client_id, error) from error
    # Without the cause, whose traceback holds the model that was sent.
    skip_fn(base.ClientError(client_id, error))
    return accumulator

  def _abandon(self, pending: Sequence[futures.Future]) -> None:
    """Ends the clients that nobody waits for any more."""
    for future in pending:
      future.cancel()
    self._work.close()
    # A client that was just about to open its session is caught the next time.
    while futures.wait(pending, timeout=_ABANDON_SECONDS).not_done:
      self._work.close()

  def close(self) -> None:
    """Ends the threads and closes the sessions."""
    self._threads.shutdown(wait=False, cancel_futures=True)
    self._work.close()
    for sessions in self._server.values():
      sessions.close()
    self._threads.shutdown(wait=True)


class InProcessRuntime(base.Runtime):
  """The default runtime; see the module's docstring.

  TensorFlow's threads inside of an operation belong to the whole process, as
  many as its first device asked for, unless TF_OVERRIDE_GLOBAL_THREADPOOL is
  set; then each session has its own, one for a client and all cores for the
  server. Creating a runtime sets it, which takes effect if TensorFlow has not
  computed anything before.

  Clients run on the GPUs that TensorFlow sees, one at a time on each if not
  told otherwise. With several, each session is bound to one of them.

  A round with a client that fails either fails with it or skips it. What is
  skipped is not added to the sum, which the aggregator goes on to divide by the
  number of clients that it expects: to the mechanism it is a client that has
  been taken out (the zero-out relation), so that sensitivity and guarantee are
  those of a round in which nobody failed. (An aggregator that counts the
  clients itself takes the mean of those that are left.) Metrics of the round
  are those of the clients that are left; `skipped_clients` tells of the others.
  Skipped are failures that the client itself brings about: neither memory that
  ran out, which may be another client's doing, nor errors in Python.

  Secure sums are simulated, see `secure_sums`: of the clients that are left, if
  they are as many as `secure_sum_threshold` asks for; else the round fails.
  """

  def __init__(
    self,
    config: runtime_lib.RuntimeConfig = runtime_lib.RuntimeConfig(),  # noqa: B008
  ):
    """Creates a runtime without a process.

    Args:
      config: Each of `concurrent_clients` has a thread of its own.

    Raises:
      errors.FieldError: If the processor lacks the precision.
    """
    # Asks the driver alone. A list of logical devices would start TensorFlow,
    # with all of the GPUs' memory and with threads of the process's own.
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    precision.check_precision(config.compute_precision)
    precision.set_environment(config.compute_precision)
    os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")
    self.concurrent_clients = (
      config.concurrent_clients or num_gpus or base.count_cores()
    )
    devices = [f"/device:GPU:{index}" for index in range(num_gpus)]
    self._options: dict[str, Any] = {
      "concurrent_clients": self.concurrent_clients,
      "client_devices": devices if num_gpus > 1 else [""],
      "compute_precision": config.compute_precision,
      "secure_sum_threshold": config.secure_sum_threshold,
    }
    self._skips = config.on_client_error == "skip"
    self._skipped: list[base.ClientError] = []
    self._compiled: CompiledProcess | None = None

  @property
  def skipped_clients(self) -> tuple[base.ClientError, ...]:
    return tuple(self._skipped)

  def initialize(self, process: tff.templates.IterativeProcess) -> FlatState:
    compiled = CompiledProcess(process, **self._options)
    self.close()
    self._compiled = compiled
    self._skipped = []
    return FlatState(tuple(compiled.initialize()))

  def next(
    self, state: FlatState, client_ids: Sequence[str]
  ) -> tuple[FlatState, Any]:
    compiled = base.check_initialized(self._compiled)
    client_ids = base.check_client_ids(client_ids)
    leaves = _leaves(state)
    self._skipped = []
    new_leaves, metrics = compiled.next(
      leaves,
      client_ids,
      skip_fn=self._skipped.append if self._skips else None,
    )
    return (
      FlatState(tuple(new_leaves)),
      computation_graph.unflatten(metrics, compiled.metrics_type),
    )

  def structured_state(self, state: FlatState) -> Any:
    return computation_graph.unflatten(
      _leaves(state), base.check_initialized(self._compiled).state_type
    )

  def load_state(self, structure: Any) -> FlatState:
    state_type = base.check_initialized(self._compiled).state_type
    leaves = computation_graph.flatten(structure, state_type, name="structure")
    return FlatState(tuple(computation_graph.align(leaf) for leaf in leaves))

  def close(self) -> None:
    if self._compiled is not None:
      self._compiled.close()
      self._compiled = None


def _leaves(state: FlatState) -> tuple[Any, ...]:
  if not isinstance(state, FlatState):
    raise TypeError(
      "state must come from initialize, next or load_state of this runtime,"
      f" found {type(state).__name__}."
    )
  return state.leaves
