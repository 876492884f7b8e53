"""The backbone that a run starts from, and the card of the one it trains."""

from collections.abc import Callable, Mapping
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tff_fedemb import errors
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.models import pretrained
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import model_card
from tff_fedemb.program import run_directory
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.training import held_out

RECORD = "pretrained.json"
_ASSUMPTION = (
  "made from public data: no epsilon here accounts for what these weights"
  " know of the users"
)


@dataclasses.dataclass(frozen=True)
class Start:
  """Start of a run that does not start from random weights.

  Attributes:
    weights: Weights of the backbone, in Keras' order; `None` for a run that
      goes on from a checkpoint, which has them.
    record: JSON values by name: the file, a digest of its weights and, once
      there is one, their evaluation.
  """

  weights: list[np.ndarray] | None
  record: dict[str, Any]


def load_start(
  create_backbone: Callable[[], tf.keras.Model], path: str | None, run_dir: str
) -> Start | None:
  """Loads what a run starts from, before anything of it is written.

  Args:
    create_backbone: Makes a backbone.
    path: A SavedModel or Keras weights; `None` for random ones: no start.
    run_dir: The run's directory, which need not be there.

  Raises:
    FieldError: If the weights do not fit, or are not those that the run in
      the directory has begun with.
  """
  if path is None:
    return None
  root = pathlib.Path(run_dir)
  record = run_directory.read_json(root / RECORD)
  if record and run_directory.checkpointed_rounds(root):
    return Start(None, record)
  # A backbone of its own: one made before the process would be disowned.
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
  tqdm.tqdm.write(f"{loaded.text} They must be {_ASSUMPTION}.")
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


def create_card(
  backbone: tf.keras.Model,
  embedded: Mapping[str, held_out.Embedded],
  privacy: report_lib.PrivacyReport,
  *,
  experiment: experiment_lib.Experiment,
  chain: chain_lib.Chain,
) -> model_card.ModelCard:
  """Creates what goes along with the model of a complete run.

  Args:
    backbone: The model.
    embedded: Its embeddings of held-out images, by split. Thresholds are those
      of the test images, or of users who were left out of training for it; a
      card has none by images of users who may train.
    privacy: Cost of the rounds.
    experiment: The run.
    chain: Chain of the run.
  """
  task = experiment.task
  split = "validation" if task.selection_users else "test"
  # The card is given away, so it has no noiseless figure of users who train.
  is_of_others = task.selection_users or not task.evaluation_on_training_users
  return model_card.ModelCard(
    image_shape=tuple(backbone.input_shape[1:]),
    embedding_dim=backbone.output_shape[1],
    preprocessing=(
      model_card.MIDDLE_CROP if task.has_images else model_card.AS_GIVEN
    ),
    verification=model_card.describe_verification(
      embedded[split].evaluate(model_card.FALSE_ACCEPT_RATES),
      # Its split may name people.
      source=f"{split} images of task {task.name}",
      on_training_users=False,
      galleries=gallery_thresholds.measure(
        embedded[split].embeddings, embedded[split].images.labels
      ),
    )
    if is_of_others
    else None,
    privacy=model_card.describe_privacy(privacy),
    training={
      "task": task.name,
      "unit_of_privacy": task.user_meaning,
      # None where updates were summed in the clear.
      "secure_sums": experiment.secure_sums,
      "backbone": (
        experiment.spec.algorithm.backbone.backbone or task.default_backbone
      ),
      "settings": {
        name: value
        for name, value in experiment.spec.settings(with_paths=False).items()
        if value is not None
      },
      "code_version": chain.found["code_version"],
      "chain": chain.head,
      "tensorflow": tf.__version__,
    },
  )
