"""Noise of a round that follows from that of the rounds before it."""

from __future__ import annotations

import abc

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf


class Recurrence(abc.ABC):
  """How the noise of a round follows from the rounds before it.

  Attributes:
    num_buffers: Tensors of the model's size that it remembers.
  """

  num_buffers: int

  @abc.abstractmethod
  def next(
    self, buffers: tf.Tensor, fresh: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the noise of a round and the buffers of the next.

    Args:
      buffers: `[num_buffers, ...]`, zeros in the first round.
      fresh: `[...]`, independent noise.
    """
