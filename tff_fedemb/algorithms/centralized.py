"""Centralized training on pooled data: the non-private upper baseline.

Xu et al. 2023, section 4 ("Centralized"). Expressed as a learning process, so
that it runs on the same runtimes, checkpoints and metrics: a round is a single
client whose data are the pooled examples of the users of that round, trained
by mini-batch SGD on backbone and global head, and the server takes its result
as it is.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any, ClassVar

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb.aggregators import none
from tff_fedemb.algorithms import algorithm
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff


def build_centralized(
  create_backbone_fn: Callable[[], tf.keras.Model],
  head: heads.Head,
  *,
  num_classes: int,
  example_type: tff.types.SequenceType,
  config: local_training.LocalTraining,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds the centralized learning process.

  The optimizer's slots (momentum) start afresh in every round.

  Privacy: none; the model may remember any user.

  Args:
    create_backbone_fn: Makes a fresh Keras model from images to embeddings
      `[batch, dim]`; called while tracing.
    head: The global head.
    num_classes: Number of classes K; labels are in [0, K).
    example_type: Type of the pooled data set.
    config: Hyperparameters of training.
    seed: Seed of head initialisation and of the order of the examples.

  Returns:
    A learning process whose `next` takes exactly one client, and whose model
    weights are the backbone's followed by the head's.

  Raises:
    errors.FieldError: If `num_classes` is not positive.
  """
  return fedavg.build_fedavg(
    create_backbone_fn,
    head,
    num_classes=num_classes,
    example_type=example_type,
    aggregator=none.NoneConfig(clients_per_round=1).create().factory,
    server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
    config=config,
    seed=seed,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Centralized(algorithm.Algorithm):
  """Training on pooled data, as `build_centralized` says.

  Attributes:
    users_per_round: Users whose examples make up a round.
  """

  is_private: ClassVar[bool] = False

  users_per_round: int = config_lib.field(256, minimum=1)

  def create_objective(
    self, local: local_training.LocalTraining
  ) -> tuple[heads.Head, local_training.LocalTraining]:
    """Creates the head that is trained, and what it is trained with."""
    return self.head, local

  def build(
    self,
    create_backbone_fn: Callable[[], tf.keras.Model],
    *,
    num_classes: int,
    local: local_training.LocalTraining,
    **options: Any,
  ) -> tff.learning.templates.LearningProcess:
    head, config = self.create_objective(local)
    return build_centralized(
      create_backbone_fn,
      head,
      num_classes=num_classes,
      config=config,
      **options,
    )
