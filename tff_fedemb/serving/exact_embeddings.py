"""Embeds images with a SavedModel in a process of its own, without oneDNN.

Files of other formats are compared with these embeddings. oneDNN's sums are
rounded otherwise than TensorFlow's own: for a picture with little contrast the
two differ by 4e-4 where lengths are 1, and a file in ONNX by 4e-5 from the
latter. TensorFlow asks for oneDNN once, when it is loaded.
"""

from collections.abc import Sequence
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np


def embed(
  saved_model: str | os.PathLike[str],
  images: np.ndarray,
) -> np.ndarray:
  """Embeds images `[n, height, width, channels]`: `[n, dim]`, float32."""
  with tempfile.TemporaryDirectory() as directory:
    given = pathlib.Path(directory, "images.npy")
    found = pathlib.Path(directory, "embeddings.npy")
    np.save(given, images)
    subprocess.run(
      [
        sys.executable,
        "-m",
        "tff_fedemb.serving.exact_embeddings",
        os.fspath(saved_model),
        os.fspath(given),
        os.fspath(found),
      ],
      env={
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_ENABLE_ONEDNN_OPTS": "0",
      },
      check=True,
    )
    return np.load(found)


def main(argv: Sequence[str]) -> None:
  """Embeds the images of one file and writes another one.

  Args:
    argv: The program, the SavedModel, the images and the embeddings.
  """
  from tff_fedemb.serving import saved_models

  _, saved_model, given, found = argv
  np.save(found, saved_models.load(saved_model).embed(np.load(given)))


if __name__ == "__main__":
  main(sys.argv)
