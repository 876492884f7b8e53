"""Models for phones and servers: a SavedModel in TensorFlow Lite, or in ONNX.

What `export` does once its flags are read, and `run_federated` with its own.
Each file is told with what it costs: the recall on the same held-out pairs, its
size, and the time for one image on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np
import tqdm

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.program import model_card
from tff_fedemb.program import onnx_files
from tff_fedemb.program import run_directory
from tff_fedemb.program import tflite
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import spec as spec_lib
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  from tff_fedemb.evaluation import verification
  from tff_fedemb.serving import saved_models

# Below the directory of a run.
FOLDER = "tflite"
# The format of a run's clients.
TRAINING = "training"

_NUM_CALIBRATION_IMAGES = 200
# An interpreter takes one image at a time.
_MAX_IMAGES = 2000
_say = tqdm.tqdm.write
_Embedder = tflite.Embedder | onnx_files.Embedder


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
    calibration_folder: Folder of public images, nested or not, from which int8
      takes the ranges of its numbers. Never the users' own: these ranges are in
      the file without noise [images that are made up].
    image_folder: Folder with one sub-folder of images a class, to measure the
      difference in recall on.
    task: Benchmark on whose held-out images to measure it instead.
    split: Split of the task.
    max_images: Images drawn at random to measure on; 0: all.
  """

  output_dir: str
  saved_model: str | None = None
  run_dir: str | None = None
  formats: tuple[str, ...] = config_lib.field(
    tflite.FORMATS, choices=(*tflite.FORMATS, onnx_files.FORMAT, TRAINING)
  )
  calibration_folder: str | None = None
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
    for other in (self.image_folder, getattr(self.task, "data_dir", None)):
      if other and self.calibration_folder:
        paths = [os.path.realpath(p) for p in (other, self.calibration_folder)]
        if os.path.commonpath(paths) in paths:
          raise errors.FieldError(
            "calibration_folder",
            "be of public images, apart from those that are measured on or"
            " trained on",
            self.calibration_folder,
          )

  @property
  def model_path(self) -> str:
    """Directory of the SavedModel."""
    if self.saved_model:
      return self.saved_model
    return os.path.join(self.run_dir, run_directory.SAVED_MODEL)


@dataclasses.dataclass(frozen=True)
class _Measured:
  """Recall of a model, if there were images, and its time for an image."""

  result: verification.VerificationResult | None
  galleries: Mapping[str, Any] | None
  milliseconds: float


def export(
  run_dir: str | os.PathLike[str],
  output_dir: str | os.PathLike[str],
  *,
  task: task_lib.Task | None = None,
  **options: Any,
) -> None:
  """Converts a run's model, or its clients' training, for phones.

  Args:
    run_dir: Directory of the run.
    output_dir: Directory for the files.
    task: The run's task, if its data live in this program.
    **options: Other fields of `ExportConfig`, for example formats.

  Raises:
    errors.FieldError: If it cannot be done.
    errors.DataError: If an image cannot be used.
  """
  run_dir, output_dir = os.fspath(run_dir), os.fspath(output_dir)
  config = ExportConfig(run_dir=run_dir, output_dir=output_dir, **options)
  execute(config, task)


def execute(config: ExportConfig, task: task_lib.Task | None = None) -> None:
  """Converts, measures, writes and tells.

  Args:
    config: Settings of the conversion.
    task: As of `export`.

  Raises:
    errors.FieldError: If it cannot be done.
    errors.DataError: If an image cannot be used.
  """
  formats = list(config.formats)
  if TRAINING in formats:
    formats.remove(TRAINING)
    _export_training(config, task)
    if not formats:
      return
  if pathlib.Path(config.model_path).suffix in saved_models.CONVERTED:
    must = "be the directory of a SavedModel"
    raise errors.FieldError("saved_model", must, config.model_path)
  if onnx_files.FORMAT in formats:
    onnx_files.import_module("tf2onnx", "formats")
  model, source = saved_models.load(config.model_path), None
  if config.image_folder or config.task:
    source = config.open(config.split, model.image_shape)
  _Exporter(config, model, source).export(_prepare(config, formats))
  for warning in source.warnings if source else ():
    _say(f"warning: {warning}")


def _export_training(config: ExportConfig, task: task_lib.Task | None) -> None:
  """Writes what trains on phones; nothing that was trained is in it."""
  spec = spec_lib.read(config.run_dir)
  experiment = experiment_lib.resolve(spec, task or spec.task.create())
  file = experiment.create_client_file()
  path = _prepare(config, [TRAINING])[TRAINING]
  _write(path, file.content, output_files.json_writer(file.describe()))
  _say(
    f"{path}: {len(file.content) / 1e3:.0f} kB; a client's training of"
    f" {file.backbone.name}, clipped to {file.clip_norm:g}."
  )


def check_task(task: task_lib.Task) -> None:
  """Raises FieldError of a task whose models are not converted."""
  if not task.has_images:
    must = f"not be given for task {task.name}, whose examples are no images"
    raise errors.FieldError("export", must, "tflite")


def export_run(run_dir: str, task: task_lib.Task) -> None:
  """Converts the model of a complete run to all formats, in its directory.

  Files that are all there already are left as they are.
  """
  folder = os.path.join(run_dir, FOLDER)
  config = ExportConfig(run_dir=run_dir, output_dir=folder, overwrite=True)
  paths = _prepare(config, config.formats)
  if all(path.exists() for path in paths.values()):
    _say(f"The files for phones are in {folder} already; left as they are.")
    return
  model = saved_models.load(config.model_path)
  source = image_sources.open_split(task, "test")
  is_of_users = task.evaluation_on_training_users
  _Exporter(config, model, source, is_of_users).export(paths)


def _prepare(
  config: ExportConfig, formats: Sequence[str]
) -> dict[str, pathlib.Path]:
  """Paths of the files by format, once it is known that they can be written."""
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


def _calibrate(
  config: ExportConfig, image_shape: image_sources.ImageShape
) -> tuple[np.ndarray, str]:
  """Images to calibrate with, and what they are."""
  folder = config.calibration_folder
  if folder is None:
    images = tflite.make_up_images(image_shape, _NUM_CALIBRATION_IMAGES)
    return images, "images made up of clouds, of nobody"
  source = image_sources.open_unlabelled(
    folder,
    image_shape,
    on_bad_example=config.on_bad_example,
    name="calibration_folder",
  )
  rows = source.draw_rows(_NUM_CALIBRATION_IMAGES)
  batches = [images for _, images in source.read(rows)]
  if not batches:
    raise errors.DataError(f"{source.description}: none could be read.")
  return np.concatenate(batches), f"{_name_folder(folder)}, taken to be public"


def _name_folder(folder: str) -> str:
  """Describes images by the name of their folder, without its path."""
  return f"images in {os.path.basename(os.path.abspath(folder))}"


@dataclasses.dataclass(frozen=True)
class _Exporter:
  """Converts a model, and measures the difference on some images.

  Attributes:
    config: Settings of the conversion.
    model: The model.
    source: Images to measure on; `None` measures no recall.
    on_training_users: Whether the images may be of users who trained.
  """

  config: ExportConfig
  model: saved_models.Model
  source: image_sources.ImageSource | None
  on_training_users: bool | None = None

  @functools.cached_property
  def rows(self) -> np.ndarray:
    """Rows of the images that are measured on."""
    return self.source.draw_rows(self.config.max_images)

  @property
  def images(self) -> str:
    """The images in words."""
    folder = self.source.facts.get("image_folder")
    return _name_folder(folder) if folder else self.source.description

  def export(self, paths: Mapping[str, pathlib.Path]) -> None:
    """Writes a file of each format, and tells what it costs."""
    calibration, origin = _calibrate(self.config, self.model.image_shape)
    original = self._measure(self.model.embed)
    files = pathlib.Path(self.config.model_path).rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    _say(f"SavedModel: {_tell(original, None, size)}.")
    for number_format, path in paths.items():
      _say(f"Converting to {number_format} ...")
      content, embedder = self._convert(number_format, calibration)
      measured = self._measure(embedder.embed)
      calibrated = None
      said = _tell(measured, original, len(content))
      if number_format == "int8":
        calibrated = f"{len(calibration)} {origin}"
        said += f"; calibrated on {calibrated}"
      is_onnx = number_format == onnx_files.FORMAT
      kind = "ONNX, float32" if is_onnx else f"TensorFlow Lite, {number_format}"
      conversion = {
        "format": kind,
        "calibration": calibrated,
        "recall": self._compare(measured, original),
        "milliseconds_per_image_on_one_core": round(measured.milliseconds, 4),
        "milliseconds_of_saved_model": round(original.milliseconds, 4),
      }
      card = self._create_card(embedder, measured)
      card = dataclasses.replace(card, conversion=conversion)
      if is_onnx:
        content = onnx_files.add_card(content, card)
      # A file cannot have its own digest in it.
      conversion["size_bytes"] = len(content)
      conversion["sha256"] = tflite.digest(content)
      _write(path, content, functools.partial(model_card.write, card))
      _say(f"{path}: {said}.")
    if self.source is None:
      _say(
        "The difference in recall was not measured: give images of known"
        " classes by image_folder or task."
      )

  def _convert(
    self, number_format: str, calibration: np.ndarray
  ) -> tuple[bytes, _Embedder]:
    """Converts, and refuses an ONNX file that gives other embeddings."""
    if number_format != onnx_files.FORMAT:
      content = tflite.convert(
        self.config.model_path, number_format, calibration=calibration
      )
      return content, tflite.Embedder(content)
    content = onnx_files.convert(self.config.model_path)
    embedder = onnx_files.Embedder(content)
    images = tflite.make_up_images(self.model.image_shape, 64)
    if self.source is not None:
      _, images = next(self.source.read(self.rows))
    embedder.check(images, self.model.embed(images))
    return content, embedder

  def _measure(self, embed: Callable[[np.ndarray], np.ndarray]) -> _Measured:
    result = galleries = None
    if self.source is not None:
      result, embeddings, labels = image_sources.evaluate(
        embed,
        self.source,
        self.rows,
        flag="formats",
        false_accept_rates=model_card.FALSE_ACCEPT_RATES,
      )
      galleries = gallery_thresholds.measure(embeddings, labels)
    milliseconds = tflite.time_one_image(embed, self.model.image_shape)
    return _Measured(result, galleries, milliseconds)

  def _compare(
    self, measured: _Measured, original: _Measured
  ) -> dict[str, Any] | None:
    """Recall beside the SavedModel's, JSON values by name."""
    if measured.result is None:
      return None
    before = original.result.recall_at_far
    return {
      "source": self.images,
      "num_images": measured.result.num_images,
      "at_far": {
        verification.format_false_accept_rate(rate): {
          "recall": recall,
          "recall_of_saved_model": before[rate],
          "difference": recall - before[rate],
        }
        for rate, recall in measured.result.recall_at_far.items()
      },
    }

  def _create_card(
    self, embedder: _Embedder, measured: _Measured
  ) -> model_card.ModelCard:
    """The SavedModel's card, with the thresholds of the file if it has any."""
    card = self.model.card
    if card is None:
      image_shape = self.model.image_shape
      one = embedder.embed(tflite.make_up_images(image_shape, 1))
      card = model_card.ModelCard(
        image_shape=image_shape, embedding_dim=one.shape[1]
      )
    found = card.verification and {
      **card.verification,
      "source": f"{card.verification['source']}, embedded by the SavedModel",
    }
    if measured.result is not None:
      by_file = model_card.describe_verification(
        measured.result,
        source=f"{self.images}, embedded by this file",
        on_training_users=self.on_training_users,
        galleries=measured.galleries,
      )
      found = by_file if by_file["at_far"] else found
    return dataclasses.replace(card, verification=found)


def _write(
  path: pathlib.Path,
  content: bytes,
  write_card: Callable[[pathlib.Path], object],
) -> None:
  beside = os.fspath(saved_models.card_path(path))
  output_files.write(
    {
      "card": (beside, write_card),
      "output_dir": (os.fspath(path), lambda file: file.write_bytes(content)),
    }
  )


def _tell(measured: _Measured, original: _Measured | None, size: int) -> str:
  """Size, time and recall, in words."""
  words = [f"{size / 1e6:.2f} MB, {measured.milliseconds:.2f} ms an image"]
  if measured.result is None:
    return words[0]
  for rate, recall in measured.result.recall_at_far.items():
    # Nothing is told of a rate of less than one false accept, as on a card.
    if rate * measured.result.num_negative_pairs < 1:
      continue
    text = f"recall {recall:.4f} at FAR {rate:g}"
    if original is not None:
      text += f" ({recall - original.result.recall_at_far[rate]:+.4f})"
    words.append(text)
  return ", ".join(words)
