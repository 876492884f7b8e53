"""Converts a SavedModel to ONNX, and runs the result in ONNX Runtime.

`make setup ONNX=1` installs the packages for both. Images go in as float32, any
number at a time. The file has all operations of the SavedModel, and the model's
card in its metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
import importlib
import json
import os
from typing import Any

import numpy as np

from tff_fedemb import errors
from tff_fedemb.phones import tflite
from tff_fedemb.records import model_card

FORMAT = "onnx"
SUFFIX = ".onnx"

# The latest version of ONNX's operators that tf2onnx 1.16 tests.
_OPSET = 17
_CARD = "model_card"
# Largest difference of two numbers, in embeddings of length 1.
_TOLERANCE = 1e-4
# Networks that standardise images amplify the rounding of almost blank ones:
# these have a smaller standard deviation, in [0, 255].
_LEAST_CONTRAST = 5.0
_INSTALL = (
  "`make setup ONNX=1` installs them, or"
  " `pip install onnx onnxruntime tf2onnx`."
)


def import_module(name: str, field: str) -> Any:
  """Imports a module that is not installed everywhere.

  Args:
    name: Name of the module.
    field: Field by which the user asked for it.

  Returns:
    The module.

  Raises:
    errors.FieldError: If it is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    must = "be another where the packages of ONNX are not installed"
    raise errors.FieldError(field, must, name, _INSTALL) from error


def convert(saved_model: str | os.PathLike[str]) -> bytes:
  """Converts a SavedModel.

  Args:
    saved_model: Its directory, as in `tflite.convert`.

  Returns:
    The contents of an .onnx file, without a card.

  Raises:
    errors.FieldError: If tf2onnx is not installed, the model has another
      signature, or it has operations that tf2onnx lacks.
  """
  tf2onnx = import_module("tf2onnx", "formats")
  model, _ = tflite.open_model(saved_model, batch_size=None)
  try:
    proto, _ = tf2onnx.convert.from_function(
      model.embed, input_signature=model.embed.input_signature, opset=_OPSET
    )
  # The converter has no type of its own for what it cannot convert.
  except Exception as error:
    raise tflite.refuse_conversion(FORMAT, "tf2onnx", error) from error
  return proto.SerializeToString()


def add_card(content: bytes, card: model_card.ModelCard) -> bytes:
  """Adds a card to the metadata of a file.

  Args:
    content: Contents of the file.
    card: The card.

  Returns:
    Contents of the file with the card.

  Raises:
    errors.FieldError: If the packages of ONNX are not installed.
  """
  onnx = import_module("onnx", "formats")
  model = onnx.load_from_string(content)
  onnx.helper.set_model_props(model, {_CARD: json.dumps(card.to_json())})
  return model.SerializeToString()


class Embedder:
  """Embeds images with an ONNX file, on one thread.

  Attributes:
    image_shape: Height, width and channels.
    card: Card in the file's metadata; None if there is none.
  """

  def __init__(self, content: bytes):
    """Opens a session.

    It runs on the CPU, whatever else ONNX Runtime could use.

    Args:
      content: Contents of the file, as in `convert` or `add_card`.

    Raises:
      errors.FieldError: If ONNX Runtime is not installed.
      ValueError: If the content is something else.
    """
    onnxruntime = import_module("onnxruntime", "saved_model")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    try:
      self._session = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
      )
    # ONNX Runtime has a type of error for each of its codes.
    except Exception as error:
      raise ValueError(errors.first_line(error)) from error
    inputs = {each.name: each.shape for each in self._session.get_inputs()}
    outputs = [each.name for each in self._session.get_outputs()]
    if set(inputs) != {"images"} or set(outputs) != {"embeddings"}:
      raise ValueError("it does not take images and give embeddings")
    _, height, width, channels = inputs["images"]
    self.image_shape = height, width, channels
    found: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map
    self.card = None
    if _CARD in found:
      self.card = model_card.ModelCard.from_json(json.loads(found[_CARD]))

  def embed(self, images: np.ndarray) -> np.ndarray:
    """Embeds images.

    Args:
      images: `[n, height, width, channels]`, in [0, 255].

    Returns:
      Embeddings, float32 `[n, dim]`.
    """
    inputs = {"images": images.astype(np.float32)}
    (embeddings,) = self._session.run(["embeddings"], inputs)
    return embeddings

  def check(self, images: np.ndarray, expected: np.ndarray) -> None:
    """Compares embeddings with those of the SavedModel.

    Any number that is not finite counts as a difference. Images that are almost
    blank are left out, unless all are.

    Args:
      images: `[n, height, width, channels]`.
      expected: Embeddings by the SavedModel, without oneDNN, `[n, dim]`.

    Raises:
      errors.FieldError: If a number differs by more than 1e-4, or ONNX Runtime
        cannot run the file.
    """
    is_clear = images.std(axis=(1, 2, 3)) >= _LEAST_CONTRAST
    if is_clear.any():
      images, expected = images[is_clear], expected[is_clear]
    try:
      found = self.embed(images)
    # ONNX Runtime has a type of error for each of its codes.
    except Exception as error:
      raise tflite.refuse_conversion(FORMAT, "ONNX Runtime", error) from error
    largest = np.abs(found - expected).max()
    # NaN is a mismatch too.
    if not largest <= _TOLERANCE:
      raise errors.FieldError(
        "formats",
        "give the embeddings of the SavedModel",
        f"{FORMAT}, which differs by up to {largest:.2g}",
        "formats=float32 needs no ONNX.",
      )
