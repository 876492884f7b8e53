"""Base class of the algorithms."""

from __future__ import annotations

import abc
from collections.abc import Callable
import dataclasses
import functools
from typing import ClassVar

from etils import epy

from tff_fedemb import config
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import backbones
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.algorithms import composition


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm(config.Config, abc.ABC):
  """A model, and what clients do with it.

  Attributes:
    is_private: Whether a mechanism aggregates the updates of virtual clients.
      Pooled data need none, and nobody is protected.
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

  @abc.abstractmethod
  def create_global_head(
    self, num_classes: int, embedding_dim: int, *, seed: tuple[int, int]
  ) -> heads.Weights:
    """Makes the head's weights that are broadcast and updated; may be none."""

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
      received: Weights of the global head.
      labels: The client's labels, `[n]`.
      embedding_dim: Size of an embedding.
      seed: The client's seed, `[2]`.

    Returns:
      The head's weights, the labels as rows of the head, and the number of
      classes that the client holds.
    """

  def build(
    self,
    create_backbone_fn: Callable[[], tf.keras.Model],
    *,
    example_type: tff.types.SequenceType,
    aggregator: tff.aggregators.UnweightedAggregationFactory,
    server_optimizer: tff.learning.optimizers.Optimizer,
    num_classes: int = 0,
    seed: int = 0,
    wrap_client_update_fn: composition.WrapFn = lambda update: update,
  ) -> tff.learning.templates.LearningProcess:
    """Builds the learning process.

    Args:
      create_backbone_fn: Makes a fresh Keras model from images to embeddings
        `[batch, dim]`; called while tracing.
      example_type: Type of a client's data set, as of
        `composition.build_example_type`.
      aggregator: Turns the clients' updates into the server's.
      server_optimizer: For instance SGD with momentum 0.9.
      num_classes: Number of classes that training tells apart, over all users;
        needed for a global head.
      seed: Seed of the heads and of the order of the examples.
      wrap_client_update_fn: Puts something around the client's computation.

    Returns:
      A learning process whose model weights are the backbone's followed by the
      global head's.
    """

    def create_weights():
      backbone = create_backbone_fn()
      head_weights = self.create_global_head(
        num_classes, backbone.output_shape[-1], seed=(seed, 0)
      )
      return tff.learning.models.ModelWeights(
        (*backbone.trainable_variables, *head_weights),
        tuple(backbone.non_trainable_variables),
      )

    client_update = composition.build_client_update(
      create_backbone_fn,
      self.head,
      functools.partial(self.start_head, num_classes),
      config=self.local,
      seed=seed,
    )
    return composition.build_learning_process(
      create_weights,
      wrap_client_update_fn(client_update),
      example_type=example_type,
      aggregator=aggregator,
      server_optimizer=server_optimizer,
    )
