"""Models for phones and servers: a SavedModel in TensorFlow Lite, or in ONNX.

What `export` does once its flags are read, and `run_federated` with its own.
Each file is told with what it costs: the recall on the same held-out pairs, its
size, and the time for one image on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np
import tqdm

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.program import model_card
from tff_fedemb.program import onnx_files
from tff_fedemb.program import run_directory
from tff_fedemb.program import tflite
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import training_file

with epy.lazy_imports():
  from tff_fedemb.data import image_folder
  from tff_fedemb.evaluation import verification
  from tff_fedemb.serving import saved_models

# Below the directory of a run.
FOLDER = "tflite"

_NUM_CALIBRATION_IMAGES = 200
# An interpreter takes one image at a time.
_MAX_IMAGES = 2000
_MADE_UP = "images made up of clouds, of nobody"
_say = tqdm.tqdm.write
_Embedder = tflite.Embedder | onnx_files.Embedder


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(image_sources.ImageConfig):
  """What to convert to what, and on what to measure the difference.

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
    tflite.FORMATS,
    choices=(*tflite.FORMATS, onnx_files.FORMAT, training_file.FORMAT),
  )
  calibration_folder: str | None = None
  split: str = config_lib.field("test", choices=task_lib.EVALUATION_SPLITS)
  max_images: int = config_lib.field(_MAX_IMAGES, minimum=0)

  def __post_init__(self):
    super().__post_init__()
    if (self.saved_model is None) == (self.run_dir is None):
      raise errors.FieldError(
        "saved_model", "be given, or run_dir, and not both", self.saved_model
      )
    if training_file.FORMAT in self.formats and self.run_dir is None:
      raise errors.FieldError("run_dir", "be given for formats=training", None)
    if self.image_folder and self.task:
      raise errors.FieldError(
        "image_folder", "be given, or a task, not both", "both"
      )
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


@dataclasses.dataclass(frozen=True)
class _Measured:
  """What a model does: of its recall nothing if there were no images."""

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
  output_dir = os.fspath(output_dir)
  config = ExportConfig(
    run_dir=os.fspath(run_dir), output_dir=output_dir, **options
  )
  execute(config, task)


def execute(config: ExportConfig, task: task_lib.Task | None = None) -> None:
  """Converts, measures, writes and tells.

  Args:
    config: What to convert to what.
    task: As of `export`.

  Raises:
    errors.FieldError: If it cannot be done.
    errors.DataError: If an image cannot be used.
  """
  if training_file.FORMAT in config.formats:
    _say(
      training_file.write(
        config.run_dir, config.output_dir, task=task, overwrite=config.overwrite
      )
    )
    others = [name for name in config.formats if name != training_file.FORMAT]
    if not others:
      return
    config = dataclasses.replace(config, formats=tuple(others))
  path = config.saved_model or os.path.join(
    config.run_dir, run_directory.SAVED_MODEL
  )
  if pathlib.Path(path).suffix in saved_models.CONVERTED:
    raise errors.FieldError(
      "saved_model", "be the directory of a SavedModel", path
    )
  if onnx_files.FORMAT in config.formats:
    onnx_files.import_module("tf2onnx", "formats")
  model = saved_models.load(path)
  source = None
  if config.image_folder or config.task:
    source = config.open(config.split, model.image_shape)
  paths = _prepare(config.output_dir, config.formats, config.overwrite)
  calibration = _make_up(model.image_shape)
  if config.calibration_folder is not None:
    calibration = _read_calibration(config, model.image_shape)
  _Exporter(path, model, source, config.max_images).export(paths, *calibration)
  for warning in source.warnings if source else ():
    _say(f"warning: {warning}")


def check_task(task: task_lib.Task) -> None:
  """Raises FieldError of a task whose models are not converted."""
  if not task.has_images:
    raise errors.FieldError(
      "export",
      f"not be given for task {task.name}, whose examples are no images",
      "tflite",
    )


def export_run(run_dir: str, task: task_lib.Task) -> None:
  """Converts the model of a complete run to all formats, in its directory.

  Files that are all there already are left as they are.
  """
  folder = os.path.join(run_dir, FOLDER)
  paths = _prepare(folder, tflite.FORMATS, True)
  if all(path.exists() for path in paths.values()):
    _say(f"The files for phones are in {folder} already; left as they are.")
    return
  path = os.path.join(run_dir, run_directory.SAVED_MODEL)
  model = saved_models.load(path)
  _Exporter(
    path,
    model,
    image_sources.open_split(task, "test"),
    on_training_users=task.evaluation_on_training_users,
  ).export(paths, *_make_up(model.image_shape))


def _prepare(
  output_dir: str, formats: tuple[str, ...], overwrite: bool
) -> dict[str, pathlib.Path]:
  """Paths of the files by format, once it is known that they can be written."""
  with output_files.directory(output_dir) as folder:
    paths = {name: folder / f"model_{name}{tflite.SUFFIX}" for name in formats}
    if onnx_files.FORMAT in formats:
      paths[onnx_files.FORMAT] = folder / f"model{onnx_files.SUFFIX}"
  for path in paths.values():
    for file in (path, saved_models.card_path(path)):
      output_files.check({"output_dir": os.fspath(file)}, overwrite=overwrite)
  return paths


def _make_up(
  image_shape: image_sources.ImageShape,
) -> tuple[np.ndarray, str]:
  """Images to calibrate with, and what they are."""
  return tflite.make_up_images(image_shape, _NUM_CALIBRATION_IMAGES), _MADE_UP


def _read_calibration(
  config: ExportConfig, image_shape: image_sources.ImageShape
) -> tuple[np.ndarray, str]:
  """The same, from a folder."""
  folder = str(config.calibration_folder)
  paths = image_folder.list_all_images(folder, name="calibration_folder")
  source = image_sources.open_files(
    f"images in {folder}",
    paths,
    np.zeros(len(paths), np.int64),
    image_shape,
    on_bad_example=config.on_bad_example,
  )
  rows = source.draw_rows(_NUM_CALIBRATION_IMAGES)
  batches = [images for _, images in source.read(rows)]
  if not batches:
    raise errors.DataError(f"{source.description}: none could be read.")
  return np.concatenate(batches), f"{_name_folder(folder)}, taken to be public"


def _name_folder(folder: str) -> str:
  """What images of a folder are; no more than its own name is told."""
  return f"images in {os.path.basename(os.path.abspath(folder))}"


class _Exporter:
  """Converts a model, and measures the difference on some images."""

  def __init__(
    self,
    saved_model: str,
    model: saved_models.Model,
    source: image_sources.ImageSource | None,
    max_images: int = _MAX_IMAGES,
    *,
    on_training_users: bool | None = None,
  ):
    self._saved_model, self._model, self._source = saved_model, model, source
    self._on_training_users = on_training_users
    self._images = ""
    if source is not None:
      self._rows = source.draw_rows(max_images)
      folder = source.facts.get("image_folder")
      self._images = _name_folder(folder) if folder else source.description

  def export(
    self,
    paths: Mapping[str, pathlib.Path],
    calibration: np.ndarray,
    origin: str,
  ) -> None:
    """Writes a file of each format, and tells what it costs."""
    original = self._measure(self._model.embed)
    _say(f"SavedModel: {_tell(original, None, _size(self._saved_model))}.")
    for number_format, path in paths.items():
      _say(f"Converting to {number_format} ...")
      content, embedder = self._convert(number_format, calibration)
      measured = self._measure(embedder.embed)
      calibrated = None
      said = _tell(measured, original, len(content))
      if number_format == "int8":
        calibrated = f"{len(calibration)} {origin}"
        said += f"; calibrated on {calibrated}"
      conversion = {
        "format": (
          "ONNX, float32"
          if number_format == onnx_files.FORMAT
          else f"TensorFlow Lite, {number_format}"
        ),
        "calibration": calibrated,
        "recall": self._compare(measured, original),
        "milliseconds_per_image_on_one_core": round(measured.milliseconds, 4),
        "milliseconds_of_saved_model": round(original.milliseconds, 4),
      }
      card = dataclasses.replace(
        self._create_card(embedder, measured), conversion=conversion
      )
      if number_format == onnx_files.FORMAT:
        content = onnx_files.add_card(content, card)
      # A file cannot have its own digest in it.
      conversion |= {
        "size_bytes": len(content),
        "sha256": tflite.digest(content),
      }
      _write(path, content, dataclasses.replace(card, conversion=conversion))
      _say(f"{path}: {said}.")
    if self._source is None:
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
        self._saved_model, number_format, calibration=calibration
      )
      return content, tflite.Embedder(content)
    content = onnx_files.convert(self._saved_model)
    embedder = onnx_files.Embedder(content)
    images = tflite.make_up_images(self._model.image_shape, 64)
    if self._source is not None:
      _, images = next(self._source.read(self._rows))
    embedder.check(images, self._model.embed(images))
    return content, embedder

  def _measure(self, embed: Callable[[np.ndarray], np.ndarray]) -> _Measured:
    result = galleries = None
    if self._source is not None:
      result, embeddings, labels = image_sources.evaluate(
        embed,
        self._source,
        self._rows,
        flag="formats",
        false_accept_rates=model_card.FALSE_ACCEPT_RATES,
      )
      galleries = gallery_thresholds.measure(embeddings, labels)
    milliseconds = tflite.time_one_image(embed, self._model.image_shape)
    return _Measured(result, galleries, milliseconds)

  def _compare(
    self, measured: _Measured, original: _Measured
  ) -> dict[str, Any] | None:
    """Recall beside the SavedModel's, JSON values by name."""
    if measured.result is None or original.result is None:
      return None
    before = original.result.recall_at_far
    return {
      "source": self._images,
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
    card = self._model.card
    if card is None:
      image_shape = self._model.image_shape
      made_up = tflite.make_up_images(image_shape, 1)
      card = model_card.ModelCard(
        image_shape=image_shape,
        embedding_dim=embedder.embed(made_up).shape[1],
      )
    found = card.verification and {
      **card.verification,
      "source": f"{card.verification['source']}, embedded by the SavedModel",
    }
    if measured.result is not None:
      by_file = model_card.describe_verification(
        measured.result,
        source=f"{self._images}, embedded by this file",
        on_training_users=self._on_training_users,
        galleries=measured.galleries,
      )
      found = by_file if by_file["at_far"] else found
    return dataclasses.replace(card, verification=found)


def _write(
  path: pathlib.Path, content: bytes, card: model_card.ModelCard
) -> None:
  beside = os.fspath(saved_models.card_path(path))
  output_files.write(
    {
      "card": (beside, lambda file: model_card.write(card, file)),
      "output_dir": (os.fspath(path), lambda file: file.write_bytes(content)),
    }
  )


def _size(directory: str) -> int:
  files = pathlib.Path(directory).rglob("*")
  return sum(file.stat().st_size for file in files if file.is_file())


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
    if original is not None and original.result is not None:
      text += f" ({recall - original.result.recall_at_far[rate]:+.4f})"
    words.append(text)
  return ", ".join(words)
