"""TensorFlow graphs as plain functions of flat lists of NumPy arrays.

Sessions run clients, here and on other machines, without TFF, which a worker
need not import.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import itertools
import threading
from typing import Any

import tensorflow as tf

# Optimizing a function with fewer nodes costs a client more time than it saves.
# Training has more nodes.
_SMALL_GRAPH = 50


@dataclasses.dataclass(eq=False)
class RunnableGraph:
  """A finished graph that sessions run.

  It can be pickled: the other process imports the graph's definition.

  Attributes:
    graph: The graph. Several threads run sessions of it.
    arguments: Tensors to feed.
    results: Tensors to fetch.
    needs_own_session: Whether a run would find what another left in a session.
  """

  graph: tf.Graph
  arguments: list[tf.Tensor]
  results: list[tf.Tensor]
  needs_own_session: bool = False

  def __post_init__(self):
    self.graph.finalize()
    # TensorFlow refuses to fetch a tensor that is fed, and copies one that an
    # identity renames. So a result that is an argument is passed on.
    names = [tensor.name for tensor in self.arguments]
    places = dict(zip(names, range(len(names)), strict=True))
    self._passed_on: list[int | None] = []
    self._fetches: list[tf.Tensor] = []
    for tensor in self.results:
      place = places.get(origin_of(tensor).name)
      self._passed_on.append(place)
      if place is None:
        self._fetches.append(tensor)

  def __reduce__(self):
    # Graphs cannot be sent to another process, but their definitions can.
    return import_graph, (
      self.graph.as_graph_def(),
      [tensor.name for tensor in self.arguments],
      [tensor.name for tensor in self.results],
      self.needs_own_session,
    )

  def run(
    self, session: tf.compat.v1.Session, values: Sequence[Any]
  ) -> list[Any]:
    """Runs the graph.

    Args:
      session: One of the graph, for one thread at a time.
      values: Values of the arguments.

    Returns:
      The results: NumPy arrays and scalars.

    Raises:
      tf.errors.OpError: If an operation failed.
      ValueError: If there are more or fewer values than arguments.
    """
    feeds = dict(zip(self.arguments, values, strict=True))
    fetched: Iterator[Any] = iter(())
    try:
      if self._fetches:
        fetched = iter(session.run(self._fetches, feeds))
    except UnicodeDecodeError as error:
      # A message may quote data that an operation cannot read. If the bytes are
      # no text, Python cannot read the message either.
      message = error.object.decode(errors="backslashreplace")
      raise tf.errors.DataLossError(None, None, message) from None
    return [
      next(fetched) if index is None else values[index]
      for index in self._passed_on
    ]


def import_graph(
  graph_def: tf.compat.v1.GraphDef,
  arguments: Sequence[str],
  results: Sequence[str],
  needs_own_session: bool = False,
) -> RunnableGraph:
  """Makes a graph of its definition.

  Args:
    graph_def: The definition.
    arguments, results: Names of the tensors to feed and to fetch.
    needs_own_session: See `RunnableGraph`.

  Returns:
    The graph, finalized.
  """
  graph = tf.Graph()
  with graph.as_default():
    tf.graph_util.import_graph_def(graph_def, name="")
  return RunnableGraph(
    graph,
    [graph.get_tensor_by_name(name) for name in arguments],
    [graph.get_tensor_by_name(name) for name in results],
    needs_own_session,
  )


def origin_of(tensor: tf.Tensor) -> tf.Tensor:
  """Follows a tensor back through identities.

  Args:
    tensor: A tensor of a graph.

  Returns:
    The tensor that it is a copy of, possibly itself.
  """
  while tensor.op.type == "Identity" and not tensor.op.control_inputs:
    (tensor,) = tensor.op.inputs
  return tensor


# A session, and the graph that it was opened for.
_Opened = tuple[RunnableGraph, tf.compat.v1.Session]


class SessionPool:
  """Sessions of a computation for some threads, opened as they are needed.

  Each session has its own variables, so that calls at the same time never
  clash, and its own state of unseeded random operations, so that every call
  draws fresh numbers.
  """

  def __init__(
    self,
    graphs: Sequence[RunnableGraph],
    *,
    num_threads: int = 0,
    mixed_bfloat16: bool = False,
  ):
    """Remembers what to open.

    Args:
      graphs: The computation on one or more devices; sessions take turns.
      num_threads: Threads inside of an operation and between operations; 0
        leaves the choice to TensorFlow.
      mixed_bfloat16: Whether to multiply in bfloat16, see `precision`.
    """
    self._config = tf.compat.v1.ConfigProto(
      allow_soft_placement=True,
      intra_op_parallelism_threads=num_threads,
      inter_op_parallelism_threads=num_threads,
      use_per_session_threads=True,
    )
    # Several sessions share a GPU: none may take all of its memory.
    self._config.gpu_options.allow_growth = True
    # Constant folding would keep the zeros of a sum as long as the session
    # lives.
    rewrites = self._config.graph_options.rewrite_options
    rewrites.constant_folding = rewrites.OFF
    # TensorFlow optimizes the functions of a data set anew for every client.
    rewrites.min_graph_nodes = _SMALL_GRAPH
    if mixed_bfloat16:
      rewrites.auto_mixed_precision_onednn_bfloat16 = rewrites.ON
    self._graphs = graphs
    self._lock = threading.Lock()
    self._idle: list[_Opened] = []
    self._opened: list[_Opened] = []

  def __call__(self, *arguments: Sequence[Any]) -> list[Any]:
    """Runs the computation in a session that is free.

    Args:
      *arguments: Lists of leaves that follow one another in the parameter.

    Returns:
      The leaves of the result, as in `RunnableGraph.run`.

    Raises:
      tf.errors.OpError: If an operation failed, or `close` cancelled it.
      ValueError: If there are more or fewer leaves than arguments.
    """
    with self._lock:
      if self._idle:
        graph, session = self._idle.pop()
      else:
        graph = self._graphs[len(self._opened) % len(self._graphs)]
        session = tf.compat.v1.Session(graph=graph.graph, config=self._config)
        self._opened.append((graph, session))
    try:
      return graph.run(session, list(itertools.chain.from_iterable(arguments)))
    finally:
      with self._lock:
        is_open = (graph, session) in self._opened
        if is_open and graph.needs_own_session:
          self._opened.remove((graph, session))
          session.close()
        elif is_open:
          self._idle.append((graph, session))

  def close(self) -> None:
    """Closes all sessions and cancels what runs in them; later calls reopen."""
    with self._lock:
      opened, self._opened, self._idle = self._opened, [], []
    for _, session in opened:
      session.close()
