"""Several clients by one call of a session.

A call costs as much as a training step of a small model on a few images. So the
work of a client is wrapped in a loop over clients, which stacks their updates,
and the addition in a loop over these updates, one after the other. The numbers
are the same, bit by bit, as those of a call for each client.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session

# Largest number of updates, and of their bytes, that one call returns. A large
# model returns one at a time: its steps take far longer than a call.
_CLIENTS_AT_MOST = 16
_BYTES_AT_MOST = 8e6


def clients_per_call(
  work: graph_session.RunnableGraph, accumulate: graph_session.RunnableGraph
) -> int:
  """Returns the largest number of clients to run by a call.

  Args:
    work: Work of one client.
    accumulate: Adds its update to the others.

  Returns:
    A number in [1, 16]; 1 for a large model, for updates of unknown shape, and
    where a run needs a session of its own.
  """
  needs_own_session = work.needs_own_session or accumulate.needs_own_session
  # Without results, the loop would have nothing to return.
  if needs_own_session or not work.results:
    return 1
  num_bytes = 0
  for tensor in work.results:
    if not tensor.shape.is_fully_defined():
      return 1
    num_bytes += tensor.dtype.size * tensor.shape.num_elements()
  num_clients = _BYTES_AT_MOST // max(num_bytes, 1)
  return int(np.clip(num_clients, 1, _CLIENTS_AT_MOST))


def find_addends(accumulate: graph_session.RunnableGraph) -> list[int] | None:
  """Finds out whether a graph is plain addition, which needs no session.

  A session would allocate a new sum for every update, which for a large model
  takes as long as a training step. NumPy adds in place.

  Args:
    accumulate: Maps the leaves of a sum and of an update to those of the sum
      with the update.

  Returns:
    For each leaf of the sum, the index of the update's leaf that is added to
    it; None if some leaf is anything but a sum of two numeric tensors of the
    same, known shape.
  """
  num_leaves = len(accumulate.results)
  of_sum = accumulate.arguments[:num_leaves]
  names = [tensor.name for tensor in accumulate.arguments]
  addends = []
  for result, before in zip(accumulate.results, of_sum, strict=True):
    add = graph_session.origin_of(result).op
    if add.type not in ("Add", "AddV2"):
      return None
    total, addend = map(graph_session.origin_of, add.inputs)
    if addend.op.type == "Cast":
      addend = graph_session.origin_of(addend.op.inputs[0])
    is_plain = (
      total.name == before.name
      and addend.name in names[num_leaves:]
      and before.shape.is_fully_defined()
      and before.shape == addend.shape
      and before.dtype.is_numpy_compatible
      and tf.string not in (before.dtype, addend.dtype)
    )
    if not is_plain:
      return None
    addends.append(names.index(addend.name) - num_leaves)
  return addends


def _placeholders(
  tensors: Sequence[tf.Tensor], *, leading: Sequence[None] = ()
) -> list[tf.Tensor]:
  """Makes arguments like some tensors, with more leading dimensions.

  Args:
    tensors: Tensors of any graph.
    leading: Dimensions to put first, None for each of unknown size.

  Returns:
    Placeholders of the default graph. One for a tensor of unknown rank has an
    unknown shape.
  """
  placeholders = []
  for tensor in tensors:
    shape = None
    # If the rank is unknown, so is the shape with one more dimension.
    if tensor.shape.rank is not None:
      shape = [*leading, *tensor.shape]
    placeholders.append(tf.compat.v1.placeholder(tensor.dtype, shape))
  return placeholders


def loop_over_clients(
  work: graph_session.RunnableGraph, device: str
) -> graph_session.RunnableGraph:
  """Builds the graph that runs several clients, one after the other.

  Args:
    work: Work of one client. Its first argument is the client's; each result
      is of one known shape.
    device: Its device, or empty.

  Returns:
    A graph with a leading dimension, of the clients, in the first argument and
    in all results.
  """
  graph = tf.Graph()
  with graph.as_default(), tf.device(device or None):
    clients = _placeholders(work.arguments[:1], leading=[None])
    shared = _placeholders(work.arguments[1:])
    results = tf.map_fn(
      lambda client: computation_graph.add_to_graph(work, [client, *shared]),
      clients[0],
      fn_output_signature=[
        tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in work.results
      ],
      parallel_iterations=1,
    )
  return graph_session.RunnableGraph(graph, [*clients, *shared], results)


def loop_over_updates(
  accumulate: graph_session.RunnableGraph,
) -> graph_session.RunnableGraph:
  """Builds the graph that adds several updates to a sum, one after the other.

  Args:
    accumulate: Maps the leaves of a sum and of an update to those of the sum
      with the update.

  Returns:
    A graph with a leading dimension, of the updates, in the leaves of these.
  """
  num_leaves = len(accumulate.results)
  of_sum = accumulate.arguments[:num_leaves]
  graph = tf.Graph()
  with graph.as_default():
    before = _placeholders(of_sum)
    updates = _placeholders(accumulate.arguments[num_leaves:], leading=[None])
    num_updates = tf.constant(0)
    if updates:
      num_updates = tf.shape(updates[0])[0]

    def add(index: tf.Tensor, *sums: tf.Tensor):
      results = computation_graph.add_to_graph(
        accumulate, [*sums, *(update[index] for update in updates)]
      )
      return index + 1, *(
        tf.ensure_shape(result, tensor.shape)
        for result, tensor in zip(results, of_sum, strict=True)
      )

    _, *after = tf.while_loop(
      lambda index, *_: tf.less(index, num_updates),
      add,
      (tf.constant(0), *before),
      shape_invariants=(
        tf.TensorShape([]),
        *(tensor.shape for tensor in of_sum),
      ),
      parallel_iterations=1,
    )
  return graph_session.RunnableGraph(graph, [*before, *updates], after)
