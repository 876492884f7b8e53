"""Runs the rounds of a learning process in this Python process.

No other process, no copy of the model over a socket, and whatever devices
TensorFlow sees; `compiled_process` has what happens in a round.
"""

from collections.abc import Sequence
import dataclasses
import os
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime as runtime_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import compiled_process
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session
from tff_fedemb.runtime import precision


@dataclasses.dataclass(frozen=True, eq=False)
class FlatState:
  """Server state between rounds.

  Attributes:
    leaves: Arrays in the order of its type.
    type_spec: Its type.
  """

  leaves: tuple[Any, ...]
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

  def __init__(self, config: runtime_lib.RuntimeConfig):
    """Creates a runtime without a process.

    Args:
      config: Each of `concurrent_clients` has a thread of its own, and where
        there are fewer of them than cores, as many threads as fit.

    Raises:
      errors.FieldError: If the processor lacks the precision.
    """
    super().__init__()
    # Asks the driver alone. A list of logical devices would start TensorFlow,
    # with all of the GPUs' memory and with threads of the process's own.
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    precision.check_precision(config.compute_precision)
    os.environ.update(precision.environment(config.compute_precision))
    os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")
    self.concurrent_clients = (
      config.concurrent_clients or num_gpus or base.count_cores()
    )
    devices = [f"/device:GPU:{index}" for index in range(num_gpus)]
    self._options: dict[str, Any] = {
      "concurrent_clients": self.concurrent_clients,
      "threads_per_client": (
        1 if num_gpus else max(1, base.count_cores() // self.concurrent_clients)
      ),
      "client_devices": devices if num_gpus > 1 else [""],
      "compute_precision": config.compute_precision,
      "secure_sum_threshold": config.secure_sum_threshold,
      # A GPU has the updates of a loop in its own memory.
      "clients_per_call": 1 if num_gpus else None,
    }
    self._skips = config.on_client_error == "skip"
    self._skipped: list[client_error.ClientError] = []
    self._process: tff.templates.IterativeProcess | None = None
    self._compiled: compiled_process.CompiledProcess | None = None
    # Trains clients in place of this process.
    self._fold: compiled_process.FoldFn | None = None

  @property
  def skipped_clients(self) -> tuple[client_error.ClientError, ...]:
    return tuple(self._skipped)

  def initialize(self, process: tff.templates.IterativeProcess) -> FlatState:
    self._check_not_in_fork()
    if self._compiled is None or self._process is not process:
      compiled = compiled_process.CompiledProcess(process, **self._options)
      if self._compiled is not None:
        self._compiled.close()
      self._process, self._compiled = process, compiled
    self._skipped = []
    return FlatState(
      tuple(self._compiled.initialize()), self._compiled.state_type
    )

  def next(
    self, state: FlatState, client_ids: Sequence[str]
  ) -> tuple[FlatState, Any]:
    self._check_not_in_fork()
    compiled = base.check_initialized(self._compiled)
    client_ids = base.check_client_ids(client_ids)
    leaves = _leaves(state, compiled.state_type)
    self._skipped = []
    new_leaves, metrics = compiled.next(
      leaves,
      client_ids,
      skip_fn=self._skipped.append if self._skips else None,
      fold_fn=self._fold,
    )
    return (
      FlatState(tuple(new_leaves), compiled.state_type),
      computation_graph.unflatten(metrics, compiled.metrics_type),
    )

  def structured_state(self, state: FlatState) -> Any:
    state_type = base.check_initialized(self._compiled).state_type
    return computation_graph.unflatten(_leaves(state, state_type), state_type)

  def load_state(self, structure: Any) -> FlatState:
    state_type = base.check_initialized(self._compiled).state_type
    leaves = computation_graph.flatten(structure, state_type, name="structure")
    return FlatState(
      tuple(graph_session.align(leaf) for leaf in leaves), state_type
    )

  def close(self) -> None:
    # A fork may have neither its parent's threads nor its sessions.
    if self._compiled is not None and not self._is_in_fork:
      self._compiled.close()
      self._compiled = None


def _leaves(state: FlatState, state_type: tff.Type) -> tuple[Any, ...]:
  if not isinstance(state, FlatState):
    raise TypeError(
      "state must come from initialize, next or load_state of this runtime,"
      f" found {type(state).__name__}."
    )
  if state.type_spec != state_type:
    raise TypeError(
      "state must be one of the process that initialize was called with last,"
      " found that of another, which has another type."
    )
  return state.leaves
