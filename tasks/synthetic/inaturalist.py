"""Federated iNaturalist's files, filled with synthetic photographs.

iNaturalist 2017 (Van Horn et al., 2018, "The iNaturalist Species Classification
and Detection Dataset", CVPR) was grouped by observer, and by place, by Hsu et
al., 2020, "Federated Visual Classification with Real-World Data Distribution",
ECCV. TensorFlow Federated 0.87 writes the grouping by observer to `user_120k/`
(and looks for it in `USER_120K/`, so that it does not find its own files on
most systems). This module writes such a folder without any real data.
"""

import os

from tasks.synthetic import species
from tasks.synthetic import tfrecord_twin

_VARIANTS = (tfrecord_twin.Variant("user_120k"),)
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 1


def write_inaturalist(
  output_dir: str | os.PathLike[str], *, num_users: int = 60, seed: int = 0
) -> list[str]:
  """Writes `user_120k/` in TensorFlow Federated's format.

  There are some `5 * num_users ** 0.5` species.

  Args:
    output_dir: Directory of the folder, created if missing.
    num_users: Number of observers, at least 1.
    seed: Seed of all randomness, at least 0.

  Returns:
    The path of the folder, alone. One that was made with the same arguments is
    kept.

  Raises:
    ValueError: If an argument is out of range.
    FileExistsError: If the folder exists and was made with other arguments, or
      not by this function.
    OSError: If `output_dir` cannot be created or written.
  """
  return tfrecord_twin.write(
    output_dir,
    _VARIANTS,
    species.draw_species,
    name="inaturalist",
    version=_GENERATOR_VERSION,
    num_users=num_users,
    seed=seed,
  )


def contact_sheet(
  output_dir: str | os.PathLike[str], output_png: str | os.PathLike[str]
) -> None:
  """Draws one row a species.

  Args:
    output_dir: Directory that holds `user_120k/`, generated or real.
    output_png: Where to write the picture.
  """
  tfrecord_twin.contact_sheet(
    os.path.join(output_dir, _VARIANTS[0].name), output_png
  )
