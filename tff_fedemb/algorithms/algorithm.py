"""Base class of the algorithms: the model, and a client's round of training."""

from __future__ import annotations

import abc
from collections.abc import Callable
import dataclasses
import functools
from typing import Any, ClassVar

from etils import epy

from tff_fedemb import config
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import backbones
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.algorithms import learning_process
  from tff_fedemb.algorithms import local_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm(config.Config, abc.ABC):
  """A model, and what clients do with it.

  A subclass says where a client's head comes from (`start_head`) and whether
  the server keeps one (`create_global_head`). The rest of a round is the same.

  Attributes:
    is_private: Whether a mechanism aggregates the updates of virtual clients.
      Algorithms on pooled data have none, and protect no user.
    backbone: Maps images to embeddings; what a run releases.
    head: Maps embeddings to classes, in training.
    local: Local training on a client.
  """

  is_private: ClassVar[bool] = True

  backbone: backbones.BackboneConfig = config.part(backbones.BackboneConfig())
  head: heads.Head = config.part(
    heads.LinearHead(), registry=heads.HEADS, searchable=True
  )
  local: local_training.LocalTraining = config.part(
    local_training.LocalTraining()
  )

  def create_global_head(
    self, num_classes: int, embedding_dim: int, *, seed: tuple[int, int]
  ) -> heads.Weights:
    """Makes the head's weights that are broadcast and updated.

    Args:
      num_classes: See `build`.
      embedding_dim: Size of an embedding.
      seed: Two integers; the same ones make the same weights.

    Returns:
      The weights, as from `Head.initialize`; empty if the head stays with its
      client.
    """
    return ()

  @abc.abstractmethod
  def start_head(
    self,
    num_classes: int,
    received: heads.Weights,
    labels: tf.Tensor,
    embedding_dim: int,
    seed: tf.Tensor,
  ) -> tuple[heads.Weights, tf.Tensor, tf.Tensor]:
    """Makes the head that a client starts from.

    Args:
      num_classes: Number of classes that training tells apart, over all users.
      received: Weights of the global head, from the server; may be empty.
      labels: The client's labels, int64 `[n]`.
      embedding_dim: Size of an embedding.
      seed: The client's seed, int64 `[2]`.

    Returns:
      The head's weights, the labels as rows of the head `[n]`, and the number
      of classes that the client holds, a scalar.
    """

  def count_head_parameters(self, num_classes: int, embedding_dim: int) -> int:
    """Counts the numbers that the global head adds to an update.

    They are clipped and noised with the backbone's, so noise grows with them.

    Args:
      num_classes: See `build`.
      embedding_dim: Size of an embedding.

    Returns:
      Number of scalar weights; 0 without a global head.
    """
    # A graph knows the shapes without drawing millions of rows.
    with tf.Graph().as_default():
      weights = self.create_global_head(num_classes, embedding_dim, seed=(0, 0))
    return sum(weight.shape.num_elements() for weight in weights)

  def build(
    self,
    create_backbone_fn: Callable[[], tf.keras.Model],
    *,
    training: local_training.ClientTraining | None = None,
    example_type: tff.types.SequenceType,
    aggregator: tff.aggregators.UnweightedAggregationFactory,
    server_optimizer: tff.learning.optimizers.Optimizer,
    num_classes: int = 0,
    seed: int = 0,
    wrap_client_update_fn: learning_process.WrapFn = lambda update: update,
  ) -> tff.learning.templates.LearningProcess:
    """Builds the learning process.

    Args:
      create_backbone_fn: Makes a fresh Keras model from images to embeddings
        `[batch, dim]`; called while tracing.
      training: `local` as resolved for a run and its data; `None` for
        images at a constant learning rate.
      example_type: Type of a client's data set, from
        `learning_process.build_example_type`.
      aggregator: Turns the clients' updates into the server's.
      server_optimizer: For instance SGD with momentum 0.9.
      num_classes: Number of classes that training tells apart, over all users;
        needed for a global head.
      seed: Seed of the heads and of the order of the examples.
      wrap_client_update_fn: Replaces the client's computation by another one,
        which may call it.

    Returns:
      A learning process whose model weights are the backbone's followed by the
      global head's.

    Raises:
      errors.FieldError: If `training` is `None`, and `local` has a schedule
        that needs the number of rounds.
    """
    training = training or self.local.resolve()

    def create_weights():
      backbone = create_backbone_fn()
      head_weights = self.create_global_head(
        num_classes, backbone.output_shape[-1], seed=(seed, 0)
      )
      return tff.learning.models.ModelWeights(
        (*backbone.trainable_variables, *head_weights),
        tuple(backbone.non_trainable_variables),
      )

    def client_update(
      weights: Any, dataset: tf.data.Dataset, round_num: tf.Tensor
    ):
      backbone = learning_process.create_unset_backbone(create_backbone_fn)
      train = functools.partial(
        self._train_client, backbone, training, num_classes, seed
      )
      # Loops are converted where they are written.
      return tf.function(train, autograph=False)(weights, dataset, round_num)

    return learning_process.build_learning_process(
      create_weights,
      wrap_client_update_fn(client_update),
      example_type=example_type,
      aggregator=aggregator,
      server_optimizer=server_optimizer,
    )

  def _train_client(
    self,
    backbone: tf.keras.Model,
    training: local_training.ClientTraining,
    num_classes: int,
    seed: int,
    weights: Any,
    dataset: tf.data.Dataset,
    round_num: tf.Tensor,
  ):
    """Trains on a client's data; sends back the change of all it received.

    Args:
      backbone: A model whose weights are overwritten.
      training: Hyperparameters.
      num_classes, seed: See `build`.
      weights: Received weights: the backbone's followed by the global head's.
      dataset: The client's batches, maybe none.
      round_num: The round, int32 scalar, from 0.

    Returns:
      A `learning_process.ClientUpdate`.
    """
    variables = backbone.trainable_variables
    of_backbone = tuple(weights.trainable)[: len(variables)]
    received = tuple(weights.trainable)[len(variables) :]
    learning_process.assign_weights(
      backbone, of_backbone, weights.non_trainable
    )
    examples = local_steps.gather_examples(
      dataset, config=training, seed=seed, round_num=round_num
    )
    client_seed = local_steps.client_seed(seed, round_num, examples.labels)
    head_weights, rows, num_classes_held = self.start_head(
      num_classes,
      received,
      examples.labels,
      backbone.output_shape[-1],
      client_seed,
    )
    head_weights, sums = local_steps.train_locally(
      backbone,
      self.head,
      head_weights,
      examples._replace(labels=rows),
      config=training,
      learning_rate_factor=training.learning_rate_factor(round_num),
      seed=client_seed,
    )
    delta = learning_process.take_delta(of_backbone, variables)
    # Adds nothing if the head stays with the client, which received none.
    delta += tuple(map(tf.subtract, received, head_weights))
    return learning_process.ClientUpdate(
      delta,
      num_classes=num_classes_held,
      num_skipped_examples=examples.num_skipped,
      **sums,
    )
