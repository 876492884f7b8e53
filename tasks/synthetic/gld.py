"""Federated Google Landmarks v2's files, filled with synthetic photographs.

Google Landmarks v2 (Weyand et al., 2020, "Google Landmarks Dataset v2", CVPR)
was grouped by photographer by Hsu et al., 2020, "Federated Visual
Classification with Real-World Data Distribution", ECCV. TensorFlow Federated
keeps it as `gld160k/` and, smaller, `gld23k/`. This module writes such folders
without any real data.
"""

import os

from tasks.synthetic import scenes
from tasks.synthetic import tfrecord_twin

_VARIANTS = (
  tfrecord_twin.Variant("gld160k"),
  tfrecord_twin.Variant("gld23k", share=0.5),
)
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 1


def write_gld(
  output_dir: str | os.PathLike[str], *, num_users: int = 60, seed: int = 0
) -> list[str]:
  """Writes `gld160k/` and `gld23k/` in TensorFlow Federated's format.

  There are some `5 * num_users ** 0.5` landmarks. `gld23k` holds those images
  of half of the users that show one of the first half of the landmarks.

  Args:
    output_dir: Directory of the folders, created if missing.
    num_users: Number of photographers in `gld160k`, at least 1.
    seed: Seed of all randomness, at least 0.

  Returns:
    The paths of both folders. Those made with the same arguments are kept.

  Raises:
    ValueError: If an argument is out of range.
    FileExistsError: If a folder exists and was made with other arguments, or
      not by this function.
    OSError: If `output_dir` cannot be created or written.
  """
  return tfrecord_twin.write(
    output_dir,
    _VARIANTS,
    scenes.draw_scene,
    name="gld",
    version=_GENERATOR_VERSION,
    num_users=num_users,
    seed=seed,
  )


def contact_sheet(
  output_dir: str | os.PathLike[str], output_png: str | os.PathLike[str]
) -> None:
  """Draws one row a landmark.

  Args:
    output_dir: Directory that holds `gld160k/`, generated or real.
    output_png: Where to write the picture.
  """
  tfrecord_twin.contact_sheet(
    os.path.join(output_dir, _VARIANTS[0].name), output_png
  )
