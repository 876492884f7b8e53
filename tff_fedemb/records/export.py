"""Exports a backbone as a SavedModel that plain TensorFlow loads.

Its bytes are a function of the network and its weights, whatever the process
has done before: a model is given away, and nothing else may go along.
"""

import os
import pathlib
import shutil

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tff_fedemb.models import pretrained
from tff_fedemb.models import weight_names
from tff_fedemb.records import canonical_names
from tff_fedemb.records import model_card
from tff_fedemb.records import storage

_INPUT = "images"


class _EmbeddingModel(tf.Module):
  """A backbone with unit-norm embeddings.

  Attributes:
    weights: Its weights. Its layers would bring their numbers in this process,
      and take ten times as long to save.
  """

  def __init__(self, backbone: tf.keras.Model, weights: list[tf.Variable]):
    super().__init__()
    self.weights = weights
    shape = (None,) + backbone.input_shape[1:]
    images = tf.TensorSpec(shape, tf.float32, name=_INPUT)

    @tf.function(input_signature=[images])
    def embed(images):
      embeddings = backbone(images, training=False)
      return {"embeddings": tf.math.l2_normalize(embeddings, axis=1)}

    self.embed = embed


def export_backbone(
  backbone: tf.keras.Model,
  path: str | os.PathLike[str],
  card: model_card.ModelCard | None = None,
) -> None:
  """Writes a SavedModel, whole or not at all, in place of an earlier one.

  Its default signature maps `images` float32 `[batch, height, width,
  channels]` in [0, 255] to unit-norm `embeddings` float32 `[batch, dim]`.

  Args:
    backbone: A Keras model from images to embeddings.
    path: The SavedModel's directory.
    card: Card that goes along with it, as `assets.extra/model_card.json`.

  Raises:
    errors.StorageError: If it cannot be written.
  """
  path = pathlib.Path(path)
  temporary = path.with_name(f".{path.name}.partial")
  shutil.rmtree(temporary, ignore_errors=True)
  weights = weight_names.portable_weights(backbone)
  model = _EmbeddingModel(backbone, [weight for _, weight in weights])
  with storage.writing(path.parent):
    tf.saved_model.save(
      model,
      os.fspath(temporary),
      signatures={"serving_default": model.embed},
    )
    _make_canonical(temporary, [name for name, _ in weights])
    if card is not None:
      model_card.write(card, temporary / model_card.PATH)
  shutil.rmtree(path, ignore_errors=True)
  os.replace(temporary, path)


def _make_canonical(directory: pathlib.Path, names: list[str]) -> None:
  """Rewrites what TensorFlow wrote without what tells of this process.

  Args:
    directory: A SavedModel of an `_EmbeddingModel`.
    names: Names of its weights.
  """
  path = directory / "saved_model.pb"
  saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
  (meta,) = saved.meta_graphs
  canonical_names.Renaming(meta, keep=_INPUT).apply()
  variables = [
    each.variable
    for each in meta.object_graph_def.nodes
    if each.HasField("variable")
  ]
  for variable, name in zip(variables, names, strict=True):
    variable.name = name
  before, after = _rename_weights(directory / "variables" / "variables", names)
  for node in meta.graph_def.node:
    # The operation that saves the weights again has the name, too.
    if node.op == "Const" and before in node.attr["value"].tensor.string_val:
      node.attr["value"].tensor.string_val[:] = [after]
  path.write_bytes(saved.SerializeToString(deterministic=True))
  # It holds a number drawn at random, and digests of the former bytes. All that
  # load a SavedModel do without.
  (directory / "fingerprint.pb").unlink()


def _rename_weights(
  prefix: pathlib.Path,
  names: list[str],
) -> tuple[bytes, bytes]:
  """Writes a checkpoint again, in which the weights have other names.

  Returns:
    Its description of the weights, as it was and as it is.
  """
  reader = tf.train.load_checkpoint(os.fspath(prefix))
  values = {
    key: reader.get_tensor(key)
    for key in sorted(reader.get_variable_to_shape_map())
  }
  graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
    values[pretrained.OBJECT_GRAPH]
  )
  attributes = [each for node in graph.nodes for each in node.attributes]
  for attribute, name in zip(attributes, names, strict=True):
    attribute.full_name = name
  before = values[pretrained.OBJECT_GRAPH]
  after = graph.SerializeToString(deterministic=True)
  values[pretrained.OBJECT_GRAPH] = after
  shutil.rmtree(prefix.parent)
  prefix.parent.mkdir()
  tf.raw_ops.SaveV2(
    prefix=os.fspath(prefix),
    tensor_names=list(values),
    shape_and_slices=[""] * len(values),
    tensors=list(values.values()),
  )
  return before, after
