"""Models for phones: what a SavedModel becomes in TensorFlow Lite.

What `export` does once its flags are read, and `run_federated` with its own.
Each file is told with what it costs: the recall on the same held-out pairs, its
size, and the time for one image on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import os
import pathlib
import statistics
import time
from typing import Any

from etils import epy
import numpy as np
import tqdm

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb.program import model_card
from tff_fedemb.program import run_directory
from tff_fedemb.program import tflite
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  from tff_fedemb.data import image_folder
  from tff_fedemb.evaluation import verification
  from tff_fedemb.serving import saved_models

# Below the directory of a run.
FOLDER = "tflite"

_NUM_CALIBRATION_IMAGES = 200
# An interpreter takes one image at a time.
_MAX_IMAGES = 2000
_NUM_TIMINGS, _NUM_WARM_UPS = 30, 3
_MADE_UP = "images made up of clouds, of nobody"
_say = tqdm.tqdm.write


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(image_sources.ImageConfig):
  """What to convert to what, and on what to measure the difference.

  Attributes:
    saved_model: Directory of the SavedModel, such as release/saved_model
      of a run.
    output_dir: Directory for model_<format>.tflite and, beside each, its
      thresholds and guarantee as model_<format>.json.
    formats: Numbers of the files: float32, float16 or int8.
    calibration_folder: Folder of public images, nested or not, from which int8
      takes the ranges of its numbers. Never the users' own: these ranges are in
      the file without noise [images that are made up].
    image_folder: Folder with one sub-folder of images a class, to measure the
      difference in recall on.
    task: Benchmark on whose held-out images to measure it instead.
    split: Split of the task.
    max_images: Images drawn at random to measure on; 0: all.
  """

  saved_model: str
  output_dir: str
  formats: tuple[str, ...] = config_lib.field(
    tflite.FORMATS, choices=tflite.FORMATS
  )
  calibration_folder: str | None = None
  split: str = config_lib.field("test", choices=task_lib.EVALUATION_SPLITS)
  max_images: int = config_lib.field(_MAX_IMAGES, minimum=0)

  def __post_init__(self):
    super().__post_init__()
    if self.image_folder and self.task:
      raise errors.FieldError(
        "image_folder", "be given, or a task, not both", "both"
      )
    if not self.formats:
      raise errors.FieldError("formats", "be one or more", "none")
    for other in (self.image_folder, self.data_dir):
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
  milliseconds: float


def execute(config: ExportConfig) -> None:
  """Converts, measures, writes and tells.

  Raises:
    errors.FieldError: If it cannot be done.
    errors.DataError: If an image cannot be used.
  """
  model = _load(config.saved_model)
  source = None
  if config.image_folder or config.task:
    source = config.open(config.split, model.image_shape)
  paths = _prepare(config.output_dir, config.formats, config.overwrite)
  calibration, origin = _find_calibration(config, model.image_shape)
  _export(
    config.saved_model,
    model,
    paths,
    calibration,
    origin,
    source,
    max_images=config.max_images,
    on_training_users=None,
  )
  for warning in source.warnings if source else ():
    _say(f"warning: {warning}")


def export_run(run_dir: str, task: task_lib.Task) -> None:
  """Converts the model of a complete run to all formats, in its directory.

  Files that are all there already are left as they are.
  """
  saved_model = os.path.join(run_dir, run_directory.SAVED_MODEL)
  folder = os.path.join(run_dir, FOLDER)
  paths = _prepare(folder, tflite.FORMATS, True)
  if all(path.exists() for path in paths.values()):
    _say(f"The files for phones are in {folder} already; left as they are.")
    return
  model = _load(saved_model)
  _export(
    saved_model,
    model,
    paths,
    tflite.make_up_images(model.image_shape, _NUM_CALIBRATION_IMAGES),
    _MADE_UP,
    image_sources.open_split(task, "test"),
    max_images=_MAX_IMAGES,
    on_training_users=task.evaluation_on_training_users,
  )


def _load(path: str) -> saved_models.Model:
  if pathlib.Path(path).suffix == tflite.SUFFIX:
    raise errors.FieldError(
      "saved_model", "be the directory of a SavedModel", path
    )
  return saved_models.load(path)


def _prepare(
  output_dir: str, formats: tuple[str, ...], overwrite: bool
) -> dict[str, pathlib.Path]:
  """Paths of the files by format, once it is known that they can be written."""
  with output_files.directory(output_dir) as folder:
    paths = {name: folder / f"model_{name}{tflite.SUFFIX}" for name in formats}
  for path in paths.values():
    for file in (path, saved_models.card_path(path)):
      output_files.check({"output_dir": os.fspath(file)}, overwrite=overwrite)
  return paths


def _find_calibration(
  config: ExportConfig, image_shape: image_sources.ImageShape
) -> tuple[np.ndarray, str]:
  """Images to calibrate with, and what they are."""
  if config.calibration_folder is None:
    return tflite.make_up_images(image_shape, _NUM_CALIBRATION_IMAGES), _MADE_UP
  paths = image_folder.list_all_images(
    config.calibration_folder, name="calibration_folder"
  )
  source = image_sources.open_files(
    f"images in {config.calibration_folder}",
    paths,
    np.zeros(len(paths), np.int64),
    image_shape,
    on_bad_example=config.on_bad_example,
  )
  rows = source.draw_rows(_NUM_CALIBRATION_IMAGES)
  batches = [images for _, images in source.read(rows)]
  if not batches:
    raise errors.DataError(f"{source.description}: none could be read.")
  folder = os.path.basename(os.path.abspath(config.calibration_folder))
  return np.concatenate(batches), f"images in {folder}, taken to be public"


def _export(
  saved_model: str,
  model: saved_models.Model,
  paths: Mapping[str, pathlib.Path],
  calibration: np.ndarray,
  origin: str,
  source: image_sources.ImageSource | None,
  *,
  max_images: int,
  on_training_users: bool | None,
) -> None:
  rows = None if source is None else source.draw_rows(max_images)
  original = _measure(model.embed, model.image_shape, source, rows)
  _say(f"SavedModel: {_tell(original, None, _size(saved_model))}.")
  for number_format, path in paths.items():
    _say(f"Converting to {number_format} ...")
    content = tflite.convert(
      saved_model, number_format, calibration=calibration
    )
    embedder = tflite.Embedder(content)
    measured = _measure(embedder.embed, model.image_shape, source, rows)
    conversion = {
      "format": f"TensorFlow Lite, {number_format}",
      "size_bytes": len(content),
      "sha256": tflite.digest(content),
      "calibration": (
        f"{len(calibration)} {origin}" if number_format == "int8" else None
      ),
      **_compare(measured, original, source),
    }
    card = _create_card(model, embedder, measured, source, on_training_users)
    card = dataclasses.replace(card, conversion=conversion)
    _write(path, content, card)
    said = _tell(measured, original, len(content))
    if number_format == "int8":
      said += f"; calibrated on {conversion['calibration']}"
    _say(f"{path}: {said}.")
  if source is None:
    _say(
      "The difference in recall was not measured: give images of known classes"
      " by image_folder or task."
    )


def _measure(
  embed: Callable[[np.ndarray], np.ndarray],
  image_shape: image_sources.ImageShape,
  source: image_sources.ImageSource | None,
  rows: np.ndarray | None,
) -> _Measured:
  result = None
  if source is not None and rows is not None:
    embeddings, read = image_sources.embed_rows(
      embed, source, rows, flag="formats"
    )
    try:
      result = verification.evaluate_pairs(
        embeddings,
        source.labels[read],
        false_accept_rates=model_card.FALSE_ACCEPT_RATES,
      )
    except errors.FieldError as error:
      raise errors.DataError(
        f"{source.description} give no recall: {error}"
      ) from error
  return _Measured(result, _time_one_image(embed, image_shape))


@contextlib.contextmanager
def _on_one_core() -> Iterator[None]:
  """Keeps all threads of this process on one core."""
  cores = os.sched_getaffinity(0)

  def set_all(some):
    for thread in os.listdir("/proc/self/task"):
      # One may have ended by now.
      with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(int(thread), some)

  set_all({min(cores)})
  try:
    yield
  finally:
    set_all(cores)


def _time_one_image(
  embed: Callable[[np.ndarray], np.ndarray],
  image_shape: image_sources.ImageShape,
) -> float:
  """Median milliseconds of one image on one core."""
  image = tflite.make_up_images(image_shape, 1)
  seconds = []
  with _on_one_core():
    for _ in range(_NUM_WARM_UPS + _NUM_TIMINGS):
      start = time.perf_counter()
      embed(image)
      seconds.append(time.perf_counter() - start)
  return 1e3 * statistics.median(seconds[_NUM_WARM_UPS:])


def _name(source: image_sources.ImageSource) -> str:
  """What the images are; of a folder no more than its own name."""
  folder = source.facts.get("image_folder")
  if folder is None:
    return source.description
  return f"images in {os.path.basename(os.path.abspath(folder))}"


def _compare(
  measured: _Measured,
  original: _Measured,
  source: image_sources.ImageSource | None,
) -> dict[str, Any]:
  """What is told of the difference to the SavedModel, JSON values by name."""
  times = {
    "milliseconds_per_image_on_one_core": round(measured.milliseconds, 4),
    "milliseconds_of_saved_model": round(original.milliseconds, 4),
  }
  if source is None or measured.result is None or original.result is None:
    return {"recall": None, **times}
  before, after = original.result.recall_at_far, measured.result.recall_at_far
  return {
    "recall": {
      "source": _name(source),
      "num_images": measured.result.num_images,
      "at_far": {
        verification.format_false_accept_rate(rate): {
          "recall": recall,
          "recall_of_saved_model": before[rate],
          "difference": recall - before[rate],
        }
        for rate, recall in after.items()
      },
    },
    **times,
  }


def _create_card(
  model: saved_models.Model,
  embedder: tflite.Embedder,
  measured: _Measured,
  source: image_sources.ImageSource | None,
  on_training_users: bool | None,
) -> model_card.ModelCard:
  """The SavedModel's card, with the thresholds of the file if there are any."""
  card = model.card
  if card is None:
    made_up = tflite.make_up_images(model.image_shape, 1)
    card = model_card.ModelCard(
      image_shape=model.image_shape,
      embedding_dim=embedder.embed(made_up).shape[1],
    )
  if source is not None and measured.result is not None:
    found = model_card.describe_verification(
      measured.result,
      source=f"{_name(source)}, embedded by this file",
      on_training_users=on_training_users,
    )
    if found["at_far"]:
      return dataclasses.replace(card, verification=found)
  if card.verification is None:
    return card
  origin = f"{card.verification['source']}, embedded by the SavedModel"
  return dataclasses.replace(
    card, verification={**card.verification, "source": origin}
  )


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
