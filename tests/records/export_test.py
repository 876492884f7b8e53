"""Tests of the exported SavedModel."""

import hashlib
import itertools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.records import exported_bytes
from tff_fedemb.models import pooled
from tff_fedemb.models import pretrained
from tff_fedemb.records import export
from tff_fedemb.records import model_card


def test_plain_tensorflow_loads_it(tmp_path):
  backbone = pooled.create_lenet((12, 10, 1), embedding_dim=7)
  card = model_card.ModelCard(image_shape=(12, 10, 1), embedding_dim=7)
  export.export_backbone(backbone, tmp_path / "model", card)
  assert model_card.read(tmp_path / "model" / model_card.PATH) == card
  # Exporting again replaces it, and its card.
  export.export_backbone(backbone, tmp_path / "model")
  assert os.listdir(tmp_path) == ["model"]
  assert model_card.read(tmp_path / "model" / model_card.PATH) is None
  signature = tf.saved_model.load(tmp_path / "model").signatures[
    "serving_default"
  ]
  _, inputs = signature.structured_input_signature
  assert inputs == {
    "images": tf.TensorSpec([None, 12, 10, 1], tf.float32, name="images")
  }
  images = np.random.default_rng(0).uniform(0, 255, (3, 12, 10, 1))
  images = images.astype(np.float32)
  found = signature(images=tf.constant(images))["embeddings"].numpy()
  expected = backbone(images).numpy()
  expected /= np.linalg.norm(expected, axis=1, keepdims=True)
  np.testing.assert_allclose(found, expected, atol=1e-5)


def test_bytes_are_a_function_of_network_and_weights(tmp_path):
  """Layers without names do not count those that were built before."""
  first = exported_bytes.create_small()
  export.export_backbone(first, tmp_path / "first")
  # Names of its layers have numbers of two digits too.
  for _ in range(5):
    backbone = exported_bytes.create_small()
  assert "conv2d_1" not in {layer.name for layer in backbone.layers}
  # The names that are written fit a backbone of any other process.
  backbone.set_weights([0 * weight for weight in first.get_weights()])
  report = pretrained.load_pretrained(backbone, tmp_path / "first")
  assert report.num_initialized == 0
  export.export_backbone(backbone, tmp_path / "later")
  found = exported_bytes.read(tmp_path / "first")
  assert exported_bytes.read(tmp_path / "later") == found
  # Other weights change these alone.
  backbone.layers[0].bias.assign_add(tf.ones_like(backbone.layers[0].bias))
  export.export_backbone(backbone, tmp_path / "other")
  other = exported_bytes.read(tmp_path / "other")
  assert {name for name in found if found[name] != other[name]} == {
    "variables/variables.data-00000-of-00001",
    "variables/variables.index",
  }


def test_gradients_pass_through_what_is_loaded(tmp_path):
  """Group normalisation has a custom gradient, which is registered by name."""
  backbone = exported_bytes.create_small()
  export.export_backbone(backbone, tmp_path / "model")
  loaded = tf.saved_model.load(tmp_path / "model")
  images = np.random.default_rng(0).uniform(0, 255, (3, 8, 8, 1))
  images = tf.constant(images, tf.float32)

  def gradients(embed, weights):
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(embed(images)[:, :2])
    return tape.gradient(loss, weights)

  expected = gradients(
    lambda images: tf.math.l2_normalize(backbone(images), axis=1),
    backbone.weights,
  )
  found = gradients(
    lambda images: loaded.embed(images)["embeddings"], loaded.weights
  )
  for ours, theirs in zip(found, expected, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_bytes_are_the_same_in_every_process(tmp_path):
  """The network has layers with functions, loops and random names."""
  digests = set()
  for number, seed in itertools.product((0, 3), ("1", "2")):
    path = tmp_path / f"{number}_{seed}"
    subprocess.run(
      [sys.executable, exported_bytes.__file__, os.fspath(path), str(number)],
      env={**os.environ, "PYTHONHASHSEED": seed},
      cwd=pathlib.Path(__file__).parents[2],
      check=True,
    )
    content = exported_bytes.read(path)
    digests.add(hashlib.sha256(repr(sorted(content.items())).encode()).digest())
  assert len(digests) == 1
