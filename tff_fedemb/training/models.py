"""The model of a run: start, figures on held-out images, card and copies."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.algorithms import learning_process
from tff_fedemb.evaluation import embedding
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.evaluation import verification
from tff_fedemb.models import pretrained
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import metrics
from tff_fedemb.records import model_card
from tff_fedemb.records import run_directory
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib

RECORD = "pretrained.json"
# Parts of the choice that a card has. Recalls of models that are not given away
# stay behind.
_KEPT_TOLD = ("round", "of_rounds", "by", "start_share")
_ASSUMPTION = (
  "made from public data: no epsilon here accounts for what these weights"
  " know of the users"
)
_RATES = tuple(
  {*verification.DEFAULT_FALSE_ACCEPT_RATES, *model_card.FALSE_ACCEPT_RATES}
)


@dataclasses.dataclass(frozen=True)
class Start:
  """Start of a run that does not start from random weights.

  Attributes:
    weights: Weights of the backbone, in Keras' order; `None` for a run that
      goes on from a checkpoint and needs them no more.
    record: JSON values by name: the file, a digest of its weights and, once
      there is one, their evaluation.
  """

  weights: list[np.ndarray] | None
  record: dict[str, Any]


def load_start(
  create_backbone: Callable[[], tf.keras.Model],
  path: str | None,
  run_dir: str,
  *,
  is_needed: bool,
) -> Start | None:
  """Loads what a run starts from, before anything of it is written.

  The digest of the weights is compared with the record of a run that has begun,
  so that a changed file is noticed.

  Args:
    create_backbone: Makes a backbone.
    path: A SavedModel or Keras weights; `None` for random ones.
    run_dir: The run's directory, which need not be there.
    is_needed: Whether a run that goes on from a checkpoint needs the start too,
      as for models between it and those of the rounds.

  Returns:
    The start; `None` if weights are random.

  Raises:
    errors.FieldError: If the weights do not fit, or are not those that the run
      in the directory has begun with.
  """
  if path is None:
    return None
  root = pathlib.Path(run_dir)
  record = run_directory.read_json(root / RECORD)
  has_begun = record and run_directory.checkpointed_rounds(root)
  if has_begun and not is_needed:
    return Start(None, record)
  # Use a backbone of its own: Keras would disown one made before the process.
  backbone = create_backbone()
  loaded = pretrained.load_pretrained(backbone, path)
  weights = backbone.get_weights()
  digest = chain_lib.digest_of(weights)
  if record and record["sha256"] != digest:
    raise errors.FieldError(
      "pretrained_backbone",
      f"be what the run in {run_dir} has begun with",
      f"other weights in {path}",
    )
  progress.say(f"{loaded.text} They must be {_ASSUMPTION}.")
  return Start(
    weights,
    {
      "path": os.path.abspath(path),
      "kind": loaded.kind,
      "num_loaded_parameters": loaded.num_loaded,
      "num_initialized_parameters": loaded.num_initialized,
      "sha256": digest,
      "assumption": _ASSUMPTION,
    },
  )


def start_from(backbone: tf.keras.Model) -> Callable[[Any], Any]:
  """Returns a function that puts a backbone's weights into a model's.

  Args:
    backbone: The backbone; its weights are read when the function is called.

  Returns:
    A function from a process's `ModelWeights` to new ones. Trainable weights
    after those of the backbone, a global head's, stay.
  """

  def start_from_backbone(
    model_weights: tff.learning.models.ModelWeights,
  ) -> tff.learning.models.ModelWeights:
    start = tff.learning.models.ModelWeights.from_model(backbone)
    start = start.convert_variables_to_arrays()
    head = tuple(model_weights.trainable)[len(start.trainable) :]
    return tff.learning.models.ModelWeights(
      (*start.trainable, *head), tuple(start.non_trainable)
    )

  return start_from_backbone


def load_images(
  task: task_lib.Task, config: spec_lib.Evaluation
) -> tuple[dict[str, embedding.LabelledImages], embedding.LabelledImages]:
  """Loads the held-out images of a task.

  A split that is larger than asked for is sampled at random, always in the same
  way.

  Args:
    task: The task.
    config: Numbers of images to evaluate on.

  Returns:
    The images by split, and those for evaluations during training.

  Raises:
    errors.DataError: If they are damaged, or have no two images of one class or
      no two classes.
  """
  by_split = {}
  for split in task_lib.EVALUATION_SPLITS:
    by_split[split] = task.load_images(split)
    if config.max_held_out_images:
      by_split[split] = by_split[split].subsample(config.max_held_out_images)
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
  """Held-out images, and their embeddings by a model.

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
    """Their evaluation, at some of the false accept rates compared at.

    Args:
      rates: False accept rates in (0, 1), among those that pairs were compared
        at.

    Returns:
      Recalls and thresholds at the rates; the number of images found, if they
      are a sample.
    """
    return self.compared.evaluate(rates, num_found=self.images.num_found)


@dataclasses.dataclass
class Evaluator:
  """Evaluates model weights with one backbone.

  The weights of `backbone` are changed by each evaluation.

  Attributes:
    backbone: The backbone.
    by_split: Held-out images.
    sample: Held-out images for evaluations during training.
    with_metrics: Whether to measure other metrics of the held-out images too.
  """

  backbone: tf.keras.Model
  by_split: Mapping[str, embedding.LabelledImages]
  sample: embedding.LabelledImages
  with_metrics: bool = False

  def __post_init__(self):
    self._embed = embedding.create_embedder(self.backbone)

  def set_weights(self, model_weights: Any) -> None:
    """Takes the backbone's part of a process's model weights.

    Args:
      model_weights: `ModelWeights` of a process, or of a backbone alone; the
        backbone's trainable weights come first.
    """
    num_backbone = len(self.backbone.trainable_variables)
    learning_process.assign_weights(
      self.backbone,
      tuple(model_weights.trainable)[:num_backbone],
      model_weights.non_trainable,
    )

  def _compare(
    self,
    images: embedding.LabelledImages,
    *,
    with_metrics: bool = False,
    decides: bool = True,
  ) -> Embedded:
    """Compares all pairs; the model has diverged if a split decides so.

    Args:
      images: Images to embed, with labels.
      with_metrics: Whether to measure other metrics too.
      decides: Whether embeddings that are not finite end the run. If not, they
        are replaced by zeros, with a warning.

    Raises:
      errors.DivergedError: If embeddings are not finite.
    """
    embeddings = self._embed(images.images)
    is_finite = np.all(np.isfinite(embeddings), axis=1, keepdims=True)
    if not decides and not np.all(is_finite):
      progress.say(
        f"WARNING: {np.sum(~is_finite):,} images have embeddings that are not"
        " finite; they count as like no other."
      )
      embeddings = np.where(is_finite, embeddings, 0.0)
    elif not np.all(is_finite):
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
    """Embeds the images of every split.

    Returns:
      Images, embeddings and compared pairs by split.

    Raises:
      errors.DivergedError: If embeddings of validation images are not finite.
        Those for test may be of users who train: a tuning must not rank a model
        by them.
    """
    found = {}
    for split, images in self.by_split.items():
      decides = split == "validation"
      found[split] = self._compare(
        images, with_metrics=self.with_metrics, decides=decides
      )
    return found

  def evaluate_all(self) -> dict[str, verification.VerificationResult]:
    """Results of every split.

    Returns:
      Results at the default false accept rates, by split.

    Raises:
      errors.DivergedError: As `embed_all`.
    """
    return {split: some.evaluate() for split, some in self.embed_all().items()}

  def validate(self, model_weights: Any) -> dict[str, float]:
    """Recalls on a fixed sample of validation images, by metrics.csv's names.

    Args:
      model_weights: As in `set_weights`.

    Returns:
      Recall in [0, 1] by name, such as "validation/recall_at_far_0.001".

    Raises:
      errors.DivergedError: If an embedding is not finite.
    """
    self.set_weights(model_weights)
    recalls = {}
    for rate, recall in (
      self._compare(self.sample).evaluate().recall_at_far.items()
    ):
      name = verification.format_false_accept_rate(rate)
      recalls[metrics.RECALL_PREFIX + name] = recall
    return recalls


def create_card(
  backbone: tf.keras.Model,
  embedded: Mapping[str, Embedded],
  privacy: report_lib.PrivacyReport,
  *,
  experiment: experiment_lib.Experiment,
  chain: chain_lib.Chain,
  kept: Mapping[str, Any],
) -> model_card.ModelCard:
  """Creates what goes along with the model of a complete run.

  Nothing in the card depends on where the run's files lie: paths among the
  settings are cut to their last parts.

  Args:
    backbone: The model.
    embedded: Its embeddings of held-out images, by split. Thresholds are those
      of the test images, or of users who were left out of training for it; a
      card has none by images of users who may train.
    privacy: Cost of the rounds.
    experiment: The run.
    chain: Chain of the run.
    kept: Round of the model, and how it was chosen.

  Returns:
    The card. It is given away: it has no noiseless figure of users who train.
  """
  task, spec = experiment.task, experiment.spec
  settings = spec.settings(with_paths=False)
  verified = None
  if task.validates_on_others:
    verified = _describe_verification(task, embedded)
  return model_card.ModelCard(
    image_shape=tuple(backbone.input_shape[1:]),
    embedding_dim=backbone.output_shape[1],
    preprocessing=(
      model_card.MIDDLE_CROP if task.has_images else model_card.AS_GIVEN
    ),
    verification=verified,
    privacy=model_card.describe_privacy(privacy),
    training={
      "task": task.name,
      "unit_of_privacy": task.user_meaning,
      # This is None if updates were summed in the clear.
      "secure_sums": experiment.secure_sums,
      "backbone": spec.algorithm.backbone.backbone or task.default_backbone,
      "settings": {k: v for k, v in settings.items() if v is not None},
      "kept": {name: kept[name] for name in _KEPT_TOLD},
      "code_version": chain.found["code_version"],
      "chain": chain.head,
      "tensorflow": tf.__version__,
    },
  )


def _describe_verification(
  task: task_lib.Task, embedded: Mapping[str, Embedded]
) -> dict[str, Any]:
  """Thresholds and recalls on images of users who do not train.

  Args:
    task: The task, of which one split has no image of a user who trains.
    embedded: Embedded images by split.

  Returns:
    JSON values by name, as `model_card.describe_verification` returns them.
  """
  split = "validation" if task.selection_users else "test"
  images = embedded[split]
  return model_card.describe_verification(
    images.evaluate(model_card.FALSE_ACCEPT_RATES),
    # The description of the split may name people, so leave it out.
    source=f"{split} images of task {task.name}",
    on_training_users=False,
    galleries=gallery_thresholds.measure(
      images.embeddings, images.images.labels
    ),
  )


def check_export(path: str | None, run_dir: str) -> None:
  """Refuses, before a run begins, a place where its backbone cannot be put.

  Args:
    path: Path of the backbone; None for none.
    run_dir: Directory of the run, which may not be the same.

  Raises:
    errors.FieldError: If there is something, or the place cannot be written.
  """
  if path is None:
    return
  target = pathlib.Path(path).absolute()
  is_free = not target.exists() and target != pathlib.Path(run_dir).absolute()
  parent = target.parent
  if not (is_free and parent.is_dir() and os.access(parent, os.W_OK)):
    raise errors.FieldError(
      "export_backbone",
      "be a path where there is nothing yet, in a directory that can be"
      " written to",
      repr(path),
    )


def export(run_dir: str, path: str) -> None:
  """Copies the backbone of a complete run, whole or not at all.

  Something that is there already is left as it is.

  Args:
    run_dir: Directory of the run.
    path: Place of the copy; a .h5 file gets the weights in half precision.

  Raises:
    errors.FieldError: If the run's own model is not there any more.
    OSError: If it cannot be written.
  """
  if os.path.exists(path):
    progress.say(f"There is something at {path} already; left as it is.")
    return
  model = pathlib.Path(run_dir) / run_directory.SAVED_MODEL
  if not model.is_dir():
    raise errors.FieldError(
      "run_dir", f"hold {run_directory.SAVED_MODEL}", f"{run_dir} without"
    )
  target = pathlib.Path(path).absolute()
  partial = target.with_name(f".{target.name}.partial")
  shutil.rmtree(partial, ignore_errors=True)
  if target.suffix == ".h5":
    pretrained.write_half(model, partial)
  else:
    shutil.copytree(model, partial)
  os.replace(partial, target)
  progress.say(f"Exported the backbone to {path}.")
