"""Embeds images with a SavedModel in a process of its own, without oneDNN.

Files of other formats are compared with these embeddings. Sums of oneDNN round
differently from TensorFlow's own: for an image with little contrast, embeddings
of length 1 differed by 4e-4, and those of an ONNX file by 4e-5 from the latter.
TensorFlow decides on oneDNN once, when it is loaded.
"""

from collections.abc import Sequence
import os
import subprocess
import sys
import tempfile

import numpy as np


def embed(
  saved_model: str | os.PathLike[str],
  images: np.ndarray,
) -> np.ndarray:
  """Embeds images in another process.

  Args:
    saved_model: Directory of the SavedModel.
    images: `[n, height, width, channels]`, as the model takes them.

  Returns:
    Embeddings, float32 `[n, dim]`.

  Raises:
    subprocess.CalledProcessError: If the process fails.
  """
  program = [sys.executable, "-m", "tff_fedemb.serving.exact_embeddings"]
  environment = os.environ | {
    "PYTHONPATH": os.pathsep.join(sys.path),
    "TF_ENABLE_ONEDNN_OPTS": "0",
  }
  with tempfile.TemporaryDirectory() as directory:
    given = os.path.join(directory, "images.npy")
    found = os.path.join(directory, "embeddings.npy")
    np.save(given, images)
    paths = [os.fspath(saved_model), given, found]
    subprocess.run(program + paths, env=environment, check=True)
    return np.load(found)


def main(argv: Sequence[str]) -> None:
  """Embeds the images of one file and writes another one.

  Args:
    argv: The program, and paths of the SavedModel, of the images to read and of
      the embeddings to write.

  Raises:
    errors.FieldError: If there is no such model.
  """
  from tff_fedemb.serving import saved_models

  _, saved_model, given, found = argv
  model = saved_models.load(saved_model)
  np.save(found, model.embed(np.load(given)))


if __name__ == "__main__":
  main(sys.argv)
