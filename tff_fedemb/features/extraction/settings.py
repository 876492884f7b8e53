"""Settings of an extraction of features."""

import dataclasses

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.features import feature_files
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import saved_models

EMBEDDINGS = ("pixels",)
SPLITS = ("train", *task_lib.EVALUATION_SPLITS)
_SOURCES = ("task", "image_folder", "digits")
_EMBEDDERS = ("saved_model", "application", "embedding")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionConfig(image_sources.ImageConfig):
  """Images to extract features from, the map, and the files to write.

  A field that is `None` has its default once this exists, where it applies; it
  must not be given where it does not.

  Attributes:
    digits: Whether to take the pixels of scikit-learn's digits instead.
    split: Split of the task [test].
    saved_model: Model that embeds: a SavedModel's directory, such as
      release/saved_model of a run, a .keras, .h5 or .tflite file.
    preprocess: Pixels that it takes [0 to 255] (unit: 0 to 1; tf, caffe and
      torch: modes of Keras' preprocess_input).
    application: Model of keras.applications instead, such as MobileNetV2; its
      own preprocess_input makes images ready.
    weights: Weights of the application: imagenet, which Keras downloads, none,
      or a file of public weights [imagenet].
    layer: Layer of a Keras model, or output of a SavedModel, whose mean over
      places is the feature [the last].
    embedding: Map instead of a model: pixels, in [0, 1].
    image_size: Side of the images in pixels where no model says it [as they
      are].
    num_classes: Classes drawn at random from all; 0: all.
    max_images: Images drawn at random from those; 0: all.
    output: File to write, .npz, in a directory that exists.
    test_output: File for images kept for testing [none].
    test_share: Share of each class's images in test_output, of several images
      at least one and not all [0.25].
    seed: Seed of the classes and images that are drawn.
  """

  digits: bool = False
  split: str | None = config.field(None, choices=SPLITS)
  saved_model: str | None = None
  preprocess: str | None = config.field(None, choices=saved_models.PREPROCESS)
  application: str | None = None
  weights: str | None = None
  layer: str | None = None
  embedding: str | None = config.field(None, choices=EMBEDDINGS)
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
    for names in (_SOURCES, _EMBEDDERS):
      checks.check_one_of(**{name: getattr(self, name) for name in names})
    needs_size = self.application or (self.image_folder and self.embedding)
    if needs_size and not self.image_size:
      must = "be given with application, or with image_folder and embedding"
      raise errors.FieldError("image_size", must, "nothing")
    for name, applies, others, default in (
      ("digits", self.embedding, "embedding", None),
      ("image_size", not self.digits, "task or image_folder", None),
      ("split", self.task, "task", "test"),
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
    """Returns the source of one of the draws, by its number."""
    return np.random.default_rng([self.seed, draw])
