"""One evaluation of an exported model, from its images to the report.

Program `evaluate` reads its flags and calls `execute`.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb import runtime as runtimes
from tff_fedemb.records import output_files
from tff_fedemb.serving import image_sources
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.data import photo_table
  from tff_fedemb.evaluation import gallery_thresholds
  from tff_fedemb.evaluation import groups
  from tff_fedemb.evaluation import rates as rates_lib
  from tff_fedemb.evaluation import recognition
  from tff_fedemb.evaluation import retrieval
  from tff_fedemb.evaluation import verification
  from tff_fedemb.serving import saved_models


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig(image_sources.ImageConfig):
  """Settings of an evaluation.

  Attributes:
    saved_model: Directory of the SavedModel, such as release/saved_model
      of a run.
    split: Split of the task.
    output_json: File for the result, in a directory that exists.
    group_column: Column of the task's table that says of which group a class
      is, to measure each group of 20 classes or more by itself [none].
    metrics: Whether to measure EER, d', precision at 1, R-precision, MAP@R, MRR
      and NMI too.

  Raises:
    errors.FieldError: If there is no source of images or more than one, or a
      column of groups without a table.
  """

  saved_model: str
  split: str = config_lib.field("test", choices=task_lib.EVALUATION_SPLITS)
  output_json: str
  group_column: str | None = None
  metrics: bool = False

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of(image_folder=self.image_folder, task=self.task)
    table = getattr(self.task, "table", None)
    if self.group_column is not None and table is None:
      must = "be given with a table alone"
      raise errors.FieldError("group_column", must, repr(self.group_column))


def execute(
  config: EvaluationConfig,
  runtime: runtimes.RuntimeConfig = runtimes.RuntimeConfig(),  # noqa: B008
) -> None:
  """Embeds the images, compares all pairs, and writes and prints the result.

  The report has recall and thresholds by false accept rate, thresholds for
  galleries, the result of identification and, if a column is given, figures by
  group.

  Args:
    config: Settings of the evaluation.
    runtime: Runtime that embeds the images.

  Raises:
    errors.FieldError: If a setting does not suit the model, the images or the
      files; nothing is written.
    errors.DataError: If data cannot be used; nothing is written.
  """
  inputs = config.inputs
  if os.path.isfile(config.saved_model):
    card = saved_models.card_path(config.saved_model)
    inputs["saved_model"] = [config.saved_model, os.fspath(card)]
  output_files.check(
    {"output_json": config.output_json},
    overwrite=config.overwrite,
    inputs=inputs,
  )
  model = saved_models.load(config.saved_model)
  source = config.open(config.split, model.image_shape)
  rows = source.draw_rows(config.max_images)
  num_found = None
  if len(rows) < len(source.labels):
    num_found = len(source.labels)
  # Check the column of groups before the work.
  of_classes, shares = _read_groups(config, source)
  with runtime.open_map() as map_fn:
    result, embeddings, labels = image_sources.evaluate(
      model,
      source,
      rows,
      map_fn=map_fn,
      num_found=num_found,
      with_metrics=config.metrics,
    )
  warnings = source.warnings + result.warnings
  result = dataclasses.replace(result, warnings=warnings)
  report = _describe(config, source, result, embeddings, labels)
  found = []
  notes = []
  if config.group_column:
    found, notes = groups.evaluate(
      embeddings,
      labels,
      np.array([of_classes.get(x, "") for x in labels.tolist()]),
      threshold=result.threshold_at_far[groups.FALSE_ACCEPT_RATE],
      training_shares=shares,
    )
    values = list(map(dataclasses.asdict, found))
    report["groups"] = {"groups": values, "notes": notes}
  output_files.write_json(config.output_json, report)
  _tell(config, result, source.description)
  if config.group_column:
    _tell_groups(found, notes)
  rest = f"Written to {config.output_json}."
  progress.say(progress.end([], warnings=warnings, rest=rest))


def _describe(
  config: EvaluationConfig,
  source: image_sources.ImageSource,
  result: verification.VerificationResult,
  embeddings: np.ndarray,
  labels: np.ndarray,
) -> dict[str, Any]:
  """Returns the JSON values of the report, but for groups.

  Args:
    config: Settings of the evaluation.
    source: The images.
    result: Result of comparing all pairs.
    embeddings: `[n, dim]`.
    labels: Class of each embedding, int64 `[n]`.
  """
  about = {
    **source.facts,
    "num_images_found": len(source.labels),
    "max_images": config.max_images,
  }
  if config.image_folder:
    about["num_skipped"] = len(source.skipped)
    about["skipped"] = source.skipped
  recognized = recognition.evaluate(embeddings, labels)
  return {
    **result.to_json(),
    "galleries": gallery_thresholds.measure(embeddings, labels),
    "identification": recognition.to_json(recognized),
    "groups": None,
    "saved_model": config.saved_model,
    "source": about,
  }


def _read_groups(
  config: EvaluationConfig,
  source: image_sources.ImageSource,
) -> tuple[dict[int, str], dict[str, float] | None]:
  """Reads the groups of a task's table.

  Args:
    config: Settings of the evaluation.
    source: The images of a task with a table.

  Returns:
    The group of each held-out class, by label; and the share of each group in
    the users who train, or `None` if the table does not tell who trains.

  Raises:
    errors.FieldError: If there is no such column.
    errors.DataError: If a class is of two groups.
  """
  if config.group_column is None:
    return {}, None
  table = pathlib.Path(getattr(config.task, "table", ""))
  rows = photo_table.read_groups(table, config.group_column)
  known = rows.groupby("label")["group"].unique()
  for name, found in known[known.map(len) > 1].items():
    raise errors.DataError(
      f"{table} must have one {config.group_column} for each class,"
      f" found {found[0]} and {found[1]} for {name}."
    )
  of_classes = {}
  for label, name in source.class_names.items():
    if name in known:
      of_classes[label] = known[name][0]
  held_out = list(source.class_names.values())
  of_users = rows[~rows["label"].isin(held_out)]
  num_users = of_users["user"].nunique()
  if num_users != source.facts["num_training_users"]:
    return of_classes, None
  of_users = of_users.drop_duplicates(["user", "group"])
  shares = of_users["group"].value_counts() / num_users
  return of_classes, dict(shares)


def _tell(
  config: EvaluationConfig,
  result: verification.VerificationResult,
  description: str,
) -> None:
  """Prints recall at each false accept rate, and other figures.

  Args:
    config: Settings of the evaluation.
    result: Result of comparing all pairs.
    description: The images in a few words.
  """
  intervals = result.recall_class_interval_at_far
  rows = []
  for rate, recall in result.recall_at_far.items():
    low, high = intervals[rate]
    rows.append(
      {
        "FAR": verification.format_false_accept_rate(rate),
        "recall": f"{recall:.4f}",
        "interval": f"[{low:.4f}, {high:.4f}]",
        "threshold": f"{result.threshold_at_far[rate]:.4f}",
      }
    )
  table = pd.DataFrame(rows)
  progress.say(
    f"{config.saved_model} on {description}:\n{result.num_images:,} images of"
    f" {result.num_classes:,} classes, {result.num_positive_pairs:,} pairs of"
    f" the same class and {result.num_negative_pairs:,} of two.\n\n"
    f"{table.to_string(index=False)}\n\nIntervals: {result.confidence:.0%}"
    f" (classes). AUC {result.auc:.4f}"
  )
  for name, value in (result.metrics or {}).items():
    progress.say(
      f"  {retrieval.TITLES[name]:<16}{retrieval.format_metric(value)}"
    )
  progress.say("")


def _tell_groups(found: Sequence[groups.Group], notes: Sequence[str]) -> None:
  """Prints the figures of groups.

  Args:
    found: The groups.
    notes: Lines about what was not measured.
  """

  def show(rate: rates_lib.Rate | None) -> str:
    if rate is None:
      return "-"
    return f"{rate.value:.4f} [{rate.low:.4f}, {rate.high:.4f}]"

  rows = []
  for group in found:
    row = {
      "group": group.name,
      "classes": group.num_classes,
      "FAR": show(group.far),
      "recall": show(group.recall),
      "FNIR": show(group.fnir),
      "training users": group.share_of_training_users,
    }
    rows.append(row)
  table = pd.DataFrame(rows).to_string(index=False) if rows else "none"
  progress.say(
    f"Groups, at the thresholds of all: FAR {groups.FALSE_ACCEPT_RATE:g}, and"
    f" {groups.FALSE_POSITIVE_RATE:g} of strangers to a gallery of"
    f" {groups.GALLERY_SIZE}.\n{table}"
  )
  for note in notes:
    progress.say(f"note: {note}")
  progress.say("")
