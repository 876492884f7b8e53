"""One evaluation of an exported model, from its images to the report.

What `evaluate` does once its flags are read.
"""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import numpy as np

from experiments import command_line
from experiments import image_sources
from experiments import output_files
from experiments import saved_models
from tasks import task as task_lib
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import training_plots as plots


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
  """What to evaluate, on what, and where to write.

  Attributes:
    saved_model: Directory of the SavedModel.
    output_json: File to write.
    image_folder: Folder with one sub-folder a class, or `None` for a task.
    task: Name of a task, or `None` for a folder.
    data_dir: Where the task's data are, or `None` for its default.
    cache_dir: Where the task may keep converted copies of data.
    split: The task's split, a name in `task.EVALUATION_SPLITS`.
    roc_png: Picture of the ROC curve to write, or `None`.
    max_images: Images drawn at random from all, 0 for all.
    on_bad_example: What to do about a damaged image, one of
      `bad_examples.POLICIES`.
    overwrite: Whether files may be replaced.
    task_variant: Which of the task's data sets, or `None` for its first.
  """

  saved_model: str | None
  output_json: str | None
  image_folder: str | None = None
  task: str | None = None
  data_dir: str | None = None
  cache_dir: str | None = None
  split: str = "test"
  roc_png: str | None = None
  max_images: int = 0
  on_bad_example: str = "fail"
  overwrite: bool = False
  task_variant: str | None = None

  def __post_init__(self):
    for name in ("saved_model", "output_json"):
      if not getattr(self, name):
        raise ValueError(f"{name} must be given.")
    if bool(self.image_folder) == bool(self.task):
      raise ValueError(
        "image_folder or task must be given, one of the two, found"
        f" {'both' if self.task else 'neither'}."
      )
    for name in ("data_dir", "task_variant"):
      if getattr(self, name) and not self.task:
        raise ValueError(f"{name} must be given with --task only.")
    for name, choices in (
      ("split", task_lib.EVALUATION_SPLITS),
      ("on_bad_example", bad_examples.POLICIES),
    ):
      if getattr(self, name) not in choices:
        raise ValueError(
          f"{name} must be one of {list(choices)}, found"
          f" {getattr(self, name)!r}."
        )
    if self.max_images < 0:
      raise ValueError(
        f"max_images must be at least 0, found {self.max_images}."
      )


@dataclasses.dataclass(frozen=True)
class _EmbeddedImages:
  """Embeddings, and what the report says of the images.

  Attributes:
    embeddings: `[n, dim]`.
    labels: `[n]`.
    source: JSON values by name.
    description: The source in a few words.
    warnings: What went by without being evaluated.
  """

  embeddings: np.ndarray
  labels: np.ndarray
  source: dict[str, Any]
  description: str
  warnings: tuple[str, ...] = ()


def execute(config: EvaluationConfig) -> None:
  """Embeds the images, compares all pairs, and writes and prints the result.

  Args:
    config: What to do.

  Raises:
    UsageError: If it cannot be done; nothing is written then.
  """
  output_files.check(
    {"output_json": config.output_json, "roc_png": config.roc_png},
    overwrite=config.overwrite,
  )
  model = saved_models.Model(config.saved_model)
  embed_source = _embed_task if config.task else _embed_folder
  embedded = embed_source(model, config)
  try:
    result = verification.evaluate_pairs(embedded.embeddings, embedded.labels)
  except errors.FieldError as error:
    raise command_line.UsageError(
      f"{embedded.description} and --saved_model={config.saved_model} give"
      f" no result: {error}"
    ) from error
  result = dataclasses.replace(
    result, warnings=(*embedded.warnings, *result.warnings)
  )
  _write(config, result, embedded.source)
  _tell(config, result, embedded.description)


def _embed_task(
  model: saved_models.Model, config: EvaluationConfig
) -> _EmbeddedImages:
  task = image_sources.create_task(
    config.task,
    task_lib.TaskConfig(
      config.data_dir,
      config.cache_dir,
      task_variant=config.task_variant,
      on_bad_example=config.on_bad_example,
    ),
    model.image_shape,
  )
  source = image_sources.open_held_out(task, config.split)
  embeddings, labels = _embed(model, config, source)
  return _EmbeddedImages(
    embeddings,
    labels,
    {
      "task": task.name,
      "task_variant": config.task_variant,
      "split": config.split,
      "split_description": task.split_description,
      "data_dir": config.data_dir,
      "num_images_found": len(source.labels),
      "bad_examples": list(task.bad_examples.lines),
    },
    source.description,
    tuple(
      f"left out {bad_examples.summarize(lines)}"
      for lines in [task.bad_examples.lines]
      if lines
    ),
  )


def _embed_folder(
  model: saved_models.Model, config: EvaluationConfig
) -> _EmbeddedImages:
  source = image_sources.open_folder(
    config.image_folder,
    model.image_shape,
    on_bad_example=config.on_bad_example,
  )
  embeddings, labels = _embed(model, config, source)
  return _EmbeddedImages(
    embeddings,
    labels,
    {
      "image_folder": config.image_folder,
      "num_images_found": len(source.labels),
      "num_skipped": len(source.skipped),
      "skipped": source.skipped,
      "num_ignored": len(source.ignored),
    },
    source.description,
    source.warnings,
  )


def _embed(
  model: saved_models.Model,
  config: EvaluationConfig,
  source: image_sources.ImageSource,
) -> tuple[np.ndarray, np.ndarray]:
  """Embeddings and labels of the images, or of those drawn at random."""
  rows = image_sources.draw_rows(
    np.arange(len(source.labels)),
    config.max_images,
    np.random.default_rng(0),
  )
  embeddings, rows = image_sources.embed_rows(model.embed, source, rows)
  return embeddings, source.labels[rows]


def _write(
  config: EvaluationConfig,
  result: verification.VerificationResult,
  source: dict[str, Any],
) -> None:
  """Writes all files, each whole, or none."""
  report = {
    **result.to_json(),
    "saved_model": config.saved_model,
    "source": {**source, "max_images": config.max_images},
  }
  text = json.dumps(report, indent=2, allow_nan=False) + "\n"
  writers = {
    "output_json": (
      config.output_json,
      functools.partial(pathlib.Path.write_text, data=text, encoding="utf-8"),
    )
  }
  if config.roc_png:
    writers["roc_png"] = (
      config.roc_png,
      functools.partial(
        plots.plot, panel=plots.RocPanel({"this model": result})
      ),
    )
  output_files.write(writers)


def _tell(
  config: EvaluationConfig,
  result: verification.VerificationResult,
  description: str,
) -> None:
  """Prints the outcome."""
  print(f"{config.saved_model} on {description}:")
  print(
    f"{result.num_images:,} images of {result.num_classes:,} classes,"
    f" {result.num_positive_pairs:,} pairs of the same class and"
    f" {result.num_negative_pairs:,} of two."
  )
  print()
  interval = f"{result.confidence:.0%} interval (classes)"
  print(f"  {'FAR':<8}{'recall':<10}{interval:<26}threshold")
  for rate, recall in result.recall_at_far.items():
    low, high = result.recall_class_interval_at_far[rate]
    print(
      f"  {verification.format_false_accept_rate(rate):<8}{recall:<10.4f}"
      f"{f'[{low:.4f}, {high:.4f}]':<26}"
      f"{result.threshold_at_far[rate]:.4f}"
    )
  print(f"  AUC     {result.auc:.4f}")
  print()
  for warning in result.warnings:
    print(f"warning: {warning}")
  print(
    f"Written to {config.output_json}"
    f"{f' and {config.roc_png}' if config.roc_png else ''}."
  )
