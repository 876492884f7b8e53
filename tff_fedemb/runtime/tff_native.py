"""Runs the rounds of a learning process in TFF's own C++ runtime.

The reference for the other runtimes: TFF starts a `worker_binary` process and
sends it the computations, the state and the client ids. The worker belongs to
the runtime and ends with it.
"""

import atexit
from collections.abc import Sequence
import gc
import os
from typing import Any

import tensorflow_federated as tff

from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import worker_process

# The worker prepares and holds as many clients as it may run, and waits between
# their computations: so take more than there are cores, but not all clients of
# a round.
_CLIENTS_PER_CORE = 2
_THREADS_VARIABLE = "TF_NUM_INTRAOP_THREADS"


class TffRuntime(base.Runtime):
  """TFF's local C++ execution context, see the module's docstring.

  The worker starts with the first computation. It does not say which client
  failed: errors are TFF's, not `client_error.ClientError`. Secure sums are
  TFF's own simulation of them.
  """

  def __init__(self, config: runtime_lib.RuntimeConfig):
    """Creates a runtime without a process.

    Args:
      config: How many clients run at a time.
    """
    super().__init__()
    worker_process.let_workers_be_interrupted()
    # This context is the native one, with secure sums in the clear.
    self._context = tff.backends.test.create_sync_test_cpp_execution_context(
      max_concurrent_computation_calls=(
        config.concurrent_clients or _CLIENTS_PER_CORE * base.count_cores()
      )
    )
    self._process: tff.templates.IterativeProcess | None = None
    # TFF ends the worker when its context is collected. At the very end of the
    # program that fails, since the modules it needs are gone by then.
    atexit.register(self.close)

  def _call(self, computation: tff.Computation, *arguments: Any) -> Any:
    """Runs a computation in the worker.

    Args:
      computation: Any computation of TFF.
      *arguments: Its arguments.

    Raises:
      RuntimeError: If the runtime is closed, or in a fork.
    """
    self._check_not_in_fork()
    if self._context is None:
      raise RuntimeError("the runtime must be open, found it closed.")
    with tff.framework.get_context_stack().install(self._context):
      return computation(*arguments)

  def initialize(self, process: tff.templates.IterativeProcess) -> Any:
    """Keeps the process, and has the worker compute its initial state.

    The worker starts with one thread an operation, unless
    `TF_NUM_INTRAOP_THREADS` is set.

    Args:
      process: As in the base class.

    Returns:
      The initial state, as TFF structures it.

    Raises:
      errors.FieldError: If the process calls Python functions.
      RuntimeError: If the runtime is closed, or in a fork.
      TypeError: If `process.next` takes anything but client ids.
    """
    base.check_process(process)
    self._process = process
    # The first computation starts the worker, which then uses one thread for an
    # operation: clients that run side by side keep the cores busy, and with
    # more threads LeNet's rounds took an eighth longer.
    chosen = os.environ.get(_THREADS_VARIABLE)
    os.environ.setdefault(_THREADS_VARIABLE, "1")
    try:
      return self._read_only(self._call(process.initialize))
    finally:
      if chosen is None:
        del os.environ[_THREADS_VARIABLE]

  def next(self, state: Any, client_ids: Sequence[str]) -> tuple[Any, Any]:
    """Runs one round in the worker; `skipped_clients` stays empty.

    Client ids are sent as UTF-8. A client that fails ends the round with TFF's
    own error.

    Args:
      state: State of the process that was initialized last.
      client_ids: The clients of the round, possibly none.

    Returns:
      The new state, and the metrics.

    Raises:
      RuntimeError: If there is no process, or in a fork.
      TypeError: If the ids are no sequence of strings.
    """
    process = base.check_initialized(self._process)
    # TFF encodes text as ASCII.
    ids = [
      client_id.encode("utf-8", "surrogateescape")
      for client_id in base.check_client_ids(client_ids)
    ]
    output = self._call(process.next, state, ids)
    # The type of the Python container depends on the process.
    new_state, metrics = tff.structure.from_container(output)
    return self._read_only(new_state), metrics

  def _read_only(self, state: Any) -> Any:
    """Marks the arrays of a state as read-only, and returns it."""
    process = base.check_initialized(self._process)
    state_type = process.initialize.type_signature.result
    base.make_read_only(computation_graph.flatten(state, state_type))
    return state

  def structured_state(self, state: Any) -> Any:
    """Returns the state itself, which TFF has structured."""
    return state

  def load_state(self, structure: Any) -> Any:
    """Checks a structure against the process's state, and copies its arrays.

    Args:
      structure: Nested like the state.

    Returns:
      The state, with arrays of its own.

    Raises:
      RuntimeError: If there is no process.
      ValueError: If the structure is not that of the process's state.
    """
    process = base.check_initialized(self._process)
    state_type = process.initialize.type_signature.result
    leaves = computation_graph.flatten(structure, state_type)
    return self._read_only(
      computation_graph.unflatten(base.copy_arrays(leaves), state_type)
    )

  def close(self) -> None:
    """Drops the context, and with it the worker; does nothing in a fork."""
    # The worker belongs to the process that started it.
    if self._is_in_fork:
      return
    self._process = self._context = None
    gc.collect()
    atexit.unregister(self.close)
