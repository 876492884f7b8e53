"""Tests of the exported SavedModel."""

import os

import numpy as np
import tensorflow as tf

from tff_fedemb.models import pooled
from tff_fedemb.program import export
from tff_fedemb.program import model_card


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
