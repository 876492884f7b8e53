"""DP-FedAvg: the baseline with one global head over all classes.

McMahan et al., "Learning Differentially Private Recurrent Language Models",
ICLR 2018; as baseline in Xu et al. 2023, section 4. The head is broadcast,
clipped and noised along with the backbone, so the update, its norm and the
noise grow with the number of classes of the whole population.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from etils import epy

from tff_fedemb import errors
from tff_fedemb.algorithms import algorithm
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedAvg(algorithm.Algorithm):
  """DP-FedAvg.

  A head that is not trained is neither broadcast nor part of an update: each
  client makes it, over all classes. Labels are in [0, number of classes).

  Privacy:
    Unit: one virtual client here (the participation that forms virtual clients
      turns it into users; see `accounting.composition`).
    Neighbouring relation: zero-out of one virtual client's update.
    Sensitivity: the aggregator's bound on the joint update of backbone and
      head.
    DpEvent: the aggregator's.
    Not covered: the training metrics (loss, accuracy, counts), and the list of
      classes itself, which is public here.

  Raises:
    errors.FieldError: If `local` imprints or freezes the head, which here
      continues from the server's.

  Examples:
    >>> local = fe.LocalTraining(learning_rate=0.1, epochs=2)
    >>> fe.FedAvg(head=fe.CosineHead(), local=local).local.epochs
    2
  """

  def __post_init__(self):
    """Checks that `local` neither imprints nor freezes the head."""
    super().__post_init__()
    for name, allowed in (("head_imprint_steps", 0), ("freeze_head", False)):
      if (found := getattr(self.local, name)) != allowed:
        raise errors.FieldError(
          name, f"be {allowed} where clients go on from a global head", found
        )

  def create_global_head(
    self, num_classes: int, embedding_dim: int, *, seed: Any
  ):
    """Makes rows for all `num_classes` classes; none if the head is fixed."""
    if not self.head.is_trained:
      return ()
    return self.head.initialize(num_classes, embedding_dim, seed=seed)

  def start_head(
    self,
    num_classes: int,
    received: heads.Weights,
    labels: tf.Tensor,
    embedding_dim: int,
    seed: Any,
  ):
    """Takes the received head; a fixed one is made here, over all classes.

    The labels are rows of the head as they are.
    """
    if not self.head.is_trained:
      received = self.head.initialize(num_classes, embedding_dim, seed=seed)
    # A trained head continues from the server's rows.
    return received, labels, tf.size(tf.unique(labels).y)
