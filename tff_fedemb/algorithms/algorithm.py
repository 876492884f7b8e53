"""What a run trains by: base class of the algorithms."""

from __future__ import annotations

import abc
from collections.abc import Callable
import dataclasses
from typing import Any, ClassVar

from etils import epy

from tff_fedemb import config
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import backbones
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm(config.Config, abc.ABC):
  """A model, and what clients do with it.

  Attributes:
    is_private: Whether updates of virtual clients are aggregated by a
      mechanism; pooled data need none and nobody is protected.
    backbone: Maps images to embeddings; what a run releases.
    head: Maps embeddings to classes, in training.
    local: What a client does in a round.
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
  def build(
    self,
    create_backbone_fn: Callable[[], tf.keras.Model],
    *,
    local: local_training.LocalTraining,
    **options: Any,
  ) -> tff.learning.templates.LearningProcess:
    """Builds the learning process.

    Args:
      create_backbone_fn: Makes a fresh backbone; called while tracing.
      local: As `self.local`, with what the task and the run have settled.
      **options: num_classes that training tells apart, over all users,
        example_type and seed, and of private algorithms aggregator,
        server_optimizer and wrap_client_update_fn, as of `fedemb.build_fedemb`.
    """
