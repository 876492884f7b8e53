"""One extraction of features, from its images to the files.

Program `extract_features` reads its flags and calls `execute`.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb import runtime as runtimes
from tff_fedemb.data import bad_examples
from tff_fedemb.features import feature_files
from tff_fedemb.features import tfds_images
from tff_fedemb.records import output_files
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import saved_models
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from sklearn import datasets

# Each draw has its own generator: no draw depends on whether another is made.
_CLASSES, _IMAGES, _TEST = range(3)

SPLITS = ("train",) + task_lib.EVALUATION_SPLITS
_SOURCES = ("task", "image_folder", "tfds", "digits")
_EMBEDDERS = ("saved_model", "application", "embedding")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionConfig(image_sources.ImageConfig):
  """Images to extract features from, the map, and the files to write.

  Fields of `None` get their defaults where they apply. A field that does not
  apply must not be given.

  Attributes:
    tfds: Data set of TensorFlow Datasets instead, prepared on disk.
    digits: Whether to take the pixels of scikit-learn's digits instead.
    data_dir: Directory of the prepared data sets [TensorFlow Datasets' own].
    split: Split of the task [test].
    tfds_split: Split of the data set, such as test or train[:10%] [train].
    saved_model: Model that embeds: a SavedModel's directory, such as
      release/saved_model of a run, a .keras, .h5 or .tflite file.
    preprocess: Pixels that it takes [0 to 255] (unit: 0 to 1; tf, caffe and
      torch: modes of Keras' preprocess_input).
    application: Model of keras.applications instead, such as MobileNetV2; its
      own preprocess_input makes images ready.
    weights: Weights of the application: imagenet, which Keras downloads, none,
      or a file of public weights [imagenet].
    layer: Layer of the model, or output of a SavedModel, whose mean over places
      is the feature [the last].
    embedding: Map instead of a model: pixels, in [0, 1].
    image_size: Side of the images in pixels where no model says it [as they
      are].
    num_classes: Classes drawn at random [all].
    max_images: Images drawn at random from those; 0: all.
    output: File to write (.npz), in a directory that exists.
    test_output: File for images kept for testing [none].
    test_share: Share of each class's images in test_output, of several images
      at least one and not all [0.25].
    seed: Seed of the classes and images that are drawn.
  """

  tfds: str | None = config_lib.field(None, choices=tfds_images.NAMES)
  digits: bool = False
  data_dir: str | None = config_lib.field(None, path=True)
  split: str | None = config_lib.field(None, choices=SPLITS)
  tfds_split: str | None = None
  saved_model: str | None = config_lib.field(None, path=True)
  preprocess: str | None = config_lib.field(
    None, choices=saved_models.PREPROCESS
  )
  application: str | None = None
  weights: str | None = config_lib.field(None, path=True)
  layer: str | None = None
  embedding: str | None = config_lib.field(None, choices=("pixels",))
  # An image of the largest size fits into memory once it is decoded.
  image_size: int | None = config_lib.field(None, minimum=1, maximum=4096)
  num_classes: int | None = config_lib.field(None, minimum=2)
  output: str
  test_output: str | None = None
  test_share: float | None = config_lib.field(None, above=0, below=1)
  seed: int = config_lib.field(0, minimum=0)

  def __post_init__(self):
    """Checks which fields are given together, and fills in defaults.

    Raises:
      errors.FieldError: If there is not exactly one source and one map, a field
        does not apply, or the image size is missing.
    """
    super().__post_init__()
    for names in (_SOURCES, _EMBEDDERS):
      checks.check_one_of(**{name: getattr(self, name) for name in names})
    needs_size = self.application or (self.image_folder and self.embedding)
    if needs_size and not self.image_size:
      must = "be given with application, or with image_folder and embedding"
      raise errors.FieldError("image_size", must, "nothing")
    for name, applies, others, default in (
      ("digits", self.embedding, "embedding", None),
      ("image_size", not self.digits, "another source", None),
      ("data_dir", self.task or self.tfds, "task or tfds", None),
      ("split", self.task, "task", "test"),
      ("tfds_split", self.tfds, "tfds", "train"),
      ("test_share", self.test_output, "test_output", 0.25),
      ("preprocess", self.saved_model, "saved_model", None),
      ("weights", self.application, "application", "imagenet"),
      ("layer", not self.embedding, "saved_model or application", None),
    ):
      value = getattr(self, name)
      if not applies and value:
        must = f"be given with {others} only"
        raise errors.FieldError(name, must, repr(value))
      if applies and value is None:
        object.__setattr__(self, name, default)

  def generator(self, draw: int) -> np.random.Generator:
    """Creates the generator of a draw.

    Args:
      draw: Number of the draw; each has a generator of its own.

    Returns:
      A generator that depends on `seed` and the number alone.
    """
    return np.random.default_rng([self.seed, draw])


def execute(
  config: ExtractionConfig,
  runtime: runtimes.RuntimeConfig = runtimes.RuntimeConfig(),  # noqa: B008
) -> None:
  """Embeds the images, writes the features and prints a summary.

  Args:
    config: Settings of the extraction.
    runtime: Runtime that embeds the images.

  Raises:
    errors.FieldError: If a setting does not suit the data, the model or the
      files; nothing is written.
    errors.DataError: If data cannot be used; nothing is written.
  """
  output_files.check(
    {"output": config.output, "test_output": config.test_output},
    overwrite=config.overwrite,
    inputs=config.inputs,
  )
  model = _load_model(config)
  source = _open_source(config, model.image_shape if model else None)
  classes = _choose_classes(config, source.classes)
  examples = _embed(config, runtime, model, source, classes)
  parts: dict[str, np.ndarray | slice] = {"output": slice(None)}
  if config.test_output:
    parts["output"], parts["test_output"] = _split_test(config, examples.labels)

  def write(rows: np.ndarray | slice, path: pathlib.Path) -> None:
    # A part is a copy; only one is in memory at a time.
    feature_files.write_features(path, examples.take(rows))

  outputs = {}
  lines = [f"Features of {source.description}:"]
  for name, rows in parts.items():
    path = getattr(config, name)
    outputs[name] = (path, functools.partial(write, rows))
    labels = examples.labels[rows]
    lines.append(
      f"  {path}: {len(labels):,} examples of {len(np.unique(labels)):,}"
      f" classes, {examples.features.shape[1]:,} numbers each"
    )
  empty = np.setdiff1d(np.arange(len(classes)), examples.labels)
  without = bad_examples.warn_of(
    f"{len(empty):,} of {len(classes):,} classes have no example, of labels",
    empty,
  )
  for warning in source.warnings + without:
    lines.append(f"warning: {warning}")
  output_files.write(outputs)
  for line in lines:
    progress.say(line)


def _embed(
  config: ExtractionConfig,
  runtime: runtimes.RuntimeConfig,
  model: saved_models.Model | None,
  source: image_sources.ImageSource,
  classes: np.ndarray,
) -> feature_files.FeatureSet:
  """Embeds images of some classes, and labels these 0, 1, ...

  Returns features `[n, d]` with labels and, if known, users. Images that cannot
  be read are left out if the settings skip them.
  """
  rows = source.draw_rows(
    config.max_images,
    np.flatnonzero(np.isin(source.labels, classes)),
    config.generator(_IMAGES),
  )
  embed = model or functools.partial(_take_pixels, largest=source.largest_value)
  with runtime.open_map() as map_fn:
    embeddings, rows = image_sources.embed_rows(
      embed, source, rows, map_fn=map_fn
    )
  labels = np.searchsorted(classes, source.labels[rows])
  users = source.users
  if users is not None:
    users = users[rows]
  names = [source.class_names.get(label, str(label)) for label in classes]
  return feature_files.FeatureSet(
    embeddings, labels, users, np.array(names, str)
  )


def _take_pixels(images: np.ndarray, *, largest: int) -> np.ndarray:
  """Returns pixels in [0, 1], float32 `[b, d]`."""
  flat = images.reshape(len(images), -1).astype(np.float32)
  return flat / np.float32(largest)


def _load_model(config: ExtractionConfig) -> saved_models.Model | None:
  """Loads the model; returns `None` if pixels are the features.

  Raises:
    errors.FieldError: If the model cannot be used.
  """
  if config.saved_model:
    return saved_models.load(
      config.saved_model,
      layer=config.layer,
      image_size=config.image_size,
      preprocess=config.preprocess,
    )
  if config.application:
    return saved_models.load_application(
      config.application,
      config.image_size,
      config.weights,
      layer=config.layer,
      seed=config.seed,
    )
  return None


def _open_source(
  config: ExtractionConfig,
  model_shape: image_sources.ImageShape | None,
) -> image_sources.ImageSource:
  """Opens the images, in the shape that the model takes.

  `model_shape` is height, width and channels; None if the model or the pixels
  leave it open.
  """
  if config.digits:
    # Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI
    # Machine Learning Repository, 1998: its test part, 8x8 pixels of 0 to 16.
    digits = datasets.load_digits()
    images = digits.images.astype(np.uint8)
    return image_sources.ImageSource(
      "scikit-learn's digits",
      digits.target.astype(np.int64),
      lambda rows: iter([(rows, images[rows])]),
      largest_value=16,
    )
  size = config.image_size
  if size and not config.task:
    # Nothing says whether the images are grey: they are read as RGB.
    model_shape = model_shape or (size, size, 3)
  if config.tfds:
    return tfds_images.open_source(
      config.tfds,
      config.data_dir,
      config.tfds_split or "train",
      image_shape=model_shape,
      on_bad_example=config.on_bad_example,
    )
  return config.open(config.split, model_shape)


def _choose_classes(config: ExtractionConfig, labels: np.ndarray) -> np.ndarray:
  """Draws classes at random from all that the source has.

  The draw does not depend on the images that are embedded, so that files of
  several extractions have the same labels.

  Returns:
    Labels of the classes, ascending, int64 `[K]`.

  Raises:
    errors.FieldError: If the source has fewer classes.
  """
  size = config.num_classes
  if not size:
    return labels
  if size > len(labels):
    must = f"be at most {len(labels)}, all classes"
    raise errors.FieldError("num_classes", must, size)
  generator = config.generator(_CLASSES)
  return np.sort(generator.choice(labels, size, replace=False))


def _split_test(
  config: ExtractionConfig,
  labels: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Draws the same share of each class for testing, at least one and not all.

  The only image of a class is for training.

  Returns:
    Rows to train on and rows to test on, ascending.

  Raises:
    errors.FieldError: If there are none to test on.
  """
  share = checks.check_given("test_share", config.test_share)
  rows_of_test = []
  generator = config.generator(_TEST)
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    num_test = max(round(share * len(rows)), 1)
    num_test = min(num_test, len(rows) - 1)
    rows_of_test.append(generator.choice(rows, size=num_test, replace=False))
  test = np.sort(np.concatenate(rows_of_test))
  if not len(test):
    must = "be of classes of two images or more"
    raise errors.FieldError("test_output", must, "none")
  return np.setdiff1d(np.arange(len(labels)), test), test
