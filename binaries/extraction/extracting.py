"""One extraction of features, from its images to the files.

What `extract_features` does once its flags are read.
"""

import dataclasses
import os
import pathlib

import numpy as np

from binaries import command_line
from binaries import image_sources
from binaries import output_files
from binaries import saved_models
from binaries.extraction import data_sets
from binaries.extraction import embeddings as embeddings_lib
from binaries.extraction import selection
from tasks import task as task_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.features import feature_files

SPLITS = ("train", *task_lib.EVALUATION_SPLITS)

_SOURCES = ("task", "image_folder", "tfds", "digits")
# Each draw has a generator of its own, so that it does not depend on whether
# another one is made.
_CLASSES, _IMAGES, _TEST, _FREQUENCIES = range(4)


@dataclasses.dataclass(frozen=True)
class ExtractionConfig:
  """What to extract features from, how, and where to write them.

  Attributes:
    output: File to write, .npz or .tfrecord.
    task: Name of a task, or `None`.
    image_folder: Folder with one sub-folder a class, or `None`.
    tfds: Data set that TensorFlow Datasets has prepared, or `None`.
    digits: Whether to take scikit-learn's digits.
    data_dir: Where the data of the task or of TensorFlow Datasets are, or
      `None` for the default.
    cache_dir: Where the task may keep converted copies of data.
    task_variant: Which of the task's data sets, or `None` for its first.
    split: The task's split, one of `SPLITS`.
    tfds_split: The split of TensorFlow Datasets.
    saved_model: Directory of the SavedModel that embeds, or `None`.
    embedding: One of `embeddings.EMBEDDINGS` instead, or `None`.
    random_features: Numbers of a random feature vector, even.
    gamma: Of the random features' kernel; `None` for 16 over the number of
      pixels.
    image_size: Side of the images in pixels where no model tells, 0 for their
      own.
    num_classes: Classes drawn at random, 0 for all.
    max_images: Images drawn at random from those, 0 for all.
    test_output: File for a part of the images, or `None`.
    test_share: Of a class's images that goes there.
    seed: Of all that is drawn.
    on_bad_example: What to do about a damaged image, one of
      `bad_examples.POLICIES`.
    overwrite: Whether files may be replaced.
  """

  output: str | None
  task: str | None = None
  image_folder: str | None = None
  tfds: str | None = None
  digits: bool = False
  data_dir: str | None = None
  cache_dir: str | None = None
  task_variant: str | None = None
  split: str = "test"
  tfds_split: str = "train"
  saved_model: str | None = None
  embedding: str | None = None
  random_features: int = 512
  gamma: float | None = None
  image_size: int = 0
  num_classes: int = 0
  max_images: int = 0
  test_output: str | None = None
  test_share: float = 0.25
  seed: int = 0
  on_bad_example: str = "fail"
  overwrite: bool = False

  def __post_init__(self):
    self._check_files()
    self._check_source()
    if bool(self.saved_model) == bool(self.embedding):
      raise ValueError(
          "saved_model or --embedding must be given, one of the two, found"
          f" {'both' if self.embedding else 'neither'}."
      )
    for name, choices in (
        ("split", SPLITS),
        ("tfds", (None, *data_sets.TFDS_NAMES)),
        ("embedding", (None, *embeddings_lib.EMBEDDINGS)),
        ("on_bad_example", bad_examples.POLICIES),
    ):
      if getattr(self, name) not in choices:
        raise ValueError(
            f"{name} must be one of {[c for c in choices if c]}, found"
            f" {getattr(self, name)!r}."
        )
    for name in ("image_size", "max_images", "seed"):
      if getattr(self, name) < 0:
        raise ValueError(
            f"{name} must be at least 0, found {getattr(self, name)}."
        )
    if self.num_classes < 0 or self.num_classes == 1:
      raise ValueError(
          f"num_classes must be at least 2, or 0, found {self.num_classes}."
      )
    if self.random_features < 2 or self.random_features % 2:
      raise ValueError(
          "random_features must be even and positive, found"
          f" {self.random_features}."
      )
    if self.gamma is not None and not 0 < self.gamma < float("inf"):
      raise ValueError(f"gamma must be positive, found {self.gamma}.")
    if not 0 < self.test_share < 1:
      raise ValueError(
          f"test_share must be between 0 and 1, found {self.test_share}."
      )

  def _check_files(self):
    if not self.output:
      raise ValueError("output must be given.")
    for name in ("output", "test_output"):
      path = getattr(self, name)
      suffix = pathlib.Path(path or "").suffix.lower()
      if path and suffix not in feature_files.SUFFIXES:
        raise ValueError(
            f"{name} must end with {' or '.join(feature_files.SUFFIXES)}, found"
            f" {path}."
        )
    if self.test_output and os.path.abspath(
        self.test_output
    ) == os.path.abspath(self.output):
      raise ValueError("test_output must be another file than --output.")

  def _check_source(self):
    given = [f"--{name}" for name in _SOURCES if getattr(self, name)]
    if len(given) != 1:
      raise ValueError(
          "task, --image_folder, --tfds or --digits must be given, one of them,"
          f" found {' and '.join(given) or 'none'}."
      )
    if self.data_dir and not (self.task or self.tfds):
      raise ValueError("data_dir must be given with --task or --tfds only.")
    if self.task_variant and not self.task:
      raise ValueError("task_variant must be given with --task only.")
    if self.image_size and (self.saved_model or self.digits):
      raise ValueError(
          "image_size must not be given with --saved_model, which has its own,"
          " or --digits."
      )
    if self.image_folder and not self.saved_model and not self.image_size:
      raise ValueError(
          "image_size must be given with --image_folder and --embedding."
      )


def execute(config: ExtractionConfig) -> None:
  """Embeds the images, and writes and says what came of them.

  Args:
    config: What to do.

  Raises:
    UsageError: If it cannot be done; nothing is written then.
  """
  for name in ("output", "test_output"):
    output_files.check_writable(
        name, getattr(config, name), overwrite=config.overwrite
    )
  model = saved_models.Model(config.saved_model) if config.saved_model else None
  source, warnings = _open_source(config, model.image_shape if model else None)
  rows = _choose_rows(config, source)
  embed = model.embed if model else embeddings_lib.create_embedding(
      config.embedding,
      source.largest_value,
      num_features=config.random_features,
      gamma=config.gamma,
      seed=_derive_seed(config, _FREQUENCIES),
  )
  embeddings, rows = image_sources.embed_rows(embed, source, rows)
  parts = _split(config, source, embeddings, rows)
  _write(parts)
  _tell(parts, source, (*warnings, *source.warnings))


def _derive_seed(config: ExtractionConfig, draw: int) -> np.random.SeedSequence:
  return np.random.SeedSequence([config.seed, draw])


def _generator(config: ExtractionConfig, draw: int) -> np.random.Generator:
  return np.random.default_rng(_derive_seed(config, draw))


def _open_source(
    config: ExtractionConfig,
    model_shape: image_sources.ImageShape | None,
) -> tuple[image_sources.ImageSource, tuple[str, ...]]:
  """The images, and what the user should know of them."""
  # Grey images are taken as colours where nothing says what they are.
  size = config.image_size
  image_shape = model_shape or ((size, size, 3) if size else None)
  if config.digits:
    return data_sets.open_digits(model_shape), ()
  if config.tfds:
    source = data_sets.open_tfds(
        config.tfds,
        config.data_dir,
        config.tfds_split,
        image_shape=image_shape,
        on_bad_example=config.on_bad_example,
    )
    return source, ()
  if config.image_folder:
    source = image_sources.open_folder(
        config.image_folder,
        image_shape,
        on_bad_example=config.on_bad_example,
    )
    return source, ()
  task = image_sources.create_task(
      config.task,
      task_lib.TaskConfig(
          config.data_dir,
          config.cache_dir,
          variant=config.task_variant,
          image_size=config.image_size or None,
          on_bad_example=config.on_bad_example,
      ),
      model_shape,
  )
  if config.split == "train":
    source = image_sources.open_train(task)
  else:
    source = image_sources.open_held_out(task, config.split)
  left_out = task.bad_examples.lines
  return source, (
      *task.warnings,
      *([f"left out {bad_examples.summarize(left_out)}"] if left_out else ()),
  )


def _choose_rows(
    config: ExtractionConfig, source: image_sources.ImageSource
) -> np.ndarray:
  classes = selection.choose_classes(
      source.labels,
      config.num_classes,
      _generator(config, _CLASSES),
      min_images=2 if config.test_output else 1,
  )
  rows = image_sources.draw_rows(
      np.flatnonzero(np.isin(source.labels, classes)),
      config.max_images,
      _generator(config, _IMAGES),
  )
  if not len(rows):
    raise command_line.UsageError(
        f"--output must be of one image or more, found {source.description}"
        " empty."
    )
  return rows


def _split(
    config: ExtractionConfig,
    source: image_sources.ImageSource,
    embeddings: np.ndarray,
    rows: np.ndarray,
) -> dict[str, feature_files.FeatureSet]:
  """What to write, by file."""
  num_classes = len(np.unique(source.labels[rows]))
  if not num_classes or 0 < config.num_classes != num_classes:
    raise command_line.UsageError(
        "--num_classes must be as many as have images that are taken"
        f" (--max_images={config.max_images},"
        f" --on_bad_example={config.on_bad_example}), found {num_classes} of"
        f" {config.num_classes}."
    )
  if not np.isfinite(embeddings).all():
    raise command_line.UsageError(
        "--saved_model must give embeddings that are finite, found others."
    )
  whole = feature_files.FeatureSet(
      embeddings,
      selection.renumber(source.labels[rows]),
      None if source.users is None else source.users[rows],
  )
  if not config.test_output:
    return {config.output: whole}
  train, test = selection.split_test(
      whole.labels, config.test_share, _generator(config, _TEST)
  )
  return {
      config.output: whole.take(train),
      config.test_output: whole.take(test),
  }


def _write(parts: dict[str, feature_files.FeatureSet]) -> None:
  """Writes all files, each whole, or none."""
  temporaries = {
      # Of the same suffix, which says what to write.
      path: pathlib.Path(path).with_name(f".partial.{pathlib.Path(path).name}")
      for path in parts
  }
  try:
    for path, feature_set in parts.items():
      feature_files.write_features(temporaries[path], feature_set)
    for path, temporary in temporaries.items():
      os.replace(temporary, path)
  except OSError as error:
    raise command_line.UsageError(
        f"--output must be writable, and so must --test_output: {error}."
    ) from error
  finally:
    for temporary in temporaries.values():
      temporary.unlink(missing_ok=True)


def _tell(
    parts: dict[str, feature_files.FeatureSet],
    source: image_sources.ImageSource,
    warnings: tuple[str, ...],
) -> None:
  """Prints the outcome."""
  print(f"Features of {source.description}:")
  for path, part in parts.items():
    num_classes = len(np.unique(part.labels))
    users = (
        ""
        if part.users is None
        else f", {len(np.unique(part.users)):,} users"
    )
    print(
        f"  {path}: {len(part.labels):,} examples of {num_classes:,} classes,"
        f" {part.features.shape[1]:,} numbers each{users}"
    )
  for warning in warnings:
    print(f"warning: {warning}")
