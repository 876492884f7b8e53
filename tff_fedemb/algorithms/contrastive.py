"""Contrastive training of a backbone, without labels.

Chen et al. 2020, "A Simple Framework for Contrastive Learning of Visual
Representations" (SimCLR), section 2: a step changes each image of a batch at
random in two ways, and each of the two views has to tell the other from all
other views of the batch. Unlike SimCLR, there is no projection after the
embedding: training compares cosines of embeddings, as verification does.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.algorithms import centralized
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherViews(heads.Head):
  """Scores every view of a batch against all others; nothing is trained.

  Attributes:
    temperature: Divides the cosines; above 0.
  """

  is_trained: ClassVar[bool] = False

  temperature: float

  def initialize(
    self,
    num_classes: int,
    embedding_dim: int,
    *,
    seed: Any,
    class_ids: tf.Tensor = None,
  ):
    """Makes no weights: the rows are the batch's own views."""
    return ()

  def logits(
    self, weights: Any, embeddings: tf.Tensor, *, labels: tf.Tensor = None
  ):
    """Compares views `[batch, dim]` as `[batch, batch]`; labels are unused."""
    return heads.compare_with_others(embeddings, temperature=self.temperature)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrastive(centralized.Centralized):
  """Contrastive training on pooled data.

  It has an objective of its own in place of a head; `head` is not used. The
  metrics count views as examples, twice as many as images. Their accuracy is
  the share of views whose most similar one in the batch is the other view of
  the same image.

  Attributes:
    temperature: The cosines of a view with the others are divided by it.

  Raises:
    errors.FieldError: If `local.augmentation` is "none", which would make both
      views of an image equal.

  Examples:
    >>> views = fe.LocalTraining(augmentation="crop_flip", batch_size=64)
    >>> fe.Contrastive(temperature=0.2, local=views).is_private
    False
  """

  temperature: float = config_lib.field(0.1, above=0)

  def __post_init__(self):
    """Checks that an augmentation makes the two views differ."""
    super().__post_init__()
    if self.local.augmentation == "none":
      raise errors.FieldError(
        "augmentation", "make the views of an image differ", "'none'"
      )

  def build(
    self,
    create_backbone_fn: Any,
    *,
    training: local_training.ClientTraining | None = None,
    **options: Any,
  ) -> tff.learning.templates.LearningProcess:
    """Builds the process of centralized training, with two views per image.

    Args:
      create_backbone_fn: See `Algorithm.build`.
      training: See `Algorithm.build`; `two_views` is switched on.
      **options: See `Centralized.build`.

    Returns:
      A learning process whose model weights are the backbone's alone.
    """
    training = training or self.local.resolve()
    return centralized.Centralized(
      head=OtherViews(temperature=self.temperature)
    ).build(
      create_backbone_fn,
      training=dataclasses.replace(training, two_views=True),
      **options,
    )
