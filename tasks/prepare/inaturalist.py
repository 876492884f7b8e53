"""iNaturalist 2017 as its publishers offer it, and its federated splits.

Images: Van Horn et al., "The iNaturalist Species Classification and Detection
Dataset", CVPR 2018: what you unpacked from `train_val_images.tar.gz` (186 GB)
and `test2017.tar.gz` (53 GB). Splits: Hsu et al., "Federated Visual
Classification with Real-World Data Distribution", ECCV 2020, in the two tables
of TensorFlow Federated (0.87), whose training table has a column for each.
"""

import pathlib

from tasks import inaturalist
from tasks.prepare import photo_jobs
from tff_fedemb import errors

# Each variant is the name of a column of users, and of a folder of the result.
VARIANTS = tuple(inaturalist.VARIANTS)
_TABLES = ("iNaturalist_train.csv", "iNaturalist_test.csv")
_ARCHIVES = "train_val_images.tar.gz and test2017.tar.gz"
_TABLES_URL = "https://storage.googleapis.com/tff-datasets-public/"
_ARCHIVES_URL = "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/"


def create_jobs(
  source_dir: pathlib.Path, variant: str | None = None
) -> list[photo_jobs.PhotoJob]:
  """Finds what was downloaded.

  Args:
    source_dir: Folder that has the two tables, itself or in its sub-folder
      `datasets`, and unpacked images in any sub-folder.
    variant: One of `VARIANTS`; None for the first.

  Returns:
    One job.

  Raises:
    FieldError: If a table is missing.
    DataError: If one is not what the publisher offers.
  """
  variant = variant or VARIANTS[0]
  tables = photo_jobs.find_tables(source_dir, _TABLES, ("", "datasets"))
  if not tables:
    raise errors.FieldError(
      "source_dir",
      f"hold the tables {' and '.join(_TABLES)} ({_TABLES_URL})",
      f"none in {source_dir}",
    )
  return [
    photo_jobs.PhotoJob(
      "inaturalist",
      variant,
      source_dir,
      tables,
      {},
      user_column=variant,
      notes=(
        f"Tables: {tables[0]}, {tables[1]}.",
        f"Images are read unpacked: unpack {_ARCHIVES} of {_ARCHIVES_URL}",
      ),
    )
  ]
