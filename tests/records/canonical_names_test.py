"""Tests of the names in a SavedModel."""

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tff_fedemb.records import canonical_names


def _save(path):
  """Saves a function that calls another, a custom gradient and a loop."""

  @tf.custom_gradient
  def triple(x):
    return 3.0 * x, lambda upstream: 5.0 * upstream * x

  @tf.function
  def inner(x):
    for _ in tf.range(tf.cast(x[0], tf.int32)):
      x = 3.0 * x
    return x

  module = tf.Module()
  module.weight = tf.Variable(2.0, name="some_scope_8/weight")
  module.embed = tf.function(
    lambda images: {"embeddings": module.weight * inner(triple(images))},
    input_signature=[tf.TensorSpec([1], tf.float32, name="images")],
  )
  tf.saved_model.save(module, path, {"serving_default": module.embed})


def _read(path):
  return saved_model_pb2.SavedModel.FromString(
    (path / "saved_model.pb").read_bytes()
  )


def test_nothing_is_left_of_the_process_and_it_runs(tmp_path):
  contents = set()
  for number in range(2):
    path = tmp_path / str(number)
    _save(path)
    saved = _read(path)
    (meta,) = saved.meta_graphs
    # The second time changes nothing.
    for _ in range(2):
      canonical_names.Renaming(meta, keep="images").apply()
      content = saved.SerializeToString(deterministic=True)
      contents.add(content)
    (path / "saved_model.pb").write_bytes(content)
    for index, function in enumerate(meta.graph_def.library.function):
      assert function.signature.name == f"__inference_function_{index}"
    assert not any("scope" in node.name for node in meta.graph_def.node)
    assert b"embed_" not in content
    loaded = tf.saved_model.load(path)
    images = tf.constant([1.0])
    with tf.GradientTape() as tape:
      tape.watch(images)
      found = loaded.embed(images)["embeddings"]
    # 2 * 3 * 3 ** 3: the loop multiplies three times by 3.
    assert found.numpy().tolist() == [162.0]
    served = loaded.signatures["serving_default"](images=images)
    assert served["embeddings"].numpy().tolist() == [162.0]
    # The custom gradient, and three times around the loop.
    gradient = 2.0 * 5.0 * 3.0**3
    assert tape.gradient(found, images).numpy().tolist() == [gradient]
  assert len(contents) == 1
