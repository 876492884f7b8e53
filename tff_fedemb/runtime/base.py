"""The contract between a training program and the executor of its rounds.

A learning process says what happens in a round; a runtime makes it happen. The
program needs two calls, `initialize(process)` and `next(state, client_ids)`,
and sends client ids, never data: the process has to be composed with the
computation that turns a client id into that client's dataset
(`tff.simulation.compose_dataset_computation_with_learning_process`).
"""

import abc
from collections.abc import Mapping, Sequence
import os
from typing import Any, TypeVar

import numpy as np
import tensorflow_federated as tff

from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import graph_resources

_Process = TypeVar("_Process")


class Runtime(abc.ABC):
  """Executes one learning process at a time.

  The state that `initialize`, `next` and `load_state` return is the runtime's
  own: hand it back to `next`, or convert it with `structured_state` for a
  checkpoint, an evaluation or a look at the weights. It is never changed in
  place.

  A runtime belongs to the process that created it: a fork of that process lacks
  the threads that a round waits for.

  Attributes:
    skipped_clients: The clients that the last round left out, in its order, and
      why.
    server_seconds: Seconds that the server took in the last round, after its
      clients: noise, and the step; 0 where that is not known.
  """

  skipped_clients: Sequence[client_error.ClientError] = ()
  server_seconds: float = 0.0

  def __init__(self) -> None:
    """Remembers the process that creates the runtime."""
    self._process_id = os.getpid()

  @property
  def _is_in_fork(self) -> bool:
    """Whether this process is a fork of the one that made the runtime."""
    return os.getpid() != self._process_id

  def _check_not_in_fork(self) -> None:
    """Raises RuntimeError in a fork, where a call would wait for ever."""
    if self._is_in_fork:
      raise RuntimeError(
        "a runtime must be used in the process that created it, found a fork of"
        " that process: create a runtime there, or start it by 'spawn'."
      )

  def require_paths(self, paths: Mapping[str, str]) -> None:  # noqa: B027
    """Names what clients read, for runtimes on other machines to check.

    Call it before `initialize`.

    Args:
      paths: Files and directories, by the name of their setting.
    """

  @abc.abstractmethod
  def initialize(self, process: tff.templates.IterativeProcess) -> Any:
    """Compiles and keeps the process, and computes its initial state.

    Args:
      process: A `tff.learning.templates.LearningProcess`, or another process
        with the same two computations, whose `next` has the type
        `(<S@SERVER, {string}@CLIENTS> -> <S@SERVER, M@SERVER>)`. It replaces
        the process of an earlier call; the same one need not be compiled again.

    Returns:
      The initial state, the runtime's own.

    Raises:
      TypeError: If `process.next` takes anything but client ids.
      errors.FieldError: If the process calls Python functions, or if this
        runtime cannot run it.
      RuntimeError: As `next`.
    """

  @abc.abstractmethod
  def next(self, state: Any, client_ids: Sequence[str]) -> tuple[Any, Any]:
    """Runs one round.

    Args:
      state: The state before it.
      client_ids: The clients of the round, possibly none at all. Their updates
        are added up in this order.

    Returns:
      The new state, and the metrics as TFF structures them.

    Raises:
      client_error.ClientError: If a client's computation failed, where the
        runtime knows which.
      RuntimeError: If the runtime has no process yet, is closed, or belongs to
        the process that this one was forked from.
      TypeError: If `client_ids` is no sequence of strings, for example one
        string or a generator, or the state is not one of the process.
    """

  @abc.abstractmethod
  def structured_state(self, state: Any) -> Any:
    """Returns a state as TFF structures it.

    For a learning process that is a
    `tff.learning.templates.LearningAlgorithmState` of NumPy arrays, which are
    the state's own: they cannot be written to.

    Args:
      state: The state.

    Returns:
      Nested containers of NumPy arrays.

    Raises:
      RuntimeError: If the runtime has no process.
      TypeError: If the state is not one of the process.
    """

  @abc.abstractmethod
  def load_state(self, structure: Any) -> Any:
    """Returns the state of a structure, say from a checkpoint.

    The arrays are copied, so you may change yours afterwards.

    Args:
      structure: Nested like what `structured_state` returns.

    Returns:
      A state for `next`.

    Raises:
      ValueError: If the structure is not that of the process's state.
      RuntimeError: If the runtime has no process.
    """

  @abc.abstractmethod
  def close(self) -> None:
    """Ends threads and processes; closing twice does no harm."""

  def __enter__(self):
    return self

  def __exit__(self, *exception: Any):
    self.close()


def count_cores() -> int:
  """Returns the number of cores that this process may use.

  The affinity mask of the process counts where the system has one, for example
  that of `taskset`; a limit on processor time does not.

  Returns:
    At least 1.
  """
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def check_initialized(process: _Process | None) -> _Process:
  """Returns a runtime's process.

  Args:
    process: The process, or `None` before `initialize` and after `close`.

  Returns:
    The process.

  Raises:
    RuntimeError: If there is none.
  """
  if process is None:
    raise RuntimeError(
      "initialize must be called first, found a runtime without a process."
    )
  return process


def check_client_ids(client_ids: Sequence[str]) -> list[str]:
  """Returns client ids as a list of `str`.

  Args:
    client_ids: A sequence or an array of strings.

  Returns:
    The ids as Python's strings, in the same order.

  Raises:
    TypeError: If it is anything else, for example one string or a generator.
  """
  # A generator could be read only once, and a set has no order.
  is_sequence = isinstance(client_ids, (Sequence, np.ndarray))
  if isinstance(client_ids, (str, bytes)):
    is_sequence = False
  if not is_sequence or not all(isinstance(x, str) for x in client_ids):
    raise TypeError(
      f"client_ids must be a sequence of strings, found {client_ids!r:.80}."
    )
  return list(map(str, client_ids))


def copy_arrays(leaves: Sequence[Any]) -> list[Any]:
  """Copies the arrays among the leaves of a structure.

  Args:
    leaves: Arrays, NumPy scalars and bytes.

  Returns:
    The leaves in the same order; what is no array is not copied.
  """
  return [x.copy() if isinstance(x, np.ndarray) else x for x in leaves]


def make_read_only(leaves: Sequence[Any]) -> None:
  """Keeps the leaves of a state from being changed in place.

  Args:
    leaves: Arrays, which are marked, and other leaves, which cannot change.
  """
  for leaf in leaves:
    if isinstance(leaf, np.ndarray):
      leaf.flags.writeable = False


def check_process(process: tff.templates.IterativeProcess) -> None:
  """Checks what the process takes, and that TensorFlow alone can run it.

  Args:
    process: A process that a runtime is about to compile.

  Raises:
    errors.FieldError: If it calls Python functions.
    TypeError: If `next` takes anything but a state and a string per client.
  """
  for computation in (process.initialize, process.next):
    graph_resources.check_without_python(computation)
  found = process.next.type_signature.parameter
  if isinstance(found, tff.StructType) and len(found) == 2:
    found = found[1]
    if found.is_assignable_from(tff.FederatedType(np.str_, tff.CLIENTS)):
      return
  raise TypeError(
    "process.next must take a state and client ids of type {string}@CLIENTS,"
    f" found {found}. Compose the process with the computation that makes a"
    " client's dataset from its id:"
    " tff.simulation.compose_dataset_computation_with_learning_process."
  )
