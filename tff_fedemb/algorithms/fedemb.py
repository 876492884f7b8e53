"""DP-FedEmb: a shared backbone, and a head that never leaves the client.

Xu et al., "Learning to Generate Image Embeddings with User-level Differential
Privacy", CVPR 2023, section 3 and algorithm 1; partially local training in the
manner of federated reconstruction (Singhal et al. 2021).
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb.algorithms import algorithm
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf


def start_head(
  head: heads.Head, labels: tf.Tensor, embedding_dim: int, seed: tf.Tensor
) -> tuple[heads.Weights, tf.Tensor, tf.Tensor]:
  """Makes a head with a row for each class that a client holds.

  Args:
    head: The kind of head.
    labels: The client's labels, `[n]`, any int64.
    embedding_dim: Size of an embedding.
    seed: The client's seed, `[2]`.

  Returns:
    As `algorithm.Algorithm.start_head`.
  """
  classes, rows = tf.unique(labels)
  num_classes = tf.size(classes)
  weights = head.initialize(
    num_classes, embedding_dim, seed=seed, class_ids=classes
  )
  return weights, rows, num_classes


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedEmb(algorithm.Algorithm):
  """DP-FedEmb.

  In each round, each virtual client receives the backbone, initialises a head
  with one row for each class *it holds itself*, trains both, and returns the
  change of the backbone. Labels may be any int64: cost and memory depend on
  the classes of the client, not on those of the population.

  Privacy:
    Unit: one virtual client here (the participation that forms virtual clients
      turns it into users; see `privacy.accounting`).
    Neighbouring relation: zero-out of one virtual client's update.
    Sensitivity: the aggregator's bound on the backbone's update; the head is
      neither sent nor aggregated.
    DpEvent: the aggregator's.
    Not covered: the training metrics (loss, accuracy, counts), and with class
      codes which class has which number, which is public then.
  """

  def __post_init__(self):
    super().__post_init__()
    self.local.check_head(self.head)

  def create_global_head(self, num_classes, embedding_dim, *, seed):
    return ()

  def start_head(self, num_classes, received, labels, embedding_dim, seed):
    return start_head(self.head, labels, embedding_dim, seed)
