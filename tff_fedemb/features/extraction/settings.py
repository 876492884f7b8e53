"""Settings of an extraction of features.

Among them are maps of images to features that need no data, and so cost no
privacy.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry
from tff_fedemb.features import feature_files
from tff_fedemb.features.extraction import data_sets
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import saved_models

MapFn = Callable[[np.ndarray], np.ndarray]

# The default kernel's gamma is this over the number of numbers in an image.
_GAMMA_OF_DIM = 16.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(config.Config, abc.ABC):
  """A map of images to features."""

  @abc.abstractmethod
  def create_map(
    self, largest_value: int, generator: np.random.Generator
  ) -> MapFn:
    """Returns the map from images `[b, ...]` to float32 features `[b, d]`.

    Args:
      largest_value: Largest value that a pixel may have.
      generator: Source of what is drawn.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pixels(Embedding):
  """Pixels in [0, 1]."""

  def create_map(self, largest_value, generator):
    del generator  # Nothing is random.
    return lambda images: (
      images.reshape(len(images), -1).astype(np.float32)
      / np.float32(largest_value)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFeatures(Embedding):
  """Random Fourier features of pixels.

  Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NIPS
  2007. The expected inner product of two images' features is exp(-gamma |x -
  y|^2); a cosine and a sine for each frequency give vectors of norm 1 exactly.

  Attributes:
    random_features: Number of random features, even.
    gamma: Factor gamma of the random features' kernel exp(-gamma |x - y|^2) of
      pixels in [0, 1] [16 over their number].
  """

  # The frequencies of images of usual sizes fit into memory.
  random_features: int = config.field(512, minimum=2, maximum=2**16)
  # Pixels differ by 1 / 255 at least, so that a kernel of the largest gamma is
  # of equal images alone.
  gamma: float | None = config.field(None, above=0, maximum=1e6)

  def __post_init__(self):
    super().__post_init__()
    if self.random_features % 2:
      found = self.random_features
      raise errors.FieldError("random_features", "be even", found)

  def create_map(self, largest_value, generator):
    to_pixels = Pixels().create_map(largest_value, generator)
    num_frequencies = self.random_features // 2

    @functools.cache
    def draw_frequencies(dim):
      gamma = _GAMMA_OF_DIM / dim if self.gamma is None else self.gamma
      return np.sqrt(2 * gamma) * generator.normal(size=(dim, num_frequencies))

    def embed(images):
      pixels = to_pixels(images)
      angles = pixels @ draw_frequencies(pixels.shape[1])
      return np.concatenate(
        [np.cos(angles), np.sin(angles)], axis=1, dtype=np.float32
      ) / np.float32(np.sqrt(num_frequencies))

    return embed


EMBEDDINGS: registry.Registry[Embedding] = registry.Registry(
  Embedding,
  {"pixels": Pixels, "random_features": RandomFeatures},
  kind="embedding",
)

SPLITS = ("train", *task_lib.EVALUATION_SPLITS)
EMBEDDERS = ("saved_model", "application", "embedding")

_SOURCES = ("task", "image_folder", "tfds", "digits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionConfig(image_sources.ImageConfig):
  """Images to extract features from, the map, and the files to write.

  A field that is `None` has its default once this exists, where it applies; it
  must not be given where it does not.

  Attributes:
    tfds: Data set of TensorFlow Datasets instead, prepared on disk.
    digits: Whether to take scikit-learn's digits instead.
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
    embedding: Map instead of a model.
    image_size: Side of the images in pixels where no model says it [as they
      are].
    num_classes: Classes drawn at random from all; 0: all.
    max_images: Images drawn at random from those; 0: all.
    output: File to write, .npz, in a directory that exists.
    test_output: File for images kept for testing [none].
    test_share: Share of each class's images in test_output, of several images
      at least one and not all [0.25].
    seed: Seed of the classes, images and random features that are drawn.
  """

  tfds: str | None = config.field(None, choices=data_sets.TFDS_NAMES)
  digits: bool = False
  data_dir: str | None = config.field(None, path=True)
  split: str | None = config.field(None, choices=SPLITS)
  tfds_split: str | None = None
  saved_model: str | None = None
  preprocess: str | None = config.field(None, choices=saved_models.PREPROCESS)
  application: str | None = None
  weights: str | None = None
  layer: str | None = None
  embedding: Embedding | None = config.part(None, registry=EMBEDDINGS)
  # An image of the largest size fits into memory once it is decoded.
  image_size: int | None = config.field(None, minimum=1, maximum=4096)
  num_classes: int = config.field(0, minimum=0)
  output: str
  test_output: str | None = None
  test_share: float | None = config.field(None, above=0, below=1)
  seed: int = config.field(0, minimum=0)

  def __post_init__(self):
    super().__post_init__()
    for name in ("output", "test_output"):
      if getattr(self, name) is not None:
        feature_files.check_suffix(getattr(self, name), name=name)
    if self.num_classes == 1:
      raise errors.FieldError("num_classes", "be at least 2, or 0", 1)
    for names in (_SOURCES, EMBEDDERS):
      checks.check_one_of(**{name: getattr(self, name) for name in names})
    self._check_image_size()
    for name, applies, others, default in (
      ("data_dir", self.task or self.tfds, "task or tfds", None),
      ("split", self.task, "task", "test"),
      ("tfds_split", self.tfds, "tfds", "train"),
      ("test_share", self.test_output, "test_output", 0.25),
      ("preprocess", self.saved_model, "saved_model", None),
      ("weights", self.application, "application", "imagenet"),
      ("layer", not self.embedding, "saved_model or application", None),
    ):
      value = getattr(self, name)
      if not applies and value is not None:
        must = f"be given with {others} only"
        raise errors.FieldError(name, must, repr(value))
      if applies and value is None:
        object.__setattr__(self, name, default)

  def generator(self, draw: int) -> np.random.Generator:
    """Returns the source of one of the draws, by its number."""
    return np.random.default_rng([self.seed, draw])

  def _check_image_size(self):
    if self.image_size and self.digits and self.embedding:
      must = "not be given with digits and embedding"
      raise errors.FieldError("image_size", must, self.image_size)
    is_needed = self.application or (self.image_folder and self.embedding)
    if is_needed and not self.image_size:
      must = "be given with application, or with image_folder and embedding"
      raise errors.FieldError("image_size", must, "nothing")
