"""Sums with Gaussian noise that follows a recurrence (see `correlated`)."""

import operator
from typing import Any, NamedTuple

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp
import tree

from tff_fedemb.aggregators import recurrence as recurrence_lib
from tff_fedemb.aggregators import secret_noise


class SeededSumQuery(tfp.GaussianSumQuery):
  """Clips each record and sums; what noise it adds depends on earlier rounds.

  The library's query clips; state and noise are those of the subclasses.

  Privacy:
    Unit: one record, here a virtual client's update.
    Neighbouring relation: zero-out of one record.
    Sensitivity: the clip norm in a round.
    DpEvent: none for a single result, as the noise of the rounds is not
      independent; see `strategies.strategy.CorrelatedGaussianDpEvent`.
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
      stddev: Standard deviation of a number of Z; 0 for no noise.
      noise_seed: For tests, see `secret_noise`.
    """
    super().__init__(clip_norm, stddev)
    self._specs = specs
    self._clip_norm = clip_norm
    self._generator = secret_noise.SecretNoiseGenerator(
      stddev, specs, seed=noise_seed
    )

  def derive_sample_params(self, global_state):
    """The clip norm."""
    del global_state
    return tf.constant(self._clip_norm, tf.float32)


class CorrelatedSumQuery(SeededSumQuery):
  """Clips each record, sums, and adds the round's row of C^-1 Z.

  Privacy: as the base class.
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
    self, recurrence: recurrence_lib.Recurrence, specs: Any, **options: Any
  ):
    """Creates the query.

    Args:
      recurrence: Ties the noise of the rounds together.
      specs: As in the base class.
      **options: Others of the base class.
    """
    super().__init__(specs, **options)
    self._recurrence = recurrence

  def initial_global_state(self):
    """Buffers of zeros and the seed of a new run."""
    return self.GlobalState(
      tf.nest.map_structure(
        lambda spec: tf.zeros([self._recurrence.num_buffers, *spec.shape]),
        self._specs,
      ),
      self._generator.initialize(),
    )

  def get_noised_result(self, sample_state, global_state):
    """Adds the noise of the round to the sum of its records."""
    fresh, generator_state = self._generator.next(global_state.generator_state)
    pairs = tree.map_structure_up_to(
      self._specs, self._recurrence.next, global_state.buffers, fresh
    )
    noise, buffers = (
      tree.map_structure_up_to(self._specs, operator.itemgetter(half), pairs)
      for half in (0, 1)
    )
    if self._stddev:
      sample_state = secret_noise.add_on_grid(
        sample_state, noise, self._clip_norm
      )
    return (
      sample_state,
      self.GlobalState(buffers, generator_state),
      dp_accounting.UnsupportedDpEvent(),
    )
