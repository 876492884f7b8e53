"""Exported models, as the programs that embed images load them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import functools
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb.program import model_card
from tff_fedemb.program import tflite

with epy.lazy_imports():
  import tensorflow as tf

_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class Model:
  """A SavedModel whose default signature maps images to embeddings.

  Attributes:
    image_shape: Height, width and channels, or the shape of another example.
    embed: From uint8 images `[batch, height, width, channels]` to embeddings
      `[batch, dim]`.
    card: What goes along with the model; `None` with those of earlier versions
      or from elsewhere.
    path: Where it was loaded from, and is loaded again in another process.
  """

  image_shape: tuple[int, ...]
  embed: Callable[[np.ndarray], np.ndarray]
  card: model_card.ModelCard | None = None
  path: str | None = None

  def __call__(self, images: np.ndarray) -> np.ndarray:
    return self.embed(images)

  def __reduce__(self):
    return _load_once, (self.path,)


@functools.cache
def _load_once(path: str) -> Model:
  return load(path)


def load(path: str, *, of_images: bool = True) -> Model:
  """Loads a model from the directory of a SavedModel, or a .tflite file.

  Args:
    path: Where it is.
    of_images: Whether it must take images; else it may take anything.

  Raises:
    DataError: If its card is damaged.
    FieldError: If there is none, or its signature is another.
  """
  if pathlib.Path(path).suffix == tflite.SUFFIX:
    return _load_tflite(path)
  must = "be the directory of a SavedModel"
  if not pathlib.Path(path).is_dir():
    raise errors.FieldError("saved_model", must, path)
  try:
    module = tf.saved_model.load(path)
  # TensorFlow raises whatever comes of the part that is damaged.
  except Exception as error:
    raise errors.FieldError("saved_model", must, f"{path}: {error}") from error
  inputs, outputs = {}, {}
  found = f"with signatures {sorted(module.signatures)}"
  if _SIGNATURE in module.signatures:
    signature = module.signatures[_SIGNATURE]
    inputs = signature.structured_input_signature[1]
    outputs = signature.structured_outputs
    found = f"from {_describe(inputs)} to {_describe(outputs)}"
  if not _has_right_form(inputs, outputs, of_images=of_images):
    raise errors.FieldError(
      "saved_model",
      f"have a signature {_SIGNATURE!r} from images float32 [batch, height,"
      " width, channels], 1 or 3 channels, to embeddings float32 [batch, dim]",
      f"{path} {found}",
    )

  def embed(images):
    # Variables live as long as the module, which a signature does not hold.
    batch = tf.constant(images, tf.float32)
    return module.signatures[_SIGNATURE](images=batch)["embeddings"].numpy()

  return Model(
    tuple(inputs["images"].shape[1:].as_list()),
    embed,
    model_card.read(pathlib.Path(path) / model_card.PATH),
    os.path.abspath(path),
  )


def _load_tflite(path: str) -> Model:
  """Loads a .tflite file, and the card beside it."""
  card = model_card.read(card_path(path))
  digest = ((card and card.conversion) or {}).get("sha256")
  try:
    embedder = tflite.load(path, digest)
  # So does its interpreter.
  except Exception as error:
    raise errors.FieldError(
      "saved_model",
      "be the directory of a SavedModel or a .tflite file that"
      " binaries.export wrote",
      f"{path}: {errors.first_line(error)}",
    ) from error
  return Model(
    embedder.image_shape, embedder.embed, card, os.path.abspath(path)
  )


def card_path(path: str | pathlib.Path) -> pathlib.Path:
  """Where the card of a .tflite file lies: beside it."""
  return pathlib.Path(path).with_suffix(".json")


def _has_right_form(
  inputs: Mapping[str, tf.TensorSpec],
  outputs: Mapping[str, tf.TensorSpec],
  *,
  of_images: bool,
) -> bool:
  if set(inputs) != {"images"} or "embeddings" not in outputs:
    return False
  images, embeddings = inputs["images"], outputs["embeddings"]
  ranks = (4,) if of_images else (2, 3, 4)
  return (
    images.dtype == embeddings.dtype == tf.float32
    and images.shape.rank in ranks
    and embeddings.shape.rank == 2
    and images.shape[0] is None
    and images.shape[1:].is_fully_defined()
    and (images.shape.rank < 4 or images.shape[3] in (1, 3))
  )


def _describe(specs: Mapping[str, Any]) -> str:
  return ", ".join(
    f"{name} {spec.dtype.name} {spec.shape}"
    for name, spec in sorted(specs.items())
  )
