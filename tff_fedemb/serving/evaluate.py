"""One evaluation of an exported model, from its images to the report.

What `evaluate` does once its flags are read.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import pathlib
from typing import Any

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb import runtime as runtimes
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  from tff_fedemb.evaluation import retrieval
  from tff_fedemb.evaluation import verification
  from tff_fedemb.plots import training_plots as plots
  from tff_fedemb.serving import saved_models


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig(image_sources.ImageConfig):
  """What to evaluate, on what, and where to write.

  Attributes:
    saved_model: Directory of the SavedModel, such as release/saved_model
      of a run.
    split: Split of the task.
    output_json: File for the result, in a directory that exists.
    roc_png: File for a picture of the ROC curve [none].
    metrics: Whether to measure EER, d', precision at 1, R-precision, MAP@R, MRR
      and NMI too.
  """

  saved_model: str
  split: str = config_lib.field("test", choices=task_lib.EVALUATION_SPLITS)
  output_json: str
  roc_png: str | None = None
  metrics: bool = False

  def __post_init__(self):
    super().__post_init__()
    if bool(self.image_folder) == bool(self.task):
      raise errors.FieldError(
        "image_folder",
        "be given, or a task, one of the two",
        "both" if self.task else "neither",
      )


def execute(
  config: EvaluationConfig,
  runtime: runtimes.RuntimeConfig = runtimes.RuntimeConfig(),  # noqa: B008
) -> None:
  """Embeds the images, compares all pairs, and writes and prints the result.

  Args:
    config: What to evaluate.
    runtime: Where images are embedded.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If data cannot be used; neither then.
  """
  output_files.check(
    {"output_json": config.output_json, "roc_png": config.roc_png},
    overwrite=config.overwrite,
  )
  model = saved_models.load(config.saved_model)
  source = config.open(config.split, model.image_shape)
  rows = source.draw_rows(config.max_images)
  num_found = len(source.labels) if len(rows) < len(source.labels) else None
  with runtime.open_map() as map_fn:
    result = image_sources.evaluate(
      model,
      source,
      rows,
      map_fn=map_fn,
      num_found=num_found,
      with_metrics=config.metrics,
    )
  result = dataclasses.replace(
    result, warnings=(*source.warnings, *result.warnings)
  )
  about = {
    **source.facts,
    "num_images_found": len(source.labels),
    "max_images": config.max_images,
  }
  if config.image_folder:
    about |= {"num_skipped": len(source.skipped), "skipped": source.skipped}
  _write(config, result, about)
  _tell(config, result, source.description)


def _write(
  config: EvaluationConfig,
  result: verification.VerificationResult,
  about: dict[str, Any],
) -> None:
  """Writes all files, each whole, or none."""
  report = {
    **result.to_json(),
    "saved_model": config.saved_model,
    "source": about,
  }
  split = "the folder's" if config.image_folder else config.split
  panel = plots.RocPanel({"this model": result}, images=f"{split} images")
  writers: dict[str, tuple[str, Callable[[pathlib.Path], object]]] = {
    "output_json": (config.output_json, output_files.json_writer(report))
  }
  if config.roc_png:
    writers["roc_png"] = config.roc_png, lambda path: plots.plot(path, panel)
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
  for name, value in (result.metrics or {}).items():
    print(f"  {retrieval.TITLES[name]:<16}{retrieval.format_metric(value)}")
  print()
  for warning in result.warnings:
    print(f"warning: {warning}")
  print(
    f"Written to {config.output_json}"
    f"{f' and {config.roc_png}' if config.roc_png else ''}."
  )
