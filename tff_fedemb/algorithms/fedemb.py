"""DP-FedEmb: a shared backbone, and a head that never leaves the client.

Xu et al., "Learning to Generate Image Embeddings with User-level Differential
Privacy", CVPR 2023, section 3 and algorithm 1; partially local training in the
manner of federated reconstruction (Singhal et al. 2021).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from etils import epy

from tff_fedemb.algorithms import algorithm
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedEmb(algorithm.Algorithm):
  """DP-FedEmb.

  In each round, each virtual client receives the backbone, initialises a head
  with one row for each class *it holds itself*, trains both, and returns the
  change of the backbone. Labels may be any int64: cost and memory depend on
  the classes of the client, not on those of the population.

  Privacy:
    Unit: one virtual client here (the participation that forms virtual clients
      turns it into users; see `accounting.composition`).
    Neighbouring relation: zero-out of one virtual client's update.
    Sensitivity: the aggregator's bound on the backbone's update; the head is
      neither sent nor aggregated.
    DpEvent: the aggregator's.
    Not covered: the training metrics (loss, accuracy, counts), and with class
      codes which class has which number, which is public then.

  Raises:
    errors.FieldError: If `local` imprints a head that has no prototypes.

  Examples:
    >>> local = fe.LocalTraining(learning_rate=0.1, head_warmup_steps=5)
    >>> fe.FedEmb(head=fe.CosineHead(), local=local).head.scale
    16.0
  """

  def __post_init__(self):
    """Checks that the head can be imprinted if `local` asks for it."""
    super().__post_init__()
    self.local.check_head(self.head)

  def start_head(
    self,
    num_classes: int,
    received: heads.Weights,
    labels: tf.Tensor,
    embedding_dim: int,
    seed: Any,
  ):
    """Makes a fresh head with one row per class in `labels`.

    Rows are in the order of the classes' first examples. `num_classes` and
    `received` are not used.
    """
    # One row for each class, in the order of its first example.
    classes, rows = tf.unique(labels)
    weights = self.head.initialize(
      tf.size(classes), embedding_dim, seed=seed, class_ids=classes
    )
    return weights, rows, tf.size(classes)
