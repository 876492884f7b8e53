"""Models for phones and servers: a SavedModel in TensorFlow Lite, or in ONNX.

Program `export` reads its flags and calls `execute`; `run_federated` exports
with its flags. Each file is reported with its cost: the recall on the same
held-out pairs, its size, and the time for one image on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import hashlib
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.phones import tflite
from tff_fedemb.records import model_card
from tff_fedemb.records import output_files
from tff_fedemb.records import run_directory
from tff_fedemb.serving import exact_embeddings
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import onnx_files
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from tff_fedemb.phones import client_file
  from tff_fedemb.serving import saved_models

# Below the directory of a run.
FOLDER = "tflite"
# The format of a run's clients.
TRAINING = "training"

# An interpreter takes one image at a time.
_MAX_IMAGES = 2000
_say = progress.say
# JSON values on the accuracy of a model on the images, if there are any.
_Verification = dict[str, Any] | None
_Embed = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(image_sources.ImageConfig):
  """A conversion, and images on which to measure the difference.

  Attributes:
    saved_model: Directory of the SavedModel, such as release/saved_model
      of a run.
    run_dir: Directory of a run instead.
    output_dir: Directory for model_<format>.tflite, or model.onnx, and, beside
      each, its thresholds and guarantee as a .json file.
    formats: Numbers of the files for phones, float32, float16 or int8; or onnx;
      or training, a run's clients as training.tflite, to train on phones.
    image_folder: Folder with one sub-folder of images a class, to measure the
      difference in recall on.
    task: Benchmark on whose held-out images to measure it instead.
    split: Split of the task.
    max_images: Images drawn at random to measure on; 0: all.

  Raises:
    errors.FieldError: If there is no model or more than one, no format, two
      sources of images, or the training format without a run.
  """

  output_dir: str
  saved_model: str | None = None
  run_dir: str | None = None
  formats: tuple[str, ...] = config_lib.field(
    tflite.FORMATS, choices=tflite.FORMATS + (onnx_files.FORMAT, TRAINING)
  )
  split: str = config_lib.field("test", choices=task_lib.EVALUATION_SPLITS)
  max_images: int = config_lib.field(_MAX_IMAGES, minimum=0)

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of(saved_model=self.saved_model, run_dir=self.run_dir)
    if TRAINING in self.formats and self.run_dir is None:
      raise errors.FieldError("run_dir", "be given for formats=training", None)
    if self.image_folder and self.task:
      raise errors.FieldError("task", "not be given with image_folder", "both")
    if not self.formats:
      raise errors.FieldError("formats", "be one or more", "none")

  @property
  def model_path(self) -> str:
    """Directory of the SavedModel, of the run if `run_dir` is given."""
    if self.saved_model:
      return self.saved_model
    run_dir = checks.check_given("run_dir", self.run_dir)
    return os.path.join(run_dir, run_directory.SAVED_MODEL)


def export(
  run_dir: str | os.PathLike[str],
  output_dir: str | os.PathLike[str],
  *,
  task: task_lib.TaskSource | task_lib.Task | None = None,
  **options: Any,
) -> None:
  """Converts a run's model, or its clients' training, for phones.

  A card beside each file has its thresholds, its size and digest, and the
  model's guarantee. The guarantee covers the model; recall and thresholds are
  measured without noise, on the images that you give.

  Args:
    run_dir: Directory of the run.
    output_dir: Directory for the files.
    task: The run's task, if its data live in this program. The difference in
      recall is measured on it, unless there is an `image_folder`.
    **options: Other fields of `ExportConfig`, for example formats.

  Raises:
    errors.FieldError: If a format does not suit the model, or a setting the
      images or the files.
    errors.DataError: If an image cannot be used.

  Examples:
    >>> fe.export("runs/first", "runs/first/phone", formats=("onnx",))
  """
  run_dir = os.fspath(run_dir)
  output_dir = os.fspath(output_dir)
  config = ExportConfig(run_dir=run_dir, output_dir=output_dir, **options)
  if isinstance(task, task_lib.TaskSource):
    task = task.create()
  execute(config, task)


def execute(config: ExportConfig, task: task_lib.Task | None = None) -> None:
  """Converts a model, measures the files, and writes and reports them.

  Model, images and all paths are checked before the first file is written: that
  of the training format, if it is asked for. Each of the others is reported
  with its size, its time for one image and, if there are images, its recall.

  Args:
    config: Settings of the conversion.
    task: See `export`.

  Raises:
    errors.FieldError: As `export`.
    errors.DataError: As `export`.
  """
  formats = [name for name in config.formats if name != TRAINING]
  training = None
  if TRAINING in config.formats:
    training = _create_client_file(config, task)
    if not formats:
      _write_client_file(training, _prepare(config, [TRAINING])[TRAINING])
      return
  model = _load_model(config, formats)
  source, on_training_users = None, None
  if config.image_folder or config.task:
    source = config.open(config.split, model.image_shape)
  elif task is not None:
    source = image_sources.open_split(task, config.split)
    on_training_users = task.evaluation_on_training_users
  paths = _prepare(config, config.formats)
  if training is not None:
    _write_client_file(training, paths.pop(TRAINING))
  _export(config, model, paths, source, on_training_users)
  for warning in source.warnings if source else ():
    _say(f"warning: {warning}")


def _load_model(
  config: ExportConfig, formats: Sequence[str]
) -> saved_models.Model:
  """Loads the model to convert.

  Args:
    config: Settings of the conversion.
    formats: The formats, without `TRAINING`.

  Raises:
    errors.FieldError: If it is no SavedModel, or a package that its conversion
      takes is missing.
  """
  if not os.path.isdir(config.model_path):
    must = "be the directory of a SavedModel"
    raise errors.FieldError("saved_model", must, config.model_path)
  if onnx_files.FORMAT in formats:
    onnx_files.import_module("tf2onnx", "formats")
  return saved_models.load(config.model_path)


def _create_client_file(
  config: ExportConfig, task: task_lib.Task | None
) -> client_file.ClientFile:
  """Creates the file that trains on phones; it has no trained weights.

  Args:
    config: Settings of the conversion, with a `run_dir`.
    task: The run's task; None to create it from the run's spec.

  Raises:
    errors.FieldError: If the run cannot be trained on phones.
  """
  spec = spec_lib.read(checks.check_given("run_dir", config.run_dir))
  experiment = experiment_lib.resolve(spec, task or spec.task.create())
  return experiment.create_client_file()


def _write_client_file(
  file: client_file.ClientFile, path: pathlib.Path
) -> None:
  """Writes and reports the file that trains on phones."""
  _write(path, file.content, output_files.json_writer(file.describe()))
  _say(
    f"{path}: {len(file.content) / 1e3:.0f} kB; a client's training of"
    f" {file.backbone.name}, clipped to {file.clip_norm:g}."
  )


def check_task(task: task_lib.Task) -> None:
  """Checks that models of a task can be converted.

  Args:
    task: The task.

  Raises:
    errors.FieldError: If its examples are no images.
  """
  if not task.has_images:
    must = f"not be given for task {task.name}, whose examples are no images"
    raise errors.FieldError("export", must, "tflite")


def export_run(run_dir: str, task: task_lib.Task) -> None:
  """Converts the model of a complete run to all formats, in its directory.

  If all files exist already, they are left as they are.

  Args:
    run_dir: Directory of the run.
    task: The run's task, on whose test images recall is measured.

  Raises:
    errors.FieldError: If the model cannot be converted.
    errors.DataError: If an image cannot be used.
  """
  folder = os.path.join(run_dir, FOLDER)
  config = ExportConfig(run_dir=run_dir, output_dir=folder, overwrite=True)
  paths = _prepare(config, config.formats)
  if all(path.exists() for path in paths.values()):
    _say(f"The files for phones are in {folder} already; left as they are.")
    return
  model = saved_models.load(config.model_path)
  source = image_sources.open_split(task, "test")
  _export(config, model, paths, source, task.evaluation_on_training_users)


def _prepare(
  config: ExportConfig,
  formats: Sequence[str],
) -> dict[str, pathlib.Path]:
  """Returns the paths of files by format, if all can be written.

  The output directory is made.

  Args:
    config: Settings of the conversion.
    formats: The formats.

  Raises:
    errors.FieldError: If a file or its card exists and may not be replaced, or
      cannot be written.
  """
  names = {name: f"model_{name}{tflite.SUFFIX}" for name in tflite.FORMATS}
  names[onnx_files.FORMAT] = f"model{onnx_files.SUFFIX}"
  names[TRAINING] = f"{TRAINING}{tflite.SUFFIX}"
  with output_files.directory(config.output_dir) as folder:
    paths = {name: folder / names[name] for name in formats}
  for path in paths.values():
    for file in (path, saved_models.card_path(path)):
      output_files.check(
        {"output_dir": os.fspath(file)}, overwrite=config.overwrite
      )
  return paths


def _export(
  config: ExportConfig,
  model: saved_models.Model,
  paths: Mapping[str, pathlib.Path],
  source: image_sources.ImageSource | None,
  on_training_users: bool | None = None,
) -> None:
  """Writes a file of each format, and reports its cost.

  Args:
    config: Settings of the conversion.
    model: The model.
    paths: Files by format.
    source: Images to measure on; `None` measures no recall.
    on_training_users: Whether the images may be of users who trained.

  Raises:
    errors.FieldError: If the model has no such format, or a file cannot be
      written.
    errors.DataError: If an image cannot be used.
  """
  measure = functools.partial(
    _measure, source, config.max_images, on_training_users
  )
  original = measure(model.embed)
  before = _recalls(original)
  milliseconds = tflite.time_one_image(model.embed, model.image_shape)
  _say(f"SavedModel: {milliseconds:.2f} ms an image{_tell(original, {})}.")
  images = tflite.make_up_images(model.image_shape, 64)
  if source is not None:
    _, first = next(source.read(source.draw_rows(config.max_images)))
    images = np.concatenate([first, images])
  for number_format, path in paths.items():
    _say(f"Converting to {number_format} ...")
    content, embedder = _convert(config, number_format, images)
    measured = measure(embedder.embed)
    card = _create_card(model, embedder.embed(images[:1]).shape[1], measured)
    time = tflite.time_one_image(embedder.embed, model.image_shape)
    conversion = {
      "format": number_format,
      "recall_of_saved_model": before,
      "milliseconds_per_image": round(time, 4),
      "milliseconds_of_saved_model": round(milliseconds, 4),
    }
    card = dataclasses.replace(card, conversion=conversion)
    if number_format == onnx_files.FORMAT:
      content = onnx_files.add_card(content, card)
    # A file cannot contain its own digest, so only the card beside it has one.
    conversion["size_bytes"] = len(content)
    conversion["sha256"] = hashlib.sha256(content).hexdigest()
    _write(path, content, functools.partial(model_card.write, card))
    _say(
      f"{path}: {len(content) / 1e6:.2f} MB, {time:.2f} ms an image"
      f"{_tell(measured, before)}."
    )
  if source is None:
    _say(
      "The difference in recall was not measured: give images of known classes"
      " by image_folder or task."
    )


def _measure(
  source: image_sources.ImageSource | None,
  max_images: int,
  on_training_users: bool | None,
  embed: _Embed,
) -> _Verification:
  """Measures a model on some images; returns None if there are none.

  Args:
    source: Source of the images; None if there is none.
    max_images: Largest number of images to embed; 0 for all.
    on_training_users: Whether they may be of users who trained; None if that is
      unknown.
    embed: Maps uint8 images `[b, height, width, channels]` to `[b, dim]`.

  Returns:
    JSON values of `model_card.describe_verification`.

  Raises:
    errors.DataError: If an image cannot be used, or there are no pairs.
  """
  if source is None:
    return None
  result, embeddings, labels = image_sources.evaluate(
    embed,
    source,
    source.draw_rows(max_images),
    false_accept_rates=model_card.FALSE_ACCEPT_RATES,
  )
  return model_card.describe_verification(
    result,
    source=f"{_name(source)}, embedded by this file",
    on_training_users=on_training_users,
    galleries=gallery_thresholds.measure(embeddings, labels),
  )


def _convert(
  config: ExportConfig,
  number_format: str,
  images: np.ndarray,
) -> tuple[bytes, tflite.Embedder | onnx_files.Embedder]:
  """Converts the SavedModel; checks a file in ONNX on some images.

  Args:
    config: Settings of the conversion.
    number_format: A format other than `TRAINING`.
    images: Images for the check, `[n, height, width, channels]`.

  Returns:
    The contents of the file, and a runner of it.

  Raises:
    errors.FieldError: If the model cannot be converted, packages are missing,
      or the ONNX file gives other embeddings.
  """
  path = config.model_path
  if number_format == onnx_files.FORMAT:
    content = onnx_files.convert(path)
    embedder = onnx_files.Embedder(content)
    embedder.check(images, exact_embeddings.embed(path, images))
    return content, embedder
  content = tflite.convert(path, number_format)
  return content, tflite.Embedder(content)


def _name(source: image_sources.ImageSource) -> str:
  """Describes the images, a folder without its path."""
  folder = source.facts.get("image_folder")
  if folder is None:
    return source.description
  return f"images in {os.path.basename(os.path.abspath(folder))}"


def _create_card(
  model: saved_models.Model,
  embedding_dim: int,
  measured: _Verification,
) -> model_card.ModelCard:
  """Returns the SavedModel's card, with thresholds of the file if any.

  Args:
    model: The SavedModel; without a card, a new one is made.
    embedding_dim: Numbers of an embedding.
    measured: Result of `_measure` for the file. Without thresholds, those of
      the SavedModel stay, and their source says so.
  """
  card = model.card or model_card.ModelCard(
    image_shape=model.image_shape, embedding_dim=embedding_dim
  )
  found = card.verification
  if measured is not None and measured["at_far"]:
    found = measured
  elif found:
    source = f"{found['source']}, embedded by the SavedModel"
    found = {**found, "source": source}
  return dataclasses.replace(card, verification=found)


def _write(
  path: pathlib.Path,
  content: bytes,
  write_card: Callable[[pathlib.Path], object],
) -> None:
  """Writes a file, and its card beside it.

  Args:
    path: The file.
    content: Its contents.
    write_card: Writes the card to a path.

  Raises:
    errors.FieldError: If one of them cannot be written; then neither is.
  """
  card_path = os.fspath(saved_models.card_path(path))

  def write(file: pathlib.Path) -> None:
    file.write_bytes(content)

  output_files.write(
    {"card": (card_path, write_card), "output_dir": (os.fspath(path), write)}
  )


def _recalls(measured: _Verification) -> dict[str, float]:
  """Returns recall by false accept rate, if it was measured.

  Args:
    measured: Result of `_measure`.

  Returns:
    Recall in [0, 1] by formatted rate; empty if nothing was measured.
  """
  if measured is None:
    return {}
  return {rate: found["recall"] for rate, found in measured["at_far"].items()}


def _tell(measured: _Verification, before: Mapping[str, float]) -> str:
  """Describes the recall, and its difference from before.

  Args:
    measured: Result of `_measure` for a file.
    before: Recall of the SavedModel by false accept rate; empty for itself.

  Returns:
    A continuation of a sentence, which begins with a comma; or nothing.
  """
  words = ""
  for rate, recall in _recalls(measured).items():
    words += f", recall {recall:.4f} at FAR {rate}"
    if before:
      words += f" ({recall - before[rate]:+.4f})"
  return words
