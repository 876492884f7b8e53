"""Converts a SavedModel to ONNX, and runs the outcome in ONNX Runtime.

Both come from `make setup ONNX=1`. Images go in as float32 as many at a time as
there are; what the SavedModel does to them is in the file, and the model's card
is in its metadata.
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

# The latest that tf2onnx 1.16 tests.
_OPSET = 17
_CARD = "model_card"
# The largest difference of two embeddings of length 1.
_TOLERANCE = 1e-4
_INSTALL = (
  "`make setup ONNX=1` installs them, or"
  " `pip install onnx onnxruntime tf2onnx`."
)


def import_module(name: str, field: str) -> Any:
  """Imports a module that is not installed everywhere.

  Args:
    name: Its name.
    field: Field by which the user asked for it.

  Raises:
    FieldError: If it is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.FieldError(
      field, "be another where the packages of ONNX are not installed", name,
      _INSTALL,
    ) from error  # fmt: skip


def convert(saved_model: str | os.PathLike[str]) -> bytes:
  """Converts a SavedModel; arguments and errors are as in `tflite.convert`."""
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
  """Returns the same file with a card in its metadata."""
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

    Args:
      content: Contents of the file, as in `convert` or `add_card`.

    Raises:
      ValueError: If it is something else.
    """
    onnxruntime = import_module("onnxruntime", "saved_model")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
      self._session = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
      )
    # It has a type for each of its codes.
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
    """Maps images `[n, height, width, channels]` to embeddings `[n, dim]`."""
    return self._session.run(
      ["embeddings"], {"images": images.astype(np.float32)}
    )[0]

  def check(self, images: np.ndarray, expected: np.ndarray) -> None:
    """Compares with the SavedModel.

    Args:
      images: Some of them.
      expected: Their embeddings by the SavedModel, without oneDNN.

    Raises:
      FieldError: If others come out.
    """
    largest = np.abs(self.embed(images) - expected).max()
    # NaN is a mismatch too.
    if not largest <= _TOLERANCE:
      raise errors.FieldError(
        "formats",
        "give the embeddings of the SavedModel",
        f"{FORMAT}, which differs by up to {largest:.2g}",
        "formats=float32 needs no ONNX.",
      )
