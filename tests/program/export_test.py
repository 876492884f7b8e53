"""Tests of the exported SavedModel."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import pooled
from tff_fedemb.program import export
from tff_fedemb.program import model_card

_LOAD_WITHOUT_THIS_PROJECT = """
import sys
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
images = np.load(sys.argv[2])
np.save(sys.argv[3], model(images=tf.constant(images))["embeddings"].numpy())
assert not any(name.startswith("tff_fedemb") for name in sys.modules)
"""


@pytest.mark.parametrize(
  "alone", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_plain_tensorflow_loads_it(tmp_path, alone):
  backbone = pooled.create_lenet((12, 10, 1), embedding_dim=7)
  export.export_backbone(backbone, tmp_path / "model")
  # Exporting again replaces it.
  export.export_backbone(backbone, tmp_path / "model")
  assert os.listdir(tmp_path) == ["model"]
  signature = tf.saved_model.load(tmp_path / "model").signatures[
    "serving_default"
  ]
  _, inputs = signature.structured_input_signature
  assert inputs == {
    "images": tf.TensorSpec([None, 12, 10, 1], tf.float32, name="images")
  }
  assert signature.structured_outputs["embeddings"].shape[1] == 7
  images = np.random.default_rng(0).uniform(0, 255, (3, 12, 10, 1))
  images = images.astype(np.float32)
  if alone:
    np.save(tmp_path / "images.npy", images)
    subprocess.run(
      [
        sys.executable,
        "-c",
        _LOAD_WITHOUT_THIS_PROJECT,
        tmp_path / "model",
        tmp_path / "images.npy",
        tmp_path / "embeddings.npy",
      ],
      check=True,
      cwd=tmp_path,
    )
    found = np.load(tmp_path / "embeddings.npy")
  else:
    found = signature(images=tf.constant(images))["embeddings"].numpy()
  expected = backbone(images).numpy()
  expected /= np.linalg.norm(expected, axis=1, keepdims=True)
  np.testing.assert_allclose(found, expected, atol=1e-5)


def test_its_card_goes_where_the_directory_goes(tmp_path):
  backbone = pooled.create_lenet((12, 10, 1), embedding_dim=7)
  card = model_card.ModelCard(image_shape=(12, 10, 1), embedding_dim=7)
  export.export_backbone(backbone, tmp_path / "model", card)
  shutil.copytree(tmp_path / "model", tmp_path / "copy")
  assert model_card.read(tmp_path / "copy" / model_card.PATH) == card
  # Plain TensorFlow takes no notice of it.
  assert tf.saved_model.load(tmp_path / "copy").signatures
  # One without a card leaves none behind.
  export.export_backbone(backbone, tmp_path / "model")
  assert model_card.read(tmp_path / "model" / model_card.PATH) is None
