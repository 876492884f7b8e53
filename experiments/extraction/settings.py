"""What an extraction of features may be asked for."""

import dataclasses
import pathlib

from experiments.extraction import data_sets
from experiments.extraction import embeddings
from tasks import task as task_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.features import feature_files

SPLITS = ("train", *task_lib.EVALUATION_SPLITS)
# Where they apply and nothing is given.
DEFAULTS = {
  "split": "test",
  "tfds_split": "train",
  "random_features": 512,
  "test_share": 0.25,
}

_SOURCES = ("task", "image_folder", "tfds", "digits")
# Pixels differ by 1 / 255 at least, so that a kernel of this is of equal images
# alone.
_LARGEST_GAMMA = 1e6
# What an image of the largest size is decoded to, and the frequencies of images
# of usual sizes, fit into memory.
_LARGEST_IMAGE_SIZE = 4096
_MOST_RANDOM_FEATURES = 2**16


@dataclasses.dataclass(frozen=True)
class ExtractionConfig:
  """What to extract features from, how, and where to write them.

  What is `None` has its default once this exists, where it applies; it must not
  be given where it does not.

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
  split: str | None = None
  tfds_split: str | None = None
  saved_model: str | None = None
  embedding: str | None = None
  random_features: int | None = None
  gamma: float | None = None
  image_size: int = 0
  num_classes: int = 0
  max_images: int = 0
  test_output: str | None = None
  test_share: float | None = None
  seed: int = 0
  on_bad_example: str = "fail"
  overwrite: bool = False

  def __post_init__(self):
    self._check_files()
    self._check_source()
    self._check_embedding()
    self._check_numbers()
    for name, choices in (
      ("split", (None, *SPLITS)),
      ("tfds", (None, *data_sets.TFDS_NAMES)),
      ("embedding", (None, *embeddings.EMBEDDINGS)),
      ("on_bad_example", bad_examples.POLICIES),
    ):
      if getattr(self, name) not in choices:
        raise ValueError(
          f"{name} must be one of {[c for c in choices if c]}, found"
          f" {getattr(self, name)!r}."
        )
    self._settle_optional()

  def _check_embedding(self):
    if bool(self.saved_model) == bool(self.embedding):
      raise ValueError(
        "saved_model or --embedding must be given, one of the two, found"
        f" {'both' if self.embedding else 'neither'}."
      )
    if self.random_features is not None and (
      not 2 <= self.random_features <= _MOST_RANDOM_FEATURES
      or self.random_features % 2
    ):
      raise ValueError(
        "random_features must be even, positive and at most"
        f" {_MOST_RANDOM_FEATURES}, found {self.random_features}."
      )
    if self.gamma is not None and not 0 < self.gamma <= _LARGEST_GAMMA:
      raise ValueError(
        f"gamma must be positive and at most {_LARGEST_GAMMA:g}, found"
        f" {self.gamma}."
      )

  def _check_numbers(self):
    for name in ("image_size", "max_images", "seed"):
      if getattr(self, name) < 0:
        raise ValueError(
          f"{name} must be at least 0, found {getattr(self, name)}."
        )
    if self.num_classes < 0 or self.num_classes == 1:
      raise ValueError(
        f"num_classes must be at least 2, or 0, found {self.num_classes}."
      )
    if self.image_size > _LARGEST_IMAGE_SIZE:
      raise ValueError(
        f"image_size must be at most {_LARGEST_IMAGE_SIZE}, found"
        f" {self.image_size}."
      )
    if self.test_share is not None and not 0 < self.test_share < 1:
      raise ValueError(
        f"test_share must be between 0 and 1, found {self.test_share}."
      )

  def _check_files(self):
    if not self.output:
      raise ValueError("output must be given.")
    for name in ("output", "test_output"):
      path = getattr(self, name)
      if path is None:
        continue
      if pathlib.Path(path).suffix.lower() not in feature_files.SUFFIXES:
        raise ValueError(
          f"{name} must end with {' or '.join(feature_files.SUFFIXES)}, found"
          f" {path!r}."
        )

  def _check_source(self):
    given = [f"--{name}" for name in _SOURCES if getattr(self, name)]
    if len(given) != 1:
      raise ValueError(
        "task, --image_folder, --tfds or --digits must be given, one of them,"
        f" found {' and '.join(given) or 'none'}."
      )
    if self.image_size and (self.saved_model or self.digits):
      raise ValueError(
        "image_size must not be given with --saved_model, which has its own,"
        " or --digits."
      )
    if self.image_folder and not self.saved_model and not self.image_size:
      raise ValueError(
        "image_size must be given with --image_folder and --embedding."
      )

  def _settle_optional(self):
    """Refuses what would go unused, and sets defaults of the rest."""
    for names, applies, others in (
      (("data_dir",), self.task or self.tfds, "--task or --tfds"),
      (("cache_dir", "task_variant", "split"), self.task, "--task"),
      (("tfds_split",), self.tfds, "--tfds"),
      (
        ("random_features", "gamma"),
        self.embedding == "random_features",
        "--embedding=random_features",
      ),
      (("test_share",), self.test_output, "--test_output"),
    ):
      for name in names:
        if not applies and getattr(self, name) is not None:
          raise ValueError(f"{name} must be given with {others} only.")
        if applies and getattr(self, name) is None:
          object.__setattr__(self, name, DEFAULTS.get(name))
