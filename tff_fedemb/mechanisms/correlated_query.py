"""Sums with Gaussian noise that depends on earlier rounds.

The noise follows a recurrence (see `mechanism.CorrelatedConfig`) or is that of
a tree (see `tree`).
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import dp_accounting
import tensorflow as tf

from tff_fedemb.mechanisms import exact_sums
from tff_fedemb.mechanisms import secret_noise


class SeededSumQuery(secret_noise.ExactSumQuery):
  """Clips each record, sums, and adds noise that depends on earlier rounds.

  The parent class clips; the subclasses have the state and add the noise.

  Privacy:
    Unit: one record, here a virtual client's update.
    Neighbouring relation: zero-out of one record.
    Sensitivity: the clip norm in a round.
    DpEvent: none for a single result, as the noise of the rounds is not
      independent; see `accounting.composition.composed_events`.
  """

  def __init__(
    self,
    specs: Any,
    *,
    clip_norm: float,
    stddev: float,
    noise_seed: int | None = None,
  ):
    """Creates the query.

    Args:
      specs: Shapes of a record, nested.
      clip_norm: L2 norm to which a record is clipped.
      stddev: Standard deviation of each number of Z; 0 for no noise.
      noise_seed: For tests: see `secret_noise.SecretNoiseGenerator`.
    """
    super().__init__(clip_norm, stddev)
    self._specs = specs
    self._clip_norm = clip_norm
    self._generator = secret_noise.SecretNoiseGenerator(stddev, seed=noise_seed)

  def derive_sample_params(self, global_state: Any):
    """Returns the clip norm, float32, which the clients of a round get.

    Args:
      global_state: Not used; a subclass may keep its clip norm in it.
    """
    return tf.constant(self._clip_norm, tf.float32)

  def get_noised_result(self, sample_state: Any, global_state: Any):
    """Adds the noise of the round to the sum of its records.

    Args:
      sample_state: The sum of the clipped records, in steps (`exact_sums`).
      global_state: The state before the round.

    Returns:
      The sum with the noise, float32 and nested as a record; the state after
      the round, which is the same state without noise; and
      `UnsupportedDpEvent`, as a single round has no event of its own.
    """
    event = dp_accounting.UnsupportedDpEvent()
    clip_norm = self.derive_sample_params(global_state)
    if not self._stddev:
      total = exact_sums.to_numbers(sample_state, clip_norm)
      return total, global_state, event
    noised, state = self._add_noise(sample_state, global_state, clip_norm)
    return noised, state, event

  @abc.abstractmethod
  def _add_noise(
    self, sample_state: Any, global_state: Any, clip_norm: tf.Tensor
  ) -> tuple[Any, Any]:
    """Returns the noised sum and the state after the round.

    Args:
      sample_state: As in `get_noised_result`.
      global_state: As there.
      clip_norm: Clip norm of the round, scalar float32.
    """


# Maps buffers `[num_buffers, n]`, zeros in the first round, and independent
# noise `[n]` to the noise of a round and the buffers of the next; all float64.
NextNoise = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class CorrelatedSumQuery(SeededSumQuery):
  """Clips each record, sums, and adds the round's row of C^-1 Z.

  The state has as many copies of a record as the recurrence has buffers,
  whatever the number of rounds.

  Privacy:
    As the base class.
  """

  class GlobalState(NamedTuple):
    """State between rounds.

    Attributes:
      buffers: One tensor `[num_buffers, ...]` per tensor of a record.
      generator_state: Seed and counter of the fresh noise; secret.
    """

    buffers: Any
    generator_state: Any

  def __init__(
    self, next_noise: NextNoise, specs: Any, *, num_buffers: int, **options: Any
  ):
    """Creates the query.

    Args:
      next_noise: The recurrence that the noise of the rounds follows.
      specs: As in the base class.
      num_buffers: Number of the recurrence's buffers of the model's size.
      **options: Other arguments of the base class.
    """
    super().__init__(specs, **options)
    self._next_noise = next_noise
    self._num_buffers = num_buffers

  def initial_global_state(self):
    """Returns buffers of zeros and the seed of a new run."""
    buffers = tf.nest.map_structure(
      lambda spec: tf.zeros([self._num_buffers, *spec.shape]), self._specs
    )
    return self.GlobalState(buffers, self._generator.initialize())

  def _add_noise(
    self, sample_state: Any, global_state: Any, clip_norm: tf.Tensor
  ) -> tuple[Any, Any]:
    """Adds the next row of the recurrence, as the base class says."""
    noised, buffers, generator_state = self._generator.add_noise(
      sample_state,
      global_state.generator_state,
      clip_norm,
      remembered=global_state.buffers,
      correlate=lambda fresh, rows: self._next_noise(rows, fresh),
      kept_rows=(self._num_buffers,),
    )
    return noised, self.GlobalState(buffers, generator_state)


def complete_node(
  fresh: tf.Tensor, halves: tf.Tensor, leaves: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Makes the noise of a round, and of the largest node that it completes.

  A round completes nodes of heights 0 to k. The efficient estimate of a node of
  height h weighs the node itself by c_h = 2^h / (2^(h + 1) - 1), and the
  estimates of its two halves by 1 - c_h. Only the largest of this
  round's nodes is ever released or used again. The new part of it,

    c_k z_k + (1 - c_k) (c_(k-1) z_(k-1) + (1 - c_(k-1)) (...)),

  is one Gaussian number of variance (q + 1) / (3 (q - 1)), q = 2^(k + 1). The
  left halves were completed before. The half of height h has the weight
  (2^(h + 1) - 1) / (q - 1): the share of its nodes in those of the whole.

  Args:
    fresh: `[n]`, independent noise of the round, float64.
    halves: `[k, n]`, noise of the estimates of the left halves, of heights 0 to
      k - 1.
    leaves: Rounds of the tree so far, this one included, int32.

  Returns:
    The noise to add to the round's sum, which is the change of the prefix sum's
    noise, and the noise of the completed node's estimate, both `[n]`.
  """
  # q of the docstring.
  twice = tf.cast(2 * tf.bitwise.bitwise_and(leaves, -leaves), fresh.dtype)
  heights = tf.cast(tf.range(tf.shape(halves)[0]), fresh.dtype)
  sizes = tf.pow(tf.cast(2.0, fresh.dtype), heights + 1.0) - 1.0
  weights = sizes / (twice - 1.0)
  node = fresh * tf.sqrt((twice + 1.0) / (3.0 * (twice - 1.0)))
  node += tf.linalg.matvec(halves, weights, transpose_a=True)
  return node - tf.reduce_sum(halves, 0), node


class TreeSumQuery(SeededSumQuery):
  """Clips each record, sums, and adds the round's noise of a single tree.

  The noise of all rounds has the same joint law as that of tensorflow-privacy's
  `TreeResidualSumQuery`, which draws an array of the model's size for each
  node. `tfp.RestartQuery` may restart the tree, and
  `tfp.QAdaClipTreeResSumQuery` may restart it with another clip norm. These
  classes call some of the methods, and so decide their names.

  Privacy:
    As the base class.
  """

  class GlobalState(NamedTuple):
    """State between rounds.

    Attributes:
      nodes: One tensor `[n, ...]` per tensor of a record: noise of the
        estimates of the nodes that make up the prefix sum, the smallest first.
      leaves: Rounds of the tree so far; n is the number of ones among its
        binary digits.
      clip_value: L2 norm to which a record is clipped.
      generator_state: Seed and counter of the fresh noise; secret.
    """

    nodes: Any
    leaves: Any
    clip_value: Any
    generator_state: Any

  # `tfp.QAdaClipTreeResSumQuery` calls it by this name.
  preprocess_record_l2_impl = secret_noise.ExactSumQuery.preprocess_record_impl

  def _no_nodes(self):
    """Nodes of an empty tree, `[0, ...]` per tensor of a record."""
    # A constant would fix the number of rows, which grows with the tree.
    return tf.nest.map_structure(
      lambda spec: tf.TensorArray(
        tf.float32, size=0, dynamic_size=True, element_shape=spec.shape
      ).stack(),
      self._specs,
    )

  def initial_global_state(self):
    """Returns a tree without rounds, and the seed of a new run."""
    return self.GlobalState(
      self._no_nodes(),
      tf.constant(0, tf.int32),
      tf.constant(self._clip_norm, tf.float32),
      self._generator.initialize(),
    )

  def derive_sample_params(self, global_state: Any):
    """Returns the clip norm, float32, which the clients of a round get.

    Args:
      global_state: `GlobalState`, whose clip norm may have changed with a tree.
    """
    return global_state.clip_value

  def _add_noise(
    self, sample_state: Any, global_state: Any, clip_norm: tf.Tensor
  ) -> tuple[Any, Any]:
    """Adds the noise of a leaf, as the base class says.

    The nodes that the round completes merge into one, so that the state has one
    node for each 1 in the binary number of rounds.
    """
    leaves = global_state.leaves + 1
    # Each 1 at the end of the binary number of earlier rounds is a left half.
    ones = tf.bitwise.bitwise_and(leaves, -leaves) - 1
    num_halves = tf.cast(tf.raw_ops.PopulationCount(x=ones), tf.int32)
    halves = tf.nest.map_structure(
      lambda rows: rows[:num_halves], global_state.nodes
    )
    noised, completed, generator_state = self._generator.add_noise(
      sample_state,
      global_state.generator_state,
      clip_norm,
      remembered=halves,
      correlate=lambda fresh, rows: complete_node(fresh, rows, leaves),
    )
    nodes = tf.nest.map_structure(
      lambda new, rows: tf.concat([new[tf.newaxis], rows[num_halves:]], 0),
      completed,
      global_state.nodes,
    )
    state = global_state._replace(
      nodes=nodes, leaves=leaves, generator_state=generator_state
    )
    return noised, state

  def reset_state(self, noised_results: Any, global_state: Any):
    """Starts a new tree; its noise adds to that of the last prefix sum.

    Args:
      noised_results: Not used.
      global_state: `GlobalState` after the last round of a tree.

    Returns:
      The state without nodes; clip norm and seeds stay.
    """
    return global_state._replace(
      nodes=self._no_nodes(), leaves=tf.constant(0, tf.int32)
    )

  def reset_l2_clip_gaussian_noise(
    self, global_state: Any, clip_norm: Any, stddev: Any
  ):
    """Sets the clip norm and the noise; only between two trees.

    Args:
      global_state: `GlobalState` of a tree without rounds.
      clip_norm: L2 norm to which records are clipped from now on, scalar.
      stddev: Standard deviation of each number of noise from now on, scalar.

    Returns:
      The state with both; the seeds stay.
    """
    generator_state = self._generator.make_state(
      global_state.generator_state.seeds, stddev
    )
    return global_state._replace(
      clip_value=clip_norm, generator_state=generator_state
    )
