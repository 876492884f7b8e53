"""A learning process as TensorFlow graphs, and the round that runs them.

TFF compiles `process.next` to seven TensorFlow computations (its map-reduce
form: prepare, work, zero, accumulate, merge, report, update). Here they are
imported once and run in sessions of this process's own TensorFlow, several
clients at a time, and where calls are what costs most, some clients by a call
(`client_loops`).

Deterministic where the process is: an update is added to the others in the
order of the client ids, whichever client finishes first, so that the rounding
of a sum does not depend on the number of threads. A client's own random numbers
have to come from stateless operations for that, as the stream of a stateful one
belongs to the thread that happens to run the client.
"""

from collections.abc import Callable, Sequence
import contextlib
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import client_fold
from tff_fedemb.runtime import client_loops
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import secure_sums

SkipFn = Callable[[client_error.ClientError], None]
FoldFn = Callable[
  [Sequence[Any], Sequence[str], SkipFn | None],
  tuple[list[Any], secure_sums.RoundTotal],
]

# The sessions optimize the graphs once they know the devices. Having TFF do it
# as well folds whatever is constant, and a zero per parameter is: with 25
# million parameters that took 3 s and 900 MB for the life of the process.
_UNOPTIMIZED = tf.compat.v1.ConfigProto()
_UNOPTIMIZED.graph_options.rewrite_options.disable_meta_optimizer = True


# TFF's own simulation sums in 64 bits with a sign, and leaves one for the sum.
_MAX_BITWIDTH = 62


def _compile(
  process: tff.templates.IterativeProcess,
) -> tff.backends.mapreduce.MapReduceForm:
  """Has TFF compile a process, or refuses it."""
  try:
    return tff.backends.mapreduce.get_map_reduce_form_for_computation(
      process.next, _UNOPTIMIZED
    )
  # TFF's errors have no type in common, and one of its types is not public.
  except Exception as error:
    raise errors.FieldError(
      "runtime",
      "be tff for a process that TFF cannot compile to one broadcast, clients'"
      " work and sums",
      f"one of which it says: {errors.first_line(error)}",
    ) from error


def _find_secure_sums(
  form: tff.backends.mapreduce.MapReduceForm,
) -> secure_sums.SecureSums:
  """Computes the bounds and moduli, which TFF has depend on nothing."""
  simple_type, *secure_types = form.work.type_signature.result
  bitwidths, bounds, moduli = (
    _compute(name, computation)
    for name, computation in (
      ("secure_sum_bitwidth", form.secure_sum_bitwidth),
      ("secure_sum_max_input", form.secure_sum_max_input),
      ("secure_modular_sum_modulus", form.secure_modular_sum_modulus),
    )
  )
  if max(bitwidths, default=0) > _MAX_BITWIDTH:
    raise ValueError(
      f"the bit width of a secure sum must be at most {_MAX_BITWIDTH}, found"
      f" {max(bitwidths)}."
    )
  bounds = [2**bitwidth - 1 for bitwidth in bitwidths] + bounds
  return secure_sums.SecureSums(
    num_simple=len(computation_graph.leaf_types(simple_type)),
    # No types of TFF's, which cannot be sent to another process.
    specs=[
      (leaf_type.shape, leaf_type.dtype)
      for secure_type in secure_types
      for leaf_type in computation_graph.leaf_types(secure_type)
    ],
    max_inputs=[*bounds, *[None] * len(moduli)],
    moduli=[*[None] * len(bounds), *moduli],
  )


def _compute(name: str, computation: tff.Computation) -> list[int]:
  """The numbers that a computation without arguments returns."""
  with contextlib.closing(
    graph_session.GraphSession(
      computation_graph.ComputationGraph(name, computation)
    )
  ) as session:
    return [int(number) for number in session()]


class CompiledProcess:
  """The computations of one process, ready to run on lists of NumPy arrays."""

  def __init__(
    self,
    process: tff.templates.IterativeProcess,
    *,
    concurrent_clients: int,
    threads_per_client: int = 1,
    client_devices: Sequence[str] = ("",),
    compute_precision: str = precision.FLOAT32,
    secure_sum_threshold: float = 0.0,
    clients_per_call: int | None = None,
  ):
    """Compiles the process.

    Args:
      process: A process that takes client ids.
      concurrent_clients: Threads, one client each; at least 1.
      threads_per_client: Threads inside of a client's computations. How it
        rounds may depend on their number.
      client_devices: Devices that the sessions take in turn, as in
        `computation_graph.ComputationGraph`.
      compute_precision: Precision of the clients, one of
        `precision.PRECISIONS`.
      secure_sum_threshold: Share of a round's clients that have to last for
        its secure sums to be revealed.
      clients_per_call: Clients that a thread trains by one call at most
        [`client_loops.clients_per_call`]. It changes no bit of a result.

    Raises:
      errors.FieldError: If the process is not one broadcast, clients' work and
        sums, or clients or rounds would share a resource of it.
      TypeError: If the process takes anything but client ids.
      ValueError: If a secure sum of it has no bounds that it can be kept to.
    """
    base.check_process(process)
    form = _compile(process)
    self._secure_sum_threshold = secure_sum_threshold
    self._initialize = computation_graph.ComputationGraph(
      "initialize",
      tff.backends.mapreduce.get_state_initialization_computation(
        process.initialize, _UNOPTIMIZED
      ),
    )

    def build_graph(name: str, device: str = "") -> Any:
      return computation_graph.ComputationGraph(
        name, getattr(form, name), device=device
      )

    work = [
      build_graph("work", device)
      for device in client_devices[:concurrent_clients]
    ]
    accumulate = build_graph("accumulate")
    if clients_per_call is None:
      clients_per_call = client_loops.clients_per_call(work[0])
    if clients_per_call > 1:
      work = [*map(client_loops.loop_over_clients, work)]
      accumulate = client_loops.loop_over_updates(accumulate)
    self.client_graphs = client_fold.ClientGraphs(
      work=work,
      zero=build_graph("zero"),
      accumulate=accumulate,
      sums=_find_secure_sums(form),
      clients_per_call=clients_per_call,
      mixed_bfloat16=compute_precision == precision.MIXED_BFLOAT16,
    )
    # Trains clients in this process.
    self.fold = client_fold.ClientFold(
      self.client_graphs,
      num_threads=concurrent_clients,
      threads_per_client=threads_per_client,
    )
    # Between the clients all cores are free for the server's computations.
    self._server = {
      name: graph_session.SessionPool([build_graph(name)], num_threads=0)
      for name in ("prepare", "merge", "report", "update")
    }
    result_type = process.next.type_signature.result
    self.state_type = process.initialize.type_signature.result
    self.metrics_type = result_type[1]
    self._num_state_leaves = len(computation_graph.leaf_types(self.state_type))

  def initialize(self) -> list[Any]:
    """Returns the leaves of the initial state."""
    # Its session would hold the variables of a whole model.
    with contextlib.closing(
      graph_session.GraphSession(self._initialize, num_threads=0)
    ) as session:
      return [graph_session.align(leaf) for leaf in session()]

  def next(
    self,
    state: Sequence[Any],
    client_ids: Sequence[str],
    *,
    skip_fn: SkipFn | None = None,
    fold_fn: FoldFn | None = None,
  ) -> tuple[list[Any], list[Any]]:
    """Runs a round, and adds up updates in the order of the ids.

    Args:
      state: The leaves of the state.
      client_ids: Possibly none at all.
      skip_fn: Receives the errors of clients that are left out of the sum, in
        the order of the ids. None leaves no client out: the first error ends
        the call.
      fold_fn: Trains the clients, as `client_fold.ClientFold` does [one of this
        process].

    Returns:
      The leaves of the new state and those of the metrics.

    Raises:
      client_error.ClientError: If a client's computation failed, and is not
        left out. Clients still at work are cancelled, also when Ctrl-C ends
        the call.
      secure_sums.TooFewSurvivorsError: If the process sums securely and too
        many clients were left out.
    """
    prepared = self._server["prepare"](state)
    accumulator, total = (fold_fn or self.fold)(prepared, client_ids, skip_fn)
    del prepared
    revealed = total.reveal(
      len(client_ids), threshold=self._secure_sum_threshold
    )
    aggregate = self._server["report"](accumulator) + revealed
    leaves = self._server["update"](state, aggregate)
    return leaves[: self._num_state_leaves], leaves[self._num_state_leaves :]

  def merge(self, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Adds two sums of clients.

    Args:
      first: Leaves, as of `client_fold.ClientFold`.
      second: Likewise.
    """
    return self._server["merge"](first, second)

  def close(self) -> None:
    """Ends the threads and closes the sessions."""
    self.fold.close()
    for sessions in self._server.values():
      sessions.close()
