"""Converts a SavedModel to TensorFlow Lite, for phones, and runs the result.

Weights are float32 or float16, or weights and activations are int8 (Jacob et
al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", CVPR 2018). In all formats, images go in and
embeddings come out as float32, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import functools
import os
import statistics
import tempfile
import timeit
from typing import Any
import warnings

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import errors

with epy.lazy_imports():
  import tensorflow as tf

FORMATS = ("float32", "float16", "int8")
SUFFIX = ".tflite"

_SIGNATURE = "serving_default"
# Characters of a converter's message that an error quotes.
_MAX_SAID = 200
_NUM_CALIBRATION_IMAGES = 200
_NUM_TIMINGS = 30
_NUM_WARM_UPS = 3
# Sides of the grids that made-up images are interpolated from.
_OCTAVES = (2, 4, 8, 16, 32)


def convert(
  saved_model: str | os.PathLike[str],
  number_format: str,
) -> bytes:
  """Converts a SavedModel.

  Privacy:
    The int8 format takes the ranges of activations from made-up images, which
    show nobody.

  Args:
    saved_model: Its directory, with a default signature from `images` float32
      `[batch, height, width, channels]` to `embeddings`.
    number_format: One of `FORMATS`.

  Returns:
    The contents of a .tflite file.

  Raises:
    errors.FieldError: If the format is unknown, the model has another
      signature, or it has operations that TensorFlow Lite lacks.
  """
  checks.check_choice("formats", number_format, FORMATS)
  # TensorFlow Lite's delegates, such as that for GPUs, need fixed shapes.
  model, shape = open_model(saved_model, batch_size=1)
  with tempfile.TemporaryDirectory() as directory:
    # Only the signature of a SavedModel keeps the names of inputs and outputs.
    tf.saved_model.save(model, directory, signatures={_SIGNATURE: model.embed})
    converter = tf.lite.TFLiteConverter.from_saved_model(directory)
    if number_format != "float32":
      converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if number_format == "float16":
      converter.target_spec.supported_types = [tf.float16]
    if number_format == "int8":
      images = make_up_images(shape, _NUM_CALIBRATION_IMAGES)
      converter.representative_dataset = functools.partial(_feed, images)
    try:
      return converter.convert()
    # The converter has no type of its own for what it cannot convert.
    except Exception as error:
      raise refuse_conversion(
        number_format, "TensorFlow Lite", error
      ) from error


def _feed(images: np.ndarray) -> Iterator[list[np.ndarray]]:
  """Yields the inputs of a model that takes one image.

  Args:
    images: `[n, height, width, channels]`.

  Yields:
    A list of one float32 `[1, height, width, channels]`.
  """
  for image in images:
    yield [image[np.newaxis].astype(np.float32)]


def open_model(
  saved_model: str | os.PathLike[str],
  *,
  batch_size: int | None,
) -> tuple[Any, tf.TensorShape]:
  """Opens a SavedModel, to convert it.

  Args:
    saved_model: Its directory, as in `convert`.
    batch_size: Number of images at a time; `None` for any.

  Returns:
    A module, and the shape of an image. The module's `embed` is a function from
    `images` to a dictionary with `embeddings`.

  Raises:
    errors.FieldError: If the SavedModel has another signature.
  """
  model = tf.Module()
  model.original = tf.saved_model.load(os.fspath(saved_model))
  try:
    signature = model.original.signatures[_SIGNATURE]
    shape = signature.structured_input_signature[1]["images"].shape[1:]
    _ = signature.structured_outputs["embeddings"]
  except KeyError as error:
    raise errors.FieldError(
      "saved_model",
      f"have a signature {_SIGNATURE!r} from images to embeddings",
      f"{saved_model} without {error}",
    ) from error
  images = tf.TensorSpec((batch_size,) + shape, tf.float32, name="images")
  model.embed = tf.function(
    lambda images: {"embeddings": signature(images=images)["embeddings"]},
    input_signature=[images],
  )
  return model, shape


def refuse_conversion(
  number_format: str,
  converter: str,
  error: Exception,
) -> errors.FieldError:
  """Returns the error of a model that a converter refuses.

  Args:
    number_format: The format that was asked for.
    converter: Name of the converter.
    error: The converter's own error, whose beginning is quoted.

  Returns:
    A `FieldError` of `formats` with up to 200 characters of the message.
  """
  said = " ".join(str(error).split())[:_MAX_SAID]
  return errors.FieldError(
    "formats",
    "be what the model can be converted to",
    f"{number_format}, of which {converter} says: {said}",
  )


class Embedder:
  """Embeds images with a .tflite file, on one thread.

  Attributes:
    image_shape: Height, width and channels.
  """

  def __init__(self, content: bytes):
    """Initialises the interpreter.

    Args:
      content: Contents of the file, as in `convert`.

    Raises:
      ValueError: If it is something else.
    """
    with warnings.catch_warnings():
      # TensorFlow 2.21 still has it; its successor is a package of its own.
      warnings.filterwarnings("ignore", r"\s*Warning: tf\.lite\.Interpreter")
      interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
    if _SIGNATURE not in interpreter.get_signature_list():
      raise ValueError(f"there is no signature {_SIGNATURE!r} in it")
    # The runner keeps the interpreter alive.
    self._run: Any = interpreter.get_signature_runner(_SIGNATURE)
    inputs = self._run.get_input_details()
    outputs = self._run.get_output_details()
    if set(inputs) != {"images"} or set(outputs) != {"embeddings"}:
      raise ValueError("it does not take images and give embeddings")
    _, height, width, channels = map(int, inputs["images"]["shape"])
    self.image_shape = height, width, channels

  def embed(self, images: np.ndarray) -> np.ndarray:
    """Embeds images, one at a time.

    Args:
      images: `[n, height, width, channels]`, in [0, 255], n at least 1.

    Returns:
      Embeddings, float32 `[n, dim]`.

    Raises:
      ValueError: If there is no image.
    """
    embedded = []
    for image in images:
      batch = image[np.newaxis].astype(np.float32)
      embedded.append(self._run(images=batch)["embeddings"])
    return np.concatenate(embedded)


def make_up_images(image_shape: tuple[int, ...], num_images: int) -> np.ndarray:
  """Makes up images to calibrate with, which show nobody and nothing.

  They are clouds of all sizes, each in a random range of values; every other
  image has two tones only, like ink on paper.

  Args:
    image_shape: Height, width and channels.
    num_images: Number of images.

  Returns:
    uint8 `[num_images, height, width, channels]`.
  """
  generator = np.random.default_rng(0)
  height, width, channels = image_shape
  images = np.zeros((num_images,) + tuple(image_shape), np.float32)
  for octave in _OCTAVES:
    if octave <= max(height, width):
      grid = generator.normal(size=(num_images, octave, octave, channels))
      images += tf.image.resize(grid / octave**0.5, (height, width)).numpy()
  images /= np.abs(images).max(axis=(1, 2, 3), keepdims=True)
  images[1::2] = np.sign(images[1::2])
  low, high = generator.uniform(0, 255, (2, num_images, 1, 1, 1))
  values = low + (high - low) * (images + 1) / 2
  return np.rint(values).astype(np.uint8)


def time_one_image(
  embed: Callable[[np.ndarray], np.ndarray],
  image_shape: tuple[int, ...],
) -> float:
  """Times the embedding of one image.

  Three calls before these warm up, and are not counted.

  Args:
    embed: Maps images `[1, height, width, channels]` to embeddings.
    image_shape: Height, width and channels.

  Returns:
    The median of 30 times, in milliseconds.
  """
  image = make_up_images(image_shape, 1)
  seconds = timeit.repeat(
    lambda: embed(image), number=1, repeat=_NUM_WARM_UPS + _NUM_TIMINGS
  )
  return 1e3 * statistics.median(seconds[_NUM_WARM_UPS:])
