"""Gaussian noise from a secret seed that travels in the aggregator's state.

Correlated noise is made over many rounds. What the later ones cancel must be
what the earlier ones added, also when a program was killed in between: the
noise is therefore a function of a seed and a counter, which the checkpoint
holds, and not of the operating system's entropy at that moment.
"""

import secrets

import tensorflow as tf
import tensorflow_privacy as tfp


class SecretNoiseGenerator(tfp.tree_aggregation.GaussianNoiseGenerator):
  """Standard deviation and shapes as its parent's, another seed.

  Privacy:
    Every tensor of every call gets its own pair of seeds: the parent counts
    both words of the seed up, by one for each tensor. 128 bits are drawn from
    the operating system when the generator is made, where the parent takes
    the time of day, which anybody can guess. Each `initialize` mixes in fresh
    random words, so that two runs of one process do not share their noise: the
    difference of two releases with the same noise would have none.

    Whoever reads the state sees through the noise: checkpoints are secret.
  """

  def __init__(
    self,
    noise_std: float,
    specs: tuple[tf.TensorSpec, ...],
    *,
    seed: int | None = None,
  ):
    """Creates the generator.

    Args:
      noise_std: Standard deviation of each number.
      specs: Shapes of a value, nested.
      seed: For tests: makes all runs share their noise, which voids privacy.
    """
    super().__init__(noise_std, specs, seed)
    self._words = [secrets.randbits(64) - 2**63 for _ in range(2)]

  def initialize(self):
    """Returns the state (seeds, stddev) of a new run."""
    state = super().initialize()
    if self._seed is not None:
      return state
    fresh = tf.random.uniform([2], tf.int64.min, tf.int64.max, dtype=tf.int64)
    return state._replace(
      seeds=tf.bitwise.bitwise_xor(tf.constant(self._words, tf.int64), fresh)
    )
