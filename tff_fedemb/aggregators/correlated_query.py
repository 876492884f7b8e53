"""Sums with Gaussian noise that follows a recurrence (see `correlated`)."""

from typing import Any, NamedTuple

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp

from tff_fedemb.aggregators import recurrence as recurrence_lib
from tff_fedemb.aggregators import secret_noise


class CorrelatedSumQuery(tfp.SumAggregationDPQuery):
  """Clips each record, sums, and adds the round's row of C^-1 Z.

  Privacy:
    Unit: one record, here a virtual client's update.
    Neighbouring relation: zero-out of one record.
    Sensitivity: `clip_norm` in a round.
    DpEvent: of a single result there is none, the rounds' noise is not
      independent; see `strategies.strategy.CorrelatedGaussianDpEvent`.
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
    self,
    recurrence: recurrence_lib.Recurrence,
    *,
    clip_norm: float,
    noise_multiplier: float,
    specs: tuple[tf.TensorSpec, ...],
    noise_seed: int | None = None,
  ):
    """Creates the query.

    Args:
      recurrence: Ties the noise of the rounds together.
      clip_norm: L2 norm to which a record is clipped.
      noise_multiplier: Standard deviation of Z over the clip norm.
      specs: Shapes of a record, nested.
      noise_seed: For tests, see `secret_noise`.
    """
    self._recurrence = recurrence
    self._clip_norm = clip_norm
    self._noise_multiplier = noise_multiplier
    self._specs = specs
    self._generator = secret_noise.SecretNoiseGenerator(
      clip_norm * noise_multiplier, specs, seed=noise_seed
    )

  def initial_global_state(self):
    """Buffers of zeros and the seed of a new run."""
    return self.GlobalState(
      tf.nest.map_structure(
        lambda spec: tf.zeros([self._recurrence.num_buffers, *spec.shape]),
        self._specs,
      ),
      self._generator.initialize(),
    )

  def preprocess_record(self, params, record):
    """Clips a record to the clip norm, all tensors together."""
    del params
    clipped, _ = tf.clip_by_global_norm(
      tf.nest.flatten(record), self._clip_norm
    )
    return tf.nest.pack_sequence_as(record, clipped)

  def get_noised_result(self, sample_state, global_state):
    """Adds the noise of the round to the sum of its records."""
    fresh, generator_state = self._generator.next(global_state.generator_state)
    pairs = [
      self._recurrence.next(buffers, noise)
      for buffers, noise in zip(
        tf.nest.flatten(global_state.buffers),
        tf.nest.flatten(fresh),
        strict=True,
      )
    ]
    noise, buffers = (
      tf.nest.pack_sequence_as(self._specs, part)
      for part in zip(*pairs, strict=True)
    )
    if self._noise_multiplier:
      sample_state = secret_noise.add_on_grid(
        sample_state, noise, self._clip_norm
      )
    return (
      sample_state,
      self.GlobalState(buffers, generator_state),
      dp_accounting.UnsupportedDpEvent(),
    )
