"""The held-out images of a task, and what a model makes of them."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.algorithms import composition
from tff_fedemb.evaluation import embedding
from tff_fedemb.evaluation import verification
from tff_fedemb.program import model_card
from tff_fedemb.program import training
from tff_fedemb.run import spec as spec_lib
from tff_fedemb.run import task as task_lib

_RATES = tuple(
  {
    *verification.DEFAULT_FALSE_ACCEPT_RATES,
    *model_card.FALSE_ACCEPT_RATES,
  }
)


def load_images(
  task: task_lib.Task, config: spec_lib.Evaluation
) -> tuple[dict[str, embedding.LabelledImages], embedding.LabelledImages]:
  """Loads the held-out images of a task.

  Args:
    task: The task.
    config: Numbers of images to evaluate on.

  Returns:
    The images by split, and those for evaluations during training.

  Raises:
    DataError: If they are damaged, or have no two images of one class or no
      two classes.
  """
  by_split = {
    split: task.load_images(split) for split in task_lib.EVALUATION_SPLITS
  }
  if config.max_held_out_images:
    by_split = {
      split: images.subsample(config.max_held_out_images)
      for split, images in by_split.items()
    }
  sample = by_split["validation"]
  if config.max_evaluation_images:
    sample = sample.subsample(config.max_evaluation_images)
  for name, images in {**by_split, "validation sample": sample}.items():
    _, counts = np.unique(images.labels, return_counts=True)
    if counts.size < 2 or counts.max() < 2:
      raise errors.DataError(
        f"task {task.name} must have two classes and two images of one class"
        f" to evaluate on, found {counts.size} classes of at most"
        f" {counts.max(initial=0)} images in its {name}"
        f" (max_evaluation_images={config.max_evaluation_images},"
        f" max_held_out_images={config.max_held_out_images})."
      )
  return by_split, sample


@dataclasses.dataclass(frozen=True)
class Embedded:
  """Held-out images, and what a model makes of them.

  Attributes:
    images: The images.
    embeddings: Their embeddings, `[n, dim]`, finite.
    compared: All pairs, compared once for evaluations and a model's card.
  """

  images: embedding.LabelledImages
  embeddings: np.ndarray
  compared: verification.Comparison

  def evaluate(
    self, rates: Sequence[float] = verification.DEFAULT_FALSE_ACCEPT_RATES
  ) -> verification.VerificationResult:
    """Their evaluation, at some of the false accept rates compared at."""
    return self.compared.evaluate(rates, num_found=self.images.num_found)


class Evaluator:
  """Evaluates model weights with one backbone."""

  def __init__(
    self,
    backbone: tf.keras.Model,
    by_split: Mapping[str, embedding.LabelledImages],
    sample: embedding.LabelledImages,
    with_metrics: bool = False,
  ):
    self._with_metrics = with_metrics
    self.backbone = backbone
    self._embed = embedding.create_embedder(backbone)
    self._by_split = by_split
    self._sample = sample

  def set_weights(self, model_weights: Any) -> None:
    """Takes the backbone's part of a process's model weights."""
    num_backbone = len(self.backbone.trainable_variables)
    composition.assign_weights(
      self.backbone,
      tuple(model_weights.trainable)[:num_backbone],
      model_weights.non_trainable,
    )

  def _compare(
    self, images: embedding.LabelledImages, *, with_metrics: bool = False
  ) -> Embedded:
    embeddings = self._embed(images.images)
    if not np.all(np.isfinite(embeddings)):
      raise errors.DivergedError(
        "the model diverged: its embeddings are not finite; a lower"
        " client_learning_rate or server_learning_rate may help."
      )
    compared = verification.Comparison(
      embeddings,
      images.labels,
      false_accept_rates=_RATES,
      with_metrics=with_metrics,
    )
    return Embedded(images, embeddings, compared)

  def embed_all(self) -> dict[str, Embedded]:
    """Embeds the images of every split."""
    return {
      split: self._compare(images, with_metrics=self._with_metrics)
      for split, images in self._by_split.items()
    }

  def evaluate_all(self) -> dict[str, verification.VerificationResult]:
    """Results of every split."""
    return {split: some.evaluate() for split, some in self.embed_all().items()}

  def validate(self, model_weights: Any) -> dict[str, float]:
    """Recall on a fixed sample of the validation images."""
    self.set_weights(model_weights)
    recalls = self._compare(self._sample).evaluate().recall_at_far
    return {
      training.RECALL_PREFIX
      + verification.format_false_accept_rate(rate): recall
      for rate, recall in recalls.items()
    }
