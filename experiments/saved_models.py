"""Exported models, as the programs that embed images load them."""

import numpy as np
import tensorflow as tf

from tff_fedemb import errors

_SIGNATURE = "serving_default"


class Model:
  """A SavedModel whose default signature maps images to embeddings."""

  def __init__(self, path: str):
    """Loads the model.

    Args:
      path: Directory of the SavedModel.

    Raises:
      FieldError: If there is none, or its signature is another.
    """
    try:
      self._module = tf.saved_model.load(path)
    # TensorFlow raises whatever comes of the part that is damaged.
    except Exception as error:
      raise errors.FieldError(
        "saved_model", "be the directory of a SavedModel", f"{path}: {error}"
      ) from error
    self._embed = self._module.signatures.get(_SIGNATURE)
    if self._embed is None or not self._has_right_form():
      raise errors.FieldError(
        "saved_model",
        f"have a signature {_SIGNATURE!r} from images float32 [batch, height,"
        " width, channels], 1 or 3 channels, to embeddings float32 [batch,"
        " dim]",
        self._describe(path),
      )
    self.image_shape: tuple[int, int, int] = tuple(
      self._inputs["images"].shape[1:].as_list()
    )

  @property
  def _inputs(self) -> dict[str, tf.TensorSpec]:
    return self._embed.structured_input_signature[1]

  def _has_right_form(self) -> bool:
    inputs, outputs = self._inputs, self._embed.structured_outputs
    if set(inputs) != {"images"} or "embeddings" not in outputs:
      return False
    images, embeddings = inputs["images"], outputs["embeddings"]
    return (
      images.dtype == embeddings.dtype == tf.float32
      and images.shape.rank == 4
      and embeddings.shape.rank == 2
      and images.shape[0] is None
      and images.shape[1:].is_fully_defined()
      and images.shape[3] in (1, 3)
    )

  def _describe(self, path: str) -> str:
    if self._embed is None:
      names = sorted(self._module.signatures)
      return f"{path} with signatures {names}"

    def specs(tensors):
      return ", ".join(
        f"{name} {spec.dtype.name} {spec.shape}"
        for name, spec in sorted(tensors.items())
      )

    outputs = self._embed.structured_outputs
    return f"{path} from {specs(self._inputs)} to {specs(outputs)}"

  def embed(self, images: np.ndarray) -> np.ndarray:
    """Embeds uint8 images `[batch, height, width, channels]`."""
    return self._embed(images=tf.constant(images, tf.float32))[
      "embeddings"
    ].numpy()
