"""Images of data sets that TensorFlow Datasets has prepared on disk.

Nothing is downloaded.
"""

from collections.abc import Iterator
import itertools
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb.data import tfds_directories
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  import tensorflow_datasets as tfds

  from tff_fedemb.data import image_folder

NAMES = ("cifar10", "cifar100", "imagenet2012")

_IMAGE = "image"
_LABEL = "label"


def open_source(
  name: str,
  data_dir: str | None,
  split: str,
  *,
  image_shape: image_sources.ImageShape | None,
  on_bad_example: str,
) -> image_sources.ImageSource:
  """Opens a data set.

  Args:
    name: Name of the data set, one of `NAMES`.
    data_dir: Its directory, `None` for TensorFlow Datasets' own.
    split: As TensorFlow Datasets writes it: "train", "test[:50%]".
    image_shape: Height, width and channels that each image is resized to;
      `None` to leave them as they are.
    on_bad_example: One of `bad_examples.POLICIES`.

  Returns:
    Its images, in an order that is always the same; only labels are read yet.

  Raises:
    errors.FieldError: If the data set is not there, is damaged, has images
      without a label, or has images of several sizes and `image_shape` is
      `None`.
  """
  directory = tfds_directories.find(name, data_dir, field="tfds")
  where = f"{directory} by tfds_split {split}"
  with errors.as_field_error("tfds", "be labelled images", where):
    builder = tfds.builder_from_directory(directory)
    labels_alone = tfds.decode.PartialDecoding({_LABEL: True})
    examples = _iterate(builder, split, labels_alone)
    labels = np.array([example[_LABEL] for example in examples], np.int64)
    # The test images of imagenet2012 have label -1.
    if np.any(labels < 0):
      raise ValueError("some have no label")
    num_classes = builder.info.features[_LABEL].num_classes
    shape = image_shape or builder.info.features[_IMAGE].shape
  if None in shape:
    must = f"be given for {name}, whose images have several"
    raise errors.FieldError("image_size", must, "nothing")
  skipped: list[str] = []

  def read(rows: np.ndarray) -> image_sources.Batches:
    examples = _iterate(builder, split, {_IMAGE: tfds.decode.SkipDecoding()})
    is_wanted = np.isin(np.arange(len(labels)), rows)
    wanted = itertools.compress(examples, is_wanted)

    def read_image(row: int) -> np.ndarray:
      path = f"image {row} of {name} {split}"
      with errors.as_field_error("tfds_split", "be readable", split):
        content = next(wanted)[_IMAGE]
        return image_folder.read_image(path, shape, content=content)

    return image_sources.read_images(
      rows, read_image, shape, skipped, on_bad_example=on_bad_example
    )

  return image_sources.ImageSource(
    f"{split} images of {name}",
    labels,
    read,
    skipped=skipped,
    class_labels=np.arange(num_classes),
  )


def _iterate(builder: Any, split: str, decoders: Any) -> Iterator[Any]:
  """Iterates over examples, always in the same order.

  `decoders` says which features are read, and how.
  """
  dataset = builder.as_dataset(
    split=split, shuffle_files=False, decoders=decoders
  )
  return dataset.as_numpy_iterator()
