"""What an extraction of features may be asked for."""

import dataclasses

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.features import feature_files
from tff_fedemb.features.extraction import data_sets
from tff_fedemb.features.extraction import embeddings
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources

SPLITS = ("train", *task_lib.EVALUATION_SPLITS)

_SOURCES = ("task", "image_folder", "tfds", "digits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionConfig(image_sources.ImageConfig):
  """What to extract features from, how, and where to write them.

  What is `None` has its default once this exists, where it applies; it must not
  be given where it does not.

  Attributes:
    tfds: Data set of TensorFlow Datasets instead, prepared on disk.
    digits: Whether to take scikit-learn's digits instead.
    data_dir: Directory of the prepared data sets [TensorFlow Datasets' own].
    split: Split of the task [test].
    tfds_split: Split of the data set, such as test or train[:10%] [train].
    saved_model: Directory of the SavedModel that embeds, such as
      release/saved_model of a run.
    embedding: Map instead of a model.
    image_size: Side of the images in pixels where no model says it [as they
      are].
    num_classes: Classes drawn at random from all, with a test_output from those
      of two images or more; 0: all.
    max_images: Images drawn at random from those; 0: all.
    output: File to write, .npz or .tfrecord, in a directory that exists.
    test_output: File for images kept for testing [none].
    test_share: Share of each class's images in test_output [0.25].
    seed: Of the classes, images and random features that are drawn.
  """

  tfds: str | None = config.field(None, choices=data_sets.TFDS_NAMES)
  digits: bool = False
  data_dir: str | None = config.field(None, path=True)
  split: str | None = config.field(None, choices=SPLITS)
  tfds_split: str | None = None
  saved_model: str | None = None
  embedding: embeddings.Embedding | None = config.part(
    None, registry=embeddings.EMBEDDINGS
  )
  # What an image of the largest size is decoded to fits into memory.
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
    self._check_source()
    for name, applies, others, default in (
      ("data_dir", self.task or self.tfds, "task or tfds", None),
      ("split", self.task, "task", "test"),
      ("tfds_split", self.tfds, "tfds", "train"),
      ("test_share", self.test_output, "test_output", 0.25),
    ):
      value = getattr(self, name)
      if not applies and value is not None:
        raise errors.FieldError(
          name, f"be given with {others} only", repr(value)
        )
      if applies and value is None:
        object.__setattr__(self, name, default)

  def _check_source(self):
    given = [name for name in _SOURCES if getattr(self, name)]
    if len(given) != 1:
      raise errors.FieldError(
        "task",
        "be given, or image_folder, tfds or digits, one of them",
        " and ".join(given) or "none",
      )
    if bool(self.saved_model) == bool(self.embedding):
      raise errors.FieldError(
        "saved_model",
        "be given, or embedding, one of the two",
        "both" if self.embedding else "neither",
      )
    if self.image_size and (self.saved_model or self.digits):
      raise errors.FieldError(
        "image_size",
        "not be given with saved_model, which has its own, or digits",
        self.image_size,
      )
    if self.image_folder and not self.saved_model and not self.image_size:
      raise errors.FieldError(
        "image_size", "be given with image_folder and embedding", "nothing"
      )
