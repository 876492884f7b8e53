"""One evaluation of an exported model, from its images to the report.

What `evaluate` does once its flags are read.
"""

from collections.abc import Iterator
import dataclasses
import functools
import json
import os
import pathlib
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from binaries import command_line
from tasks import registry as task_registry
from tasks import task as task_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.data import image_folder as image_folder_lib
from tff_fedemb.evaluation import embedding
from tff_fedemb.evaluation import plots
from tff_fedemb.evaluation import verification

_SIGNATURE = "serving_default"
_NAMED_EXAMPLES = 5


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
    if self.roc_png and os.path.abspath(self.roc_png) == os.path.abspath(
        self.output_json
    ):
      raise ValueError("roc_png must be another file than --output_json.")
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


class _Model:
  """A SavedModel whose default signature maps images to embeddings."""

  def __init__(self, path: str):
    try:
      self._module = tf.saved_model.load(path)
    # TensorFlow raises whatever comes of the part that is damaged.
    except Exception as error:
      raise command_line.UsageError(
          f"--saved_model must be the directory of a SavedModel, found {path}:"
          f" {error}"
      ) from error
    self._embed = self._module.signatures.get(_SIGNATURE)
    if self._embed is None or not self._has_right_form():
      raise command_line.UsageError(
          f"--saved_model must have a signature {_SIGNATURE!r} from images"
          " float32 [batch, height, width, channels], 1 or 3 channels, to"
          f" embeddings float32 [batch, dim], found {self._describe(path)}."
      )
    self.image_shape: tuple[int, int, int] = tuple(
        self._inputs["images"].shape[1:].as_list()
    )

  @property
  def _inputs(self) -> dict[str, tf.TensorSpec]:
    return self._embed.structured_input_signature[1]

  def _has_right_form(self) -> bool:
    inputs, outputs = self._inputs, self._embed.structured_outputs
    if set(inputs) != {"images"} or "embeddings" not in outputs:
      return False
    images, embeddings = inputs["images"], outputs["embeddings"]
    return (
        images.dtype == embeddings.dtype == tf.float32
        and images.shape.rank == 4
        and embeddings.shape.rank == 2
        and images.shape[0] is None
        and images.shape[1:].is_fully_defined()
        and images.shape[3] in (1, 3)
    )

  def _describe(self, path: str) -> str:
    if self._embed is None:
      names = sorted(self._module.signatures)
      return f"{path} with signatures {names}"

    def specs(tensors):
      return ", ".join(
          f"{name} {spec.dtype.name} {spec.shape}"
          for name, spec in sorted(tensors.items())
      )

    outputs = self._embed.structured_outputs
    return f"{path} from {specs(self._inputs)} to {specs(outputs)}"

  def embed(self, images: np.ndarray) -> np.ndarray:
    """Embeds uint8 images `[batch, height, width, channels]`."""
    return self._embed(images=tf.constant(images, tf.float32))[
        "embeddings"
    ].numpy()


def execute(config: EvaluationConfig) -> None:
  """Embeds the images, compares all pairs, and writes and prints the result.

  Args:
    config: What to do.

  Raises:
    UsageError: If it cannot be done; nothing is written then.
  """
  for name in ("output_json", "roc_png"):
    _check_writable(name, getattr(config, name), overwrite=config.overwrite)
  model = _Model(config.saved_model)
  embed_source = _embed_task if config.task else _embed_folder
  embedded = embed_source(model, config)
  try:
    result = verification.evaluate_pairs(embedded.embeddings, embedded.labels)
  except ValueError as error:
    raise command_line.UsageError(
        f"{embedded.description} and --saved_model={config.saved_model} give"
        f" no result: {error}."
    ) from error
  result = dataclasses.replace(
      result, warnings=(*embedded.warnings, *result.warnings)
  )
  _write(config, result, embedded.source)
  _tell(config, result, embedded.description)


def _check_writable(name: str, path: str | None, *, overwrite: bool) -> None:
  """Finds out before the work whether its result can be written."""
  if path is None:
    return
  target = pathlib.Path(path)
  try:
    if target.is_dir():
      raise command_line.UsageError(
          f"--{name} must be a file, found directory {path}."
      )
    if target.exists() and not overwrite:
      raise command_line.UsageError(
          f"--{name} must be a new file unless --overwrite is given, found"
          f" {path}."
      )
    with tempfile.NamedTemporaryFile(dir=target.parent):
      pass
  except OSError as error:
    raise command_line.UsageError(
        f"--{name} must be in a directory that can be written, found {path}:"
        f" {error.strerror}."
    ) from error


def _embed_task(model: _Model, config: EvaluationConfig) -> _EmbeddedImages:
  task_config = task_lib.TaskConfig(
      config.data_dir,
      config.cache_dir,
      variant=config.task_variant,
      on_bad_example=config.on_bad_example,
  )
  create_task = functools.partial(
      command_line.call_with_flags, task_registry.create_task, config.task
  )
  task = create_task(task_config)
  if task.decode_images is not None:
    # Photos are decoded to the size that the model takes.
    task = create_task(
        dataclasses.replace(task_config, image_size=model.image_shape[0])
    )
  if task.image_shape != model.image_shape:
    raise command_line.UsageError(
        f"--saved_model must take images of {list(task.image_shape)}, the size"
        f" of task {task.name}, found {list(model.image_shape)}."
    )
  images = command_line.call_with_flags(task.load_images, config.split)
  num_found = len(images.labels)
  size = embedding.batch_size(model.image_shape)
  if config.max_images:
    images = images.subsample(config.max_images)
  return _EmbeddedImages(
      # Images may be decoded, and found to be damaged, as they are embedded.
      command_line.call_with_flags(
          _embed_batches,
          model,
          (
              images.images[start : start + size]
              for start in range(0, len(images.labels), size)
          ),
          len(images.labels),
      ),
      images.labels,
      {
          "task": task.name,
          "task_variant": config.task_variant,
          "split": config.split,
          "split_description": task.split_description,
          "data_dir": config.data_dir,
          "num_images_found": num_found,
          "bad_examples": list(task.bad_examples.lines),
      },
      f"{config.split} images of task {task.name}",
      tuple(
          f"left out {bad_examples.summarize(lines)}"
          for lines in [task.bad_examples.lines]
          if lines
      ),
  )


def _embed_folder(model: _Model, config: EvaluationConfig) -> _EmbeddedImages:
  folder = command_line.call_with_flags(
      image_folder_lib.list_images, config.image_folder
  )
  num_found = len(folder.paths)
  if config.max_images:
    folder = folder.subsample(config.max_images)
  labels: list[int] = []
  skipped: list[pathlib.Path] = []

  def read_batches() -> Iterator[np.ndarray]:
    size = embedding.batch_size(model.image_shape)
    for start in range(0, len(folder.paths), size):
      rows = slice(start, start + size)
      batch = []
      for path, label in zip(
          folder.paths[rows], folder.labels[rows], strict=True
      ):
        try:
          batch.append(image_folder_lib.read_image(path, model.image_shape))
        except image_folder_lib.ImageFolderError as error:
          if config.on_bad_example == "fail":
            raise command_line.UsageError(
                f"{error} --on_bad_example=skip leaves such images out."
            ) from error
          skipped.append(path)
        else:
          labels.append(int(label))
      if batch:
        yield np.stack(batch)

  embeddings = _embed_batches(model, read_batches(), len(folder.paths))
  warnings = []
  for paths, what in (
      (skipped, "could not be read and were skipped"),
      (folder.ignored, "in the folder are no images by their name"),
  ):
    if paths:
      warnings.append(f"{len(paths):,} files {what}: {_name_some(paths)}")
  return _EmbeddedImages(
      embeddings,
      np.array(labels, np.int64),
      {
          "image_folder": config.image_folder,
          "num_images_found": num_found,
          "num_skipped": len(skipped),
          "skipped": [os.fspath(path) for path in skipped],
          "num_ignored": len(folder.ignored),
      },
      f"images in {config.image_folder}",
      tuple(warnings),
  )


def _name_some(paths) -> str:
  names = ", ".join(os.fspath(path) for path in paths[:_NAMED_EXAMPLES])
  return names + (", ..." if len(paths) > _NAMED_EXAMPLES else "")


def _embed_batches(
    model: _Model, batches: Iterator[np.ndarray], num_images: int
) -> np.ndarray:
  embeddings = [np.zeros([0, 1], np.float32)]
  with tqdm.tqdm(
      total=num_images, desc="Embedding", unit=" images", disable=None
  ) as progress:
    for batch in batches:
      embeddings.append(model.embed(batch))
      progress.update(len(batch))
  return np.concatenate(embeddings[1:] or embeddings)


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
  targets = [path for path in (config.output_json, config.roc_png) if path]
  temporaries = [
      pathlib.Path(path).with_name(f".{pathlib.Path(path).name}.partial")
      for path in targets
  ]
  try:
    temporaries[0].write_text(
        json.dumps(report, indent=2, allow_nan=False) + "\n", encoding="utf-8"
    )
    if config.roc_png:
      plots.plot_roc(temporaries[1], {"this model": result})
    for temporary, target in zip(temporaries, targets, strict=True):
      os.replace(temporary, target)
  except OSError as error:
    raise command_line.UsageError(
        f"--output_json must be writable, and so must --roc_png: {error}."
    ) from error
  finally:
    for temporary in temporaries:
      temporary.unlink(missing_ok=True)


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
