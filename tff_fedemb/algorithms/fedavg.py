"""DP-FedAvg: the baseline with one global head over all classes.

McMahan et al., "Learning Differentially Private Recurrent Language Models",
ICLR 2018; as baseline in Xu et al. 2023, section 4. The head is broadcast,
clipped and noised along with the backbone, so the update, its norm and the
noise grow with the number of classes of the whole population.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

from etils import epy

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.algorithms import algorithm
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.algorithms import composition


def build_fedavg(
  create_backbone_fn: Callable[[], tf.keras.Model],
  head: heads.Head,
  *,
  num_classes: int,
  example_type: tff.types.SequenceType,
  aggregator: tff.aggregators.UnweightedAggregationFactory,
  server_optimizer: tff.learning.optimizers.Optimizer,
  config: local_training.LocalTraining,
  seed: int = 0,
  wrap_client_update_fn: composition.WrapFn = lambda update: update,
) -> tff.learning.templates.LearningProcess:
  """Builds the DP-FedAvg learning process.

  Privacy:
    Unit: one virtual client here (the participation that forms virtual clients
      turns it into users; see `privacy.accounting`).
    Neighbouring relation: zero-out of one virtual client's update.
    Sensitivity: whatever the aggregator enforces on the joint update of
      backbone and head.
    DpEvent: the aggregator's.
    Not covered: the training metrics (loss, accuracy, counts), and the list of
      classes itself, which is public here.

  Args:
    create_backbone_fn: Makes a fresh Keras model from images to embeddings
      `[batch, dim]`; called while tracing.
    head: The global head. One that is not trained is neither broadcast nor
      part of an update: each client makes it, over all classes.
    num_classes: Number of classes K of the population; labels are in [0, K).
    example_type: Type of a client's data set, `composition.build_example_type`.
    aggregator: Turns the clients' updates into the server's.
    server_optimizer: For instance SGD with momentum 0.9.
    config: Hyperparameters of local training.
    seed: Seed of head initialisation and of the order of the examples.
    wrap_client_update_fn: Puts something around what a client does.

  Returns:
    A learning process whose model weights are the backbone's followed by the
    head's if that is trained.

  Raises:
    errors.FieldError: If `num_classes` is below 1, or clients are to imprint
      or freeze the head.
  """
  checks.check_integer("num_classes", num_classes, minimum=1)
  for name, allowed in (("head_imprint_steps", 0), ("freeze_head", False)):
    if (found := getattr(config, name)) != allowed:
      raise errors.FieldError(
        name, f"be {allowed} where clients go on from a global head", found
      )

  def create_weights():
    backbone = create_backbone_fn()
    head_weights = ()
    if head.is_trained:
      head_weights = head.initialize(
        num_classes, backbone.output_shape[-1], seed=(seed, 0)
      )
    return tff.learning.models.ModelWeights(
      (*backbone.trainable_variables, *head_weights),
      tuple(backbone.non_trainable_variables),
    )

  def start_head(received, labels, embedding_dim, client_seed):
    if not head.is_trained:
      received = head.initialize(num_classes, embedding_dim, seed=client_seed)
    # Otherwise the head goes on from the server's.
    return received, labels, tf.size(tf.unique(labels).y)

  client_update = composition.build_client_update(
    create_backbone_fn, head, start_head, config=config, seed=seed
  )
  return composition.build_learning_process(
    create_weights,
    wrap_client_update_fn(client_update),
    example_type=example_type,
    aggregator=aggregator,
    server_optimizer=server_optimizer,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedAvg(algorithm.Algorithm):
  """DP-FedAvg, as `build_fedavg` says."""

  def build(
    self,
    create_backbone_fn: Callable[[], tf.keras.Model],
    *,
    local: local_training.LocalTraining,
    **options: Any,
  ) -> tff.learning.templates.LearningProcess:
    return build_fedavg(create_backbone_fn, self.head, config=local, **options)
