"""Runs the rounds of a learning process in this Python process.

TFF compiles `process.next` to seven TensorFlow computations (its map-reduce
form: prepare, work, zero, accumulate, merge, report, update). Here they are
imported once and run in sessions of this process's own TensorFlow, several
clients at a time, and where calls are what costs most, some clients by a call
(`client_loops`). There is no other process, and no copy of the model over a
socket.

Deterministic where the process is: an update is added to the others in the
order of the client ids, whichever client finishes first, so that the rounding
of a sum does not depend on the number of threads. A client's own random numbers
have to come from stateless operations for that, as the stream of a stateful one
belongs to the thread that happens to run the client.
"""

from collections.abc import Callable, Sequence
import contextlib
import os
import time
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import client_fold
from tff_fedemb.runtime import client_loops
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session
from tff_fedemb.runtime import precision
from tff_fedemb.runtime import process_settings
from tff_fedemb.runtime import secure_sums

# The sessions optimize the graphs once they know the devices. If TFF did it as
# well, it would fold constants, among them a zero for each parameter: with 25
# million parameters that took 3 s, and 900 MB for the life of the process.
_UNOPTIMIZED = tf.compat.v1.ConfigProto()
_UNOPTIMIZED.graph_options.rewrite_options.disable_meta_optimizer = True


class FlatState(tuple):
  """Server state between rounds: arrays in the order of its type.

  Arrays are marked read-only: sessions and structures share them.

  Attributes:
    type_spec: The type.
  """

  type_spec: tff.Type


class InProcessRuntime(base.Runtime):
  """The default runtime; see the module's docstring.

  TensorFlow's threads inside of an operation belong to the whole process, as
  many as its first device asked for, unless TF_OVERRIDE_GLOBAL_THREADPOOL is
  set; then each session has its own, one for a client and all cores for the
  server. Creating a runtime sets it, which takes effect if TensorFlow has not
  computed anything before.

  Clients run on the GPUs that TensorFlow sees, one at a time on each if not
  told otherwise. With several, each session is bound to one of them.

  If a client fails, the round either fails or skips the client. A skipped
  client is not added to the sum, which the aggregator still divides by the
  number of clients that it expects: to the mechanism it is a client that has
  been taken out (the zero-out relation), so sensitivity and guarantee are those
  of a round without failures. (An aggregator that counts the clients itself
  takes the mean of those that are left.) Metrics of the round are those of the
  clients that are left; `skipped_clients` lists the others. Only failures that
  the client itself causes are skipped: neither memory that ran out, which other
  clients may have used, nor errors in Python.

  Secure sums are simulated, see `secure_sums`: of the clients that are left, if
  they are as many as `secure_sum_threshold` asks for; else the round fails.
  """

  _initial: graph_session.RunnableGraph
  _client_graphs: client_fold.ClientGraphs
  _fold: client_fold.ClientFold
  _server: dict[str, graph_session.SessionPool]
  _state_type: tff.Type
  _metrics_type: tff.Type

  def __init__(self, config: runtime_lib.RuntimeConfig):
    """Creates a runtime without a process.

    Args:
      config: Each of `concurrent_clients` has a thread of its own, or as many
        as fit if there are more cores.

    Raises:
      errors.FieldError: If the processor lacks the precision.
    """
    super().__init__()
    # This asks only the driver. A list of logical devices would start
    # TensorFlow, which takes all of the GPUs' memory and starts threads.
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    precision.check_precision(config.compute_precision)
    os.environ.update(precision.environment(config.compute_precision))
    process_settings.prepare()
    self._config = config
    self.concurrent_clients = (
      config.concurrent_clients or num_gpus or base.count_cores()
    )
    # The rounding of a client may depend on the number of its threads.
    self._threads_per_client = (
      1 if num_gpus else max(1, base.count_cores() // self.concurrent_clients)
    )
    self._client_devices = [""]
    if num_gpus > 1:
      self._client_devices = [f"/device:GPU:{i}" for i in range(num_gpus)]
    # On a GPU, a loop would keep its updates in the GPU's memory.
    self._clients_per_call = 1 if num_gpus else None
    self.skipped_clients: list[client_error.ClientError] = []
    self._process: tff.templates.IterativeProcess | None = None

  @property
  def _skip_fn(self) -> Callable[[client_error.ClientError], None] | None:
    """Receives the errors of clients that are left out, if any may be."""
    if self._config.on_client_error == "skip":
      return self.skipped_clients.append
    return None

  def initialize(self, process: tff.templates.IterativeProcess) -> FlatState:
    """Compiles the process, unless it is the one of the last call.

    Args:
      process: As in the base class.

    Returns:
      The initial state, flat.

    Raises:
      errors.FieldError: If TFF cannot compile the process to one broadcast,
        clients' work and sums, it calls Python functions, or a secure sum is
        wider than 62 bits.
      RuntimeError: In a fork of the process that created the runtime.
      TypeError: If `process.next` takes anything but client ids.
    """
    self._check_not_in_fork()
    if self._process is not process:
      base.check_process(process)
      self._close_sessions()
      self._compile(process)
    self.skipped_clients = []
    # A session that stayed open would hold the variables of a whole model.
    with contextlib.closing(
      graph_session.SessionPool([self._initial])
    ) as session:
      return self._flat_state(session())

  def _compile(self, process: tff.templates.IterativeProcess) -> None:
    """Makes the graphs of a process, and what runs them.

    Raises:
      errors.FieldError: If the process is not one broadcast, clients' work and
        sums, or a secure sum of it is too wide.
    """
    form = _compile(process)
    self._client_graphs = self._build_client_graphs(form)
    self._fold = client_fold.ClientFold(
      self._client_graphs,
      num_threads=self.concurrent_clients,
      threads_per_client=self._threads_per_client,
    )
    # Between the clients all cores are free for the server's computations.
    self._server = {}
    for name in ("prepare", "merge", "report", "update"):
      graph = _build_graph(form, name)
      self._server[name] = graph_session.SessionPool([graph])
    self._initial = computation_graph.import_computation(
      "initialize",
      tff.backends.mapreduce.get_state_initialization_computation(
        process.initialize, _UNOPTIMIZED
      ),
    )
    self._state_type = process.initialize.type_signature.result
    self._metrics_type = process.next.type_signature.result[1]
    self._process = process

  def _build_client_graphs(
    self, form: tff.backends.mapreduce.MapReduceForm
  ) -> client_fold.ClientGraphs:
    """Makes the graphs that run for each client, or for some by a call.

    Returns:
      The graphs, with `work` once for each device that clients run on.
    """
    devices = self._client_devices[: self.concurrent_clients]
    work = [_build_graph(form, "work", device) for device in devices]
    accumulate = _build_graph(form, "accumulate")
    addends = client_loops.find_addends(accumulate)
    clients_per_call = self._clients_per_call or client_loops.clients_per_call(
      work[0], accumulate
    )
    if clients_per_call > 1:
      work = list(map(client_loops.loop_over_clients, work, devices))
      if addends is None:
        accumulate = client_loops.loop_over_updates(accumulate)
    compute_precision = self._config.compute_precision
    return client_fold.ClientGraphs(
      work=work,
      zero=_build_graph(form, "zero"),
      accumulate=accumulate,
      addends=addends,
      sums=_find_secure_sums(form),
      clients_per_call=clients_per_call,
      mixed_bfloat16=compute_precision == precision.MIXED_BFLOAT16,
    )

  def next(
    self, state: FlatState, client_ids: Sequence[str]
  ) -> tuple[FlatState, Any]:
    """Runs one round; updates are added up in the order of the ids.

    Sets `skipped_clients` and `server_seconds`. If the round fails, the state
    is as it was: it is never changed in place.

    Args:
      state: State of the process that was initialized last.
      client_ids: The clients of the round, possibly none.

    Returns:
      The new state, and the metrics as TFF structures them.

    Raises:
      client_error.ClientError: If a client failed, and is not left out.
      secure_sums.TooFewSurvivorsError: If the process sums securely, and too
        few clients have lasted.
      RuntimeError: If there is no process, or in a fork.
      TypeError: If the ids are no sequence of strings, or the state is another
        process's.
    """
    self._check_not_in_fork()
    self._check_state(state)
    client_ids = base.check_client_ids(client_ids)
    self.skipped_clients = []
    accumulator, total = self._fold_clients(
      self._server["prepare"](state), client_ids
    )
    start = time.perf_counter()
    revealed = total.reveal(
      len(client_ids), threshold=self._config.secure_sum_threshold
    )
    aggregate = self._server["report"](accumulator) + revealed
    results = self._server["update"](state, aggregate)
    self.server_seconds = time.perf_counter() - start
    metrics = results[len(state) :]
    return (
      self._flat_state(results[: len(state)]),
      computation_graph.unflatten(metrics, self._metrics_type),
    )

  def _fold_clients(
    self, prepared: Sequence[Any], client_ids: Sequence[str]
  ) -> tuple[list[Any], secure_sums.RoundTotal]:
    """Trains clients and adds up their updates; see `client_fold`.

    Args:
      prepared: Values that the server sends to each client.
      client_ids: Possibly none at all.

    Returns:
      The leaves of the sum, and the secure sums.
    """
    return self._fold(prepared, client_ids, self._skip_fn)

  def structured_state(self, state: FlatState) -> Any:
    """Puts the leaves together as TFF does, without copying the arrays.

    Args:
      state: State of the process that was initialized last.

    Returns:
      Nested containers of the state's own arrays, which are read-only.
    """
    self._check_state(state)
    return computation_graph.unflatten(state, self._state_type)

  def load_state(self, structure: Any) -> FlatState:
    """Finds leaves by their names where TFF has names; copies their arrays.

    Args:
      structure: Nested like what `structured_state` returns.

    Returns:
      A flat state.
    """
    base.check_initialized(self._process)
    leaves = computation_graph.flatten(structure, self._state_type)
    return self._flat_state(base.copy_arrays(leaves))

  def _flat_state(self, leaves: Sequence[Any]) -> FlatState:
    """Makes a state of its leaves, which are marked read-only."""
    state = FlatState(leaves)
    state.type_spec = self._state_type
    # Structures made from the state share its arrays.
    base.make_read_only(leaves)
    return state

  def _check_state(self, state: FlatState) -> None:
    """Raises TypeError of anything but a state of the compiled process."""
    base.check_initialized(self._process)
    if not isinstance(state, FlatState):
      raise TypeError(
        "state must come from initialize, next or load_state of this runtime,"
        f" found {type(state).__name__}."
      )
    if state.type_spec != self._state_type:
      raise TypeError(
        "state must be one of the process that initialize was called with last,"
        " found that of another, which has another type."
      )

  def close(self) -> None:
    """Ends the threads and sessions; does nothing in a fork."""
    # A fork may have neither its parent's threads nor its sessions.
    if not self._is_in_fork:
      self._close_sessions()

  def _close_sessions(self) -> None:
    """Forgets the process, and ends its threads and sessions."""
    if self._process is not None:
      self._process = None
      self._fold.close()
      for sessions in self._server.values():
        sessions.close()


def _compile(
  process: tff.templates.IterativeProcess,
) -> tff.backends.mapreduce.MapReduceForm:
  """Has TFF compile a process, or refuses it.

  Args:
    process: A process of client ids.

  Returns:
    TFF's map-reduce form: seven TensorFlow computations. TFF's own optimization
    of their graphs is off, since sessions optimize them too.

  Raises:
    errors.FieldError: If the process is not one broadcast, clients' work and
      sums.
  """
  # TFF's errors have no common type, and one of the types is not public.
  with errors.as_field_error(
    "runtime",
    "be tff for a process that TFF cannot compile to one broadcast, clients'"
    " work and sums",
    "one of which it says",
  ):
    return tff.backends.mapreduce.get_map_reduce_form_for_computation(
      process.next, _UNOPTIMIZED
    )


def _build_graph(
  form: tff.backends.mapreduce.MapReduceForm, name: str, device: str = ""
) -> graph_session.RunnableGraph:
  """Imports a part of a compiled process.

  Args:
    form: The compiled process.
    name: Attribute of the form, for example "work".
    device: As in `computation_graph.import_computation`.
  """
  return computation_graph.import_computation(
    name, getattr(form, name), device=device
  )


def _find_secure_sums(
  form: tff.backends.mapreduce.MapReduceForm,
) -> secure_sums.SecureSums:
  """Computes bounds and moduli, which TFF keeps as constant computations.

  Raises:
    errors.FieldError: If a sum has more than 62 bits.
  """
  simple_type, *secure_types = form.work.type_signature.result
  bitwidths = _compute("secure_sum_bitwidth", form.secure_sum_bitwidth)
  bounds = _compute("secure_sum_max_input", form.secure_sum_max_input)
  moduli = _compute(
    "secure_modular_sum_modulus", form.secure_modular_sum_modulus
  )
  if max(bitwidths, default=0) > secure_sums.MAX_BITWIDTH:
    raise errors.FieldError(
      "secure_sum_bitwidth",
      f"be at most {secure_sums.MAX_BITWIDTH}",
      max(bitwidths),
    )
  bounds = [2**bitwidth - 1 for bitwidth in bitwidths] + bounds
  specs = []
  for secure_type in secure_types:
    for leaf_type in computation_graph.leaf_types(secure_type):
      # Plain shapes: TFF's types cannot be sent to another process.
      specs.append((leaf_type.shape, leaf_type.dtype))
  return secure_sums.SecureSums(
    num_simple=len(computation_graph.leaf_types(simple_type)),
    specs=specs,
    max_inputs=[*bounds, *[None] * len(moduli)],
    moduli=[*[None] * len(bounds), *moduli],
  )


def _compute(name: str, computation: tff.Computation) -> list[int]:
  """Runs a computation without arguments, and returns its numbers."""
  graph = computation_graph.import_computation(name, computation)
  with contextlib.closing(graph_session.SessionPool([graph])) as session:
    return [int(number) for number in session()]
