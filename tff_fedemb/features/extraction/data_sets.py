"""Images of published data sets: TensorFlow Datasets on disk, and digits.

Nothing is downloaded.
"""

import itertools

from etils import epy
import numpy as np
from PIL import Image

from tff_fedemb import errors
from tff_fedemb.data import tfds_directories
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  from sklearn import datasets
  import tensorflow_datasets as tfds

  from tff_fedemb.data import image_folder

TFDS_NAMES = ("cifar10", "cifar100", "imagenet2012")

_IMAGE, _LABEL = "image", "label"


def open_digits(
  image_shape: image_sources.ImageShape | None,
) -> image_sources.ImageSource:
  """Opens the 1,797 handwritten digits that come with scikit-learn.

  Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
  Learning Repository, 1998 (its test part): 8x8 pixels of 0 to 16.

  Args:
    image_shape: Height, width and channels to make of each, with pixels of 0 to
      255; `None` to leave them as they are.
  """
  digits = datasets.load_digits()
  images, largest = digits.images.astype(np.uint8)[..., np.newaxis], 16
  if image_shape is not None:
    height, width, channels = image_shape
    grey = np.rint(images[..., 0] * (255 / largest)).astype(np.uint8)
    resized = [
      Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
      for image in grey
    ]
    images = np.stack(list(map(np.asarray, resized)))[..., np.newaxis]
    images, largest = np.repeat(images, channels, axis=3), 255
  return image_sources.ImageSource(
    "scikit-learn's digits",
    digits.target.astype(np.int64),
    lambda rows: iter([(rows, images[rows])]),
    largest_value=largest,
  )


def open_tfds(
  name: str,
  data_dir: str | None,
  split: str,
  *,
  image_shape: image_sources.ImageShape | None,
  on_bad_example: str,
) -> image_sources.ImageSource:
  """Opens a data set that TensorFlow Datasets has prepared.

  Args:
    name: Name of the data set.
    data_dir: Its directory, `None` for TensorFlow Datasets' own.
    split: As TensorFlow Datasets writes it: "train", "test[:50%]".
    image_shape: Height, width and channels to make of each image; `None` to
      leave them as they are.
    on_bad_example: One of `bad_examples.POLICIES`.

  Raises:
    errors.FieldError: If it is not there, is damaged, has images without a
      label, or has images of several sizes and none is given.
  """
  directory = tfds_directories.find(name, data_dir, field="tfds")
  where = f"{directory} by tfds_split {split}"
  with errors.as_field_error("tfds", "be labelled images", where):
    builder = tfds.builder_from_directory(directory)
    unread = _iterate(
      builder, split, tfds.decode.PartialDecoding({_LABEL: True})
    )
    labels = np.array([example[_LABEL] for example in unread], np.int64)
    num_classes = builder.info.features[_LABEL].num_classes
    shape = image_shape or builder.info.features[_IMAGE].shape
  # The test images of imagenet2012 have label -1.
  is_label = (labels >= 0) & (labels < num_classes)
  if not is_label.all():
    must = f"be of images with labels of 0 to {num_classes - 1}"
    found = f"{labels[~is_label][0]} in {split} of {name}"
    raise errors.FieldError("tfds_split", must, found)
  if None in shape:
    must = f"be given for {name}, whose images have several"
    raise errors.FieldError("image_size", must, "nothing")
  skipped: list[str] = []

  def read(rows):
    contents = _read_contents(builder, split, rows, len(labels))
    return image_sources.read_files(
      rows,
      lambda row: image_folder.read_image(
        f"image {row} of {name} {split}", shape, content=next(contents)
      ),
      shape,
      skipped,
      on_bad_example=on_bad_example,
    )

  return image_sources.ImageSource(
    f"{split} images of {name}",
    labels,
    read,
    skipped=skipped,
    class_labels=np.arange(num_classes),
  )


def _iterate(builder, split: str, decoders):
  """Yields examples, always in the same order."""
  return builder.as_dataset(
    split=split, shuffle_files=False, decoders=decoders
  ).as_numpy_iterator()


def _read_contents(builder, split: str, rows: np.ndarray, num_images: int):
  """Yields the encoded images of ascending rows."""
  examples = _iterate(builder, split, {_IMAGE: tfds.decode.SkipDecoding()})
  is_wanted = np.isin(np.arange(num_images), rows)
  with errors.as_field_error("tfds_split", "be readable", split):
    for example in itertools.compress(examples, is_wanted):
      yield example[_IMAGE]
