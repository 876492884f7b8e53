"""Exports a backbone as a SavedModel that plain TensorFlow loads.

The bytes depend only on the network and its weights, not on what the process
did before: a model is given away, and must reveal nothing else.
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
    weights: Its weights. They are saved without their layers, whose names are
      numbered in this process, and which take ten times as long to save.

  Args:
    backbone: Keras model from images to embeddings of any norm.
    weights: Its weights, in the order in which they are saved.
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

  The export is canonical: names of nodes, functions and weights are replaced,
  and the fingerprint is removed. So equal networks with equal weights have
  equal bytes.

  Args:
    backbone: A Keras model from images to embeddings.
    path: Directory of the SavedModel, in a directory that exists.
    card: Card of the model [none], written to `assets.extra/model_card.json`.

  Raises:
    errors.StorageError: If the files cannot be written.
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
  """Removes what depends on this process from a SavedModel.

  TensorFlow names weights, nodes and functions after counters of the process.

  Args:
    directory: A SavedModel of an `_EmbeddingModel`.
    names: Names of its weights.
  """
  path = directory / "saved_model.pb"
  saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
  (meta,) = saved.meta_graphs
  canonical_names.Renaming(meta, keep=_INPUT).apply()
  objects = meta.object_graph_def.nodes
  variables = [each.variable for each in objects if each.HasField("variable")]
  for variable, name in zip(variables, names, strict=True):
    variable.name = name
  before, after = _rename_weights(directory / "variables" / "variables", names)
  for node in meta.graph_def.node:
    # The graph also has the description of the weights as a constant, for the
    # operation that saves them again.
    if node.op != "Const":
      continue
    texts = node.attr["value"].tensor.string_val
    if before in texts:
      texts[:] = [after]
  path.write_bytes(saved.SerializeToString(deterministic=True))
  # The fingerprint has a random number and digests of the former bytes. Loaders
  # of a SavedModel do not need it.
  (directory / "fingerprint.pb").unlink()


def _rename_weights(
  prefix: pathlib.Path,
  names: list[str],
) -> tuple[bytes, bytes]:
  """Renames the weights of a checkpoint, which is written again.

  Args:
    prefix: Path that the names of its files begin with.
    names: New names, in order.

  Returns:
    The checkpoint's description of the weights, before and after.
  """
  reader = tf.train.load_checkpoint(os.fspath(prefix))
  keys = sorted(reader.get_variable_to_shape_map())
  values = {key: reader.get_tensor(key) for key in keys}
  before = values[pretrained.OBJECT_GRAPH]
  graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(before)
  attributes = [each for node in graph.nodes for each in node.attributes]
  for attribute, name in zip(attributes, names, strict=True):
    attribute.full_name = name
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
