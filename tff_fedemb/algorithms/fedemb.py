"""DP-FedEmb: a shared backbone, and a head that never leaves the client.

Xu et al., "Learning to Generate Image Embeddings with User-level Differential
Privacy", CVPR 2023, section 3 and algorithm 1; partially local training in the
manner of federated reconstruction (Singhal et al. 2021).
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

from etils import epy

from tff_fedemb.algorithms import algorithm
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.algorithms import composition


def start_head(
  head: heads.Head, labels: tf.Tensor, embedding_dim: int, seed: tf.Tensor
) -> tuple[heads.Weights, tf.Tensor, tf.Tensor]:
  """Makes a head with a row for each class that a client holds.

  Args:
    head: What to make.
    labels: The client's, `[n]`, any int64.
    embedding_dim: Size of an embedding.
    seed: The client's, `[2]`.

  Returns:
    The head's weights, the labels as rows of it, and the number of classes.
  """
  classes, rows = tf.unique(labels)
  num_classes = tf.size(classes)
  weights = head.initialize(
    num_classes, embedding_dim, seed=seed, class_ids=classes
  )
  return weights, rows, num_classes


def build_fedemb(
  create_backbone_fn: Callable[[], tf.keras.Model],
  head: heads.Head,
  *,
  example_type: tff.types.SequenceType,
  aggregator: tff.aggregators.UnweightedAggregationFactory,
  server_optimizer: tff.learning.optimizers.Optimizer,
  config: local_training.LocalTraining,
  seed: int = 0,
  wrap_client_update_fn: composition.WrapFn = lambda update: update,
) -> tff.learning.templates.LearningProcess:
  """Builds the DP-FedEmb learning process.

  In each round, each virtual client receives the backbone, initialises a head
  with one row for each class *it holds itself*, trains both, and returns the
  change of the backbone. Labels may be any int64: cost and memory depend on
  the classes of the client, not on those of the population.

  Privacy:
    Unit: one virtual client here (the participation that forms virtual clients
      turns it into users; see `privacy.accounting`).
    Neighbouring relation: zero-out of one virtual client's update.
    Sensitivity: whatever the aggregator enforces on the backbone's update; the
      head is neither sent nor aggregated.
    DpEvent: the aggregator's.
    Not covered: the training metrics (loss, accuracy, counts), and with class
      codes which class has which number, which is public then.

  Args:
    create_backbone_fn: Makes a fresh Keras model from images to embeddings
      `[batch, dim]`; called while tracing.
    head: The head that each client makes and throws away.
    example_type: Type of a client's data set, `composition.build_example_type`.
    aggregator: Turns the clients' backbone updates into the server's.
    server_optimizer: For instance SGD with momentum 0.9.
    config: Hyperparameters of local training.
    seed: Seed of head initialisation and of the order of the examples.
    wrap_client_update_fn: Puts something around what a client does.

  Returns:
    A learning process whose model weights are the backbone's.
  """

  client_update = composition.build_client_update(
    create_backbone_fn,
    head,
    # A client receives no head.
    lambda _, *of_client: start_head(head, *of_client),
    config=config,
    seed=seed,
  )
  return composition.build_learning_process(
    lambda: tff.learning.models.ModelWeights.from_model(create_backbone_fn()),
    wrap_client_update_fn(client_update),
    example_type=example_type,
    aggregator=aggregator,
    server_optimizer=server_optimizer,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedEmb(algorithm.Algorithm):
  """DP-FedEmb, as `build_fedemb` says."""

  def __post_init__(self):
    super().__post_init__()
    self.local.check_head(self.head)

  def build(
    self,
    create_backbone_fn: Callable[[], tf.keras.Model],
    *,
    local: local_training.LocalTraining,
    **options: Any,
  ) -> tff.learning.templates.LearningProcess:
    del options["num_classes"]  # A client's head has those that it holds.
    return build_fedemb(create_backbone_fn, self.head, config=local, **options)
