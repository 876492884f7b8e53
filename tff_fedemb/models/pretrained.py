"""Starts a backbone from weights that were trained before, elsewhere.

Training on public data first costs no privacy (Xu et al. 2023). The weights
must come from public data: nothing here can tell, and weights trained on the
users' own data would make the statement of epsilon false.

Weights are matched by name, "block_3_expand/kernel". Two cases beside:

- A file in which no name is known, whose weights have the same shapes in the
  same order, is taken in order.
- A file that knows all of a backbone's layers except those of normalisation
  and the embedding layer is taken for one of an image classifier, such as
  those of `tf.keras.applications`; what it knows is loaded, the rest is left
  as initialised. Scales and offsets of its batch normalisation are not loaded:
  they belong to channels that were standardised one by one over the data, and
  group normalisation standardises many together within an image.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.models import freezing
from tff_fedemb.models import weight_files


class PretrainedError(errors.FieldError):
  """A file of weights cannot be used for a backbone."""

  def __init__(self, requirement: str, found: str):
    super().__init__("pretrained_backbone", requirement, found)


@dataclasses.dataclass(frozen=True)
class PretrainedReport:
  """What was loaded into a backbone.

  Attributes:
    path: The file or directory.
    kind: What it is.
    loaded_layers: Names of the layers whose weights were loaded.
    initialized_layers: Names of the layers that were left as initialised.
    num_loaded: Number of scalar weights loaded.
    num_initialized: Number of scalar weights left as initialised.
    num_unused: Number of tensors in the file that the backbone has no use for.
  """

  path: str
  kind: str
  loaded_layers: tuple[str, ...]
  initialized_layers: tuple[str, ...]
  num_loaded: int
  num_initialized: int
  num_unused: int

  def to_text(self) -> str:
    """The report in one line."""
    text = (
      f"Loaded {self.num_loaded:,} weights of {len(self.loaded_layers)}"
      f" layers from {self.path} ({self.kind})"
    )
    if self.initialized_layers:
      text += (
        f"; {self.num_initialized:,} weights of"
        f" {len(self.initialized_layers)} layers are not in it and stay as"
        f" initialised ({self.initialized_layers[0]} ..."
        f" {self.initialized_layers[-1]})"
      )
    return text + "."


def load_pretrained(
  backbone: tf.keras.Model, path: str | os.PathLike[str]
) -> PretrainedReport:
  """Sets a backbone's weights from a file.

  Everything must fit: same names (or no name known and the same order), same
  shapes, nothing missing and nothing left over. The exception are the files of
  image classifiers, see above. Optimizers and metrics in a file are passed
  over. What is frozen stays frozen and is loaded all the same.

  Args:
    backbone: A flat Keras model. Untouched if anything fails.
    path: A SavedModel's directory (of `export.export_backbone` or any other);
      a Keras file .h5, .hdf5 or .keras; a TensorFlow checkpoint, with or
      without its .index.

  Returns:
    What was loaded and what was not.

  Raises:
    PretrainedError: If the file is missing, damaged, of another kind, or does
      not fit; names the first weight that does not, with its shapes.
  """
  try:
    kind, weights = weight_files.read_weights(path, backbone)
  except errors.DataError as error:
    raise PretrainedError(
      "be a SavedModel's directory, a Keras file or a TensorFlow checkpoint",
      str(error),
    ) from error
  variables = weight_files.layer_weights(backbone)
  values = _match(backbone, variables, weights, os.fspath(path))
  # Only now, so that nothing has changed when anything failed.
  for name, value in values.items():
    variables[name].assign(value)
  loaded = _layers(values)
  left = [name for name in variables if name not in values]
  return PretrainedReport(
    path=os.fspath(path),
    kind=kind,
    loaded_layers=loaded,
    initialized_layers=_layers(left),
    num_loaded=sum(value.size for value in values.values()),
    num_initialized=sum(int(np.prod(variables[n].shape)) for n in left),
    num_unused=len(weights) - len(values),
  )


def _layers(names) -> tuple[str, ...]:
  """Names of the layers of weights, each once, in order."""
  return tuple(dict.fromkeys(name.partition("/")[0] for name in names))


def _can_be_initialized(backbone: tf.keras.Model, name: str) -> bool:
  """Whether no file of an image classifier holds a weight."""
  layer = backbone.get_layer(name.partition("/")[0])
  return freezing.is_normalization(layer) or freezing.is_embedding(layer)


def _match(
  backbone: tf.keras.Model,
  variables: dict[str, tf.Variable],
  weights: weight_files.Weights,
  path: str,
) -> weight_files.Weights:
  """The values of a backbone's weights, by their names in the backbone."""

  def fail(found: str):
    raise PretrainedError(f"fit backbone {backbone.name}", f"{path} {found}")

  shapes = {name: v.shape.as_list() for name, v in variables.items()}
  names_in_file = {name: name for name in variables if name in weights}
  by_name = bool(names_in_file)
  if not by_name:
    names_in_file = dict(zip(variables, weights, strict=False))
  for name, name_in_file in names_in_file.items():
    shape = list(weights[name_in_file].shape)
    if shape != shapes[name]:
      here = "" if by_name else f"{name} of "
      fail(
        f"with {name_in_file} of {shape} where {here}{shapes[name]} is needed"
      )
  missing = [name for name in variables if name not in names_in_file]
  initialized = {
    name for name in variables if _can_be_initialized(backbone, name)
  }
  is_classifier = by_name and initialized == set(missing)
  if missing and not is_classifier:
    if by_name and initialized.issubset(missing):
      missing = [name for name in missing if name not in initialized]
    fail(f"without {missing[0]} of {shapes[missing[0]]}")
  unused = [name for name in weights if name not in names_in_file.values()]
  if unused and not is_classifier:
    shape = list(weights[unused[0]].shape)
    fail(f"with {unused[0]} of {shape}, which it has no use for")
  values = {name: weights[other] for name, other in names_in_file.items()}
  for name, value in values.items():
    if value.dtype.kind not in "fiu" or not np.all(np.isfinite(value)):
      fail(f"with {name} that is not all finite numbers")
  return values
