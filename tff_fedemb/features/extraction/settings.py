"""What an extraction of features may be asked for."""

import dataclasses

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.features import feature_files
from tff_fedemb.features.extraction import data_sets
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources

EMBEDDINGS = ("pixels", "random_features")
SPLITS = ("train", *task_lib.EVALUATION_SPLITS)

_SOURCES = ("task", "image_folder", "tfds", "digits")
# Pixels differ by 1 / 255 at least, so that a kernel of this is of equal images
# alone.
_LARGEST_GAMMA = 1e6
# What an image of the largest size is decoded to, and the frequencies of images
# of usual sizes, fit into memory.
_LARGEST_IMAGE_SIZE = 4096
_MOST_RANDOM_FEATURES = 2**16
# Where they apply and nothing is given.
_DEFAULTS = {
  "split": "test",
  "tfds_split": "train",
  "random_features": 512,
  "test_share": 0.25,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionConfig(image_sources.ImageConfig):
  """What to extract features from, how, and where to write them.

  What is `None` has its default once this exists, where it applies; it must not
  be given where it does not.

  Attributes:
    tfds: Data set of TensorFlow Datasets instead, prepared on disk.
    digits: Whether to take scikit-learn's digits instead.
    data_dir: Directory of the data of --task or --tfds.
    split: Split of the task [test].
    tfds_split: Split of --tfds, such as test or train[:10%] [train].
    saved_model: Directory of the SavedModel that embeds, such as
      release/saved_model of a run.
    embedding: Map instead of a model.
    random_features: How many random features, an even number [512].
    gamma: Of the random features' kernel exp(-gamma |x - y|^2) of pixels in
      [0, 1] [16 over their number].
    image_size: Side of the images in pixels where no model says it; 0: as they
      are.
    num_classes: Classes drawn at random from all, with --test_output from those
      of two images or more; 0: all.
    max_images: Images drawn at random from those; 0: all.
    output: File to write, .npz or .tfrecord, in a directory that exists.
    test_output: File for images kept for testing [none].
    test_share: Share of each class's images in --test_output [0.25].
    seed: Of the classes, images and random features that are drawn.
  """

  tfds: str | None = config.field(None, choices=data_sets.TFDS_NAMES)
  digits: bool = False
  data_dir: str | None = config.field(None, path=True)
  split: str | None = config.field(None, choices=SPLITS)
  tfds_split: str | None = None
  saved_model: str | None = None
  embedding: str | None = config.field(None, choices=EMBEDDINGS)
  random_features: int | None = config.field(
    None, minimum=2, maximum=_MOST_RANDOM_FEATURES
  )
  gamma: float | None = config.field(None, above=0, maximum=_LARGEST_GAMMA)
  image_size: int = config.field(0, minimum=0, maximum=_LARGEST_IMAGE_SIZE)
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
    if (self.random_features or 0) % 2:
      found = self.random_features
      raise errors.FieldError("random_features", "be even", found)
    if self.num_classes == 1:
      raise errors.FieldError("num_classes", "be at least 2, or 0", 1)
    self._check_source()
    self._settle_optional()

  def _check_source(self):
    given = [f"--{name}" for name in _SOURCES if getattr(self, name)]
    if len(given) != 1:
      raise errors.FieldError(
        "task",
        "be given, or --image_folder, --tfds or --digits, one of them",
        " and ".join(given) or "none",
      )
    if bool(self.saved_model) == bool(self.embedding):
      raise errors.FieldError(
        "saved_model",
        "be given, or --embedding, one of the two",
        "both" if self.embedding else "neither",
      )
    if self.image_size and (self.saved_model or self.digits):
      raise errors.FieldError(
        "image_size",
        "not be given with --saved_model, which has its own, or --digits",
        self.image_size,
      )
    if self.image_folder and not self.saved_model and not self.image_size:
      raise errors.FieldError(
        "image_size", "be given with --image_folder and --embedding", "nothing"
      )

  def _settle_optional(self):
    """Refuses what would go unused, and sets defaults of the rest."""
    for names, applies, others in (
      (("data_dir",), self.task or self.tfds, "--task or --tfds"),
      (("split",), self.task, "--task"),
      (("tfds_split",), self.tfds, "--tfds"),
      (
        ("random_features", "gamma"),
        self.embedding == "random_features",
        "--embedding=random_features",
      ),
      (("test_share",), self.test_output, "--test_output"),
    ):
      for name in names:
        value = getattr(self, name)
        if not applies and value is not None:
          raise errors.FieldError(
            name, f"be given with {others} only", repr(value)
          )
        if applies and value is None:
          object.__setattr__(self, name, _DEFAULTS.get(name))
