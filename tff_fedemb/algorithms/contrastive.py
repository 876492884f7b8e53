"""Contrastive training of a backbone, which looks at no labels.

Chen et al. 2020, "A Simple Framework for Contrastive Learning of Visual
Representations" (SimCLR), section 2: a step changes each image of a batch at
random in two ways, and each of the two views has to tell the other from all
other views of the batch. There is no projection behind the embedding: what is
compared in training is what verification compares, the cosines of embeddings.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.algorithms import centralized
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherViews(heads.Head):
  """Scores every view of a batch against all others; nothing is trained."""

  is_trained: ClassVar[bool] = False

  temperature: float

  def initialize(self, num_classes, embedding_dim, *, seed, class_ids=None):
    del num_classes, embedding_dim, seed, class_ids
    return ()

  def logits(self, weights, embeddings, *, labels=None):
    del weights, labels
    directions = tf.math.l2_normalize(embeddings, axis=1)
    cosines = tf.linalg.matmul(directions, directions, transpose_b=True)
    # A view is not asked to find itself.
    itself = tf.fill([tf.shape(cosines)[0]], cosines.dtype.min)
    return tf.linalg.set_diag(cosines / self.temperature, itself)


def create_objective(
  config: local_training.LocalTraining, *, temperature: float = 0.1
) -> tuple[heads.Head, local_training.LocalTraining]:
  """Creates what `centralized.build_centralized` trains with.

  The metrics count views as examples; their accuracy is the share of views
  whose most similar one in the batch is the other of the same image.

  Args:
    config: Hyperparameters of training; a batch has `batch_size` images and
      twice as many views.
    temperature: The cosines of a view with the others are divided by it.

  Returns:
    A head without weights, and the hyperparameters with two views.

  Raises:
    errors.FieldError: If there is no augmentation, by which views differ, or
      `temperature` is not positive.
  """
  checks.check_number("temperature", temperature, above=0)
  if config.augmentation == "none":
    raise errors.FieldError(
      "augmentation", "make the views of an image differ", "'none'"
    )
  return (
    OtherViews(temperature=temperature),
    dataclasses.replace(config, two_views=True),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrastive(centralized.Centralized):
  """Contrastive training on pooled data, as `create_objective` says.

  It has an objective of its own in place of a head.

  Attributes:
    temperature: The cosines of a view with the others are divided by it.
  """

  temperature: float = config_lib.field(0.1, above=0)

  def __post_init__(self):
    super().__post_init__()
    self.create_objective(self.local)  # Refuses what makes no views.

  def create_objective(
    self, local: local_training.LocalTraining
  ) -> tuple[heads.Head, local_training.LocalTraining]:
    return create_objective(local, temperature=self.temperature)
