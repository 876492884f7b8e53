"""TensorFlow graphs as plain functions of flat lists of NumPy arrays.

Sessions run clients, here and on other machines, without TFF, which a worker
need not import.
"""

from collections.abc import Sequence
import dataclasses
import threading
from typing import Any

import numpy as np
import tensorflow as tf

# TensorFlow aligns its own memory to so many bytes.
_ALIGNMENT = 64


@dataclasses.dataclass(eq=False)
class RunnableGraph:
  """A finished graph that sessions run.

  Attributes:
    graph: The graph. Several threads run sessions of it.
    arguments: Tensors to feed.
    results: Tensors to fetch.
  """

  graph: tf.Graph
  arguments: list[tf.Tensor]
  results: list[tf.Tensor]

  def __post_init__(self):
    self.graph.finalize()

  def __reduce__(self):
    # Graphs cannot be sent to another process, what they are made from can.
    return _import_graph, (
      self.graph.as_graph_def().SerializeToString(),
      [tensor.name for tensor in self.arguments],
      [tensor.name for tensor in self.results],
    )


def _import_graph(
  graph_def: bytes, arguments: Sequence[str], results: Sequence[str]
) -> RunnableGraph:
  graph = tf.Graph()
  with graph.as_default():
    tf.graph_util.import_graph_def(
      tf.compat.v1.GraphDef.FromString(graph_def), name=""
    )
  return RunnableGraph(
    graph,
    [graph.get_tensor_by_name(name) for name in arguments],
    [graph.get_tensor_by_name(name) for name in results],
  )


def align(array: Any) -> Any:
  """Returns an array where TensorFlow need not copy it whenever it is fed.

  Args:
    array: A NumPy array or scalar of any kind; it is copied if its memory does
      not start at a multiple of `_ALIGNMENT` bytes.
  """
  if (
    not isinstance(array, np.ndarray)
    or array.dtype.hasobject
    or not array.flags.c_contiguous
    or array.ctypes.data % _ALIGNMENT == 0
  ):
    return array
  memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
  start = -memory.ctypes.data % _ALIGNMENT
  copy = memory[start : start + array.nbytes].view(array.dtype)
  copy = copy.reshape(array.shape)
  np.copyto(copy, array)
  return copy


def _origin(tensor: tf.Tensor) -> tf.Tensor:
  """Follows a tensor back through operations that do nothing to it."""
  while tensor.op.type == "Identity" and not tensor.op.control_inputs:
    (tensor,) = tensor.op.inputs
  return tensor


class GraphSession:
  """One session of a graph, for one thread at a time.

  The state of unseeded random operations lives in the session, so that every
  call draws fresh numbers.
  """

  def __init__(
    self,
    graph: RunnableGraph,
    *,
    num_threads: int = 1,
    mixed_bfloat16: bool = False,
  ):
    """Opens the session.

    Args:
      graph: Graph to run.
      num_threads: Threads inside of an operation and between operations; 0
        leaves the choice to TensorFlow.
      mixed_bfloat16: Whether to multiply in bfloat16, see `precision`.
    """
    config = tf.compat.v1.ConfigProto(
      allow_soft_placement=True,
      intra_op_parallelism_threads=num_threads,
      inter_op_parallelism_threads=num_threads,
      use_per_session_threads=True,
    )
    # Several sessions share a GPU: none may take all of its memory.
    config.gpu_options.allow_growth = True
    # Folding them would hold the zeros of a sum as long as the session lives.
    rewrites = config.graph_options.rewrite_options
    rewrites.constant_folding = rewrites.OFF
    if mixed_bfloat16:
      rewrites.auto_mixed_precision_onednn_bfloat16 = rewrites.ON
    self._graph = graph
    self._session = tf.compat.v1.Session(graph=graph.graph, config=config)
    # TensorFlow refuses to fetch what it is fed, and copies what it was fed and
    # only names anew: such a result is passed on.
    position = {
      tensor.name: index for index, tensor in enumerate(graph.arguments)
    }
    self._passed_on = [
      position.get(_origin(tensor).name) for tensor in graph.results
    ]
    self._fetches = [
      tensor
      for tensor, index in zip(graph.results, self._passed_on, strict=True)
      if index is None
    ]

  def __call__(self, *arguments: Sequence[Any]) -> list[Any]:
    """Runs the computation.

    Args:
      *arguments: Lists of leaves that follow one another in the parameter.

    Returns:
      The leaves of the result: NumPy arrays and scalars.

    Raises:
      tf.errors.OpError: If an operation failed.
      ValueError: If there are more or fewer leaves than arguments.
    """
    values = [value for leaves in arguments for value in leaves]
    feeds = dict(zip(self._graph.arguments, values, strict=True))
    fetched = iter(self._run(self._fetches, feeds) if self._fetches else ())
    return [
      next(fetched) if index is None else _as_fetched(values[index])
      for index in self._passed_on
    ]

  def _run(self, fetches: Any, feeds: dict[tf.Tensor, Any]) -> Any:
    try:
      return self._session.run(fetches, feed_dict=feeds)
    except UnicodeDecodeError as error:
      # Messages may quote the data that an operation cannot read, and with
      # bytes that are no text Python cannot read the message either.
      message = error.object.decode(errors="backslashreplace")
      raise tf.errors.DataLossError(None, None, message) from None

  def close(self) -> None:
    """Closes the session and cancels what runs in it."""
    self._session.close()


def _as_fetched(value: Any) -> Any:
  """Returns what TensorFlow would have returned for a value it was fed."""
  if isinstance(value, (str, bytes)):
    # An array of it would have no zero bytes at the end.
    return tf.compat.as_bytes(value)
  array = np.asarray(value)
  return array if array.ndim else array[()]


class SessionPool:
  """Sessions of a computation for some threads, opened as they are needed.

  Each session has its own variables, so that calls at the same time never
  clash.
  """

  def __init__(self, graphs: Sequence[RunnableGraph], **options: Any):
    """Remembers what to open.

    Args:
      graphs: The computation on one or more devices; sessions take turns.
      **options: As in `GraphSession`.
    """
    self._graphs = graphs
    self._options = options
    self._lock = threading.Lock()
    self._idle: list[GraphSession] = []
    self._sessions: list[GraphSession] = []

  def __call__(self, *arguments: Sequence[Any]) -> list[Any]:
    """Runs the computation in a session that is free; see `GraphSession`."""
    with self._lock:
      if self._idle:
        session = self._idle.pop()
      else:
        graph = self._graphs[len(self._sessions) % len(self._graphs)]
        session = GraphSession(graph, **self._options)
        self._sessions.append(session)
    try:
      return session(*arguments)
    finally:
      with self._lock:
        if session in self._sessions:
          self._idle.append(session)

  def close(self) -> None:
    """Closes all sessions and cancels what runs in them; later calls reopen."""
    with self._lock:
      sessions, self._sessions, self._idle = self._sessions, [], []
    for session in sessions:
      session.close()
