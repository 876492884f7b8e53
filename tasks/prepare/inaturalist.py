"""iNaturalist 2017 as its publishers offer it, and its federated splits.

Images: Van Horn et al., "The iNaturalist Species Classification and Detection
Dataset", CVPR 2018: `train_val_images.tar.gz` (186 GB) and `test2017.tar.gz`
(53 GB), or what was unpacked from them. Splits: Hsu et al., "Federated Visual
Classification with Real-World Data Distribution", ECCV 2020, in the two tables
of TensorFlow Federated (0.87), whose training table has a column for each.
"""

from collections.abc import Mapping
import pathlib

from tasks.prepare import conversion
from tasks.prepare import downloads
from tasks.prepare import split_tables
from tff_fedemb import errors

DEFAULT_VARIANT = "user_120k"
# Each is the name of a column of users and of a folder of the result.
VARIANTS = (
  DEFAULT_VARIANT,
  "geo_100",
  "geo_300",
  "geo_1k",
  "geo_3k",
  "geo_10k",
  "geo_30k",
)
TABLES = ("iNaturalist_train.csv", "iNaturalist_test.csv")
ARCHIVES = ("train_val_images.tar.gz", "test2017.tar.gz")

_TABLES_URL = "https://storage.googleapis.com/tff-datasets-public/"
_ARCHIVES_URL = "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/"
# The two archives take 237.35 GiB, with 857,877 images: 297 kB each.
_BYTES_PER_IMAGE = 300_000


def create_jobs(
  source_dir: pathlib.Path,
  variant: str | None = None,
  *,
  known_md5: Mapping[str, str] = downloads.KNOWN_MD5,
) -> list[conversion.Job]:
  """Finds what was downloaded.

  Args:
    source_dir: Folder with the two tables, and the archives or unpacked images
      in any of its sub-folders.
    variant: One of `VARIANTS`; None for "user_120k".
    known_md5: Checksums by file name.

  Returns:
    What to prepare, one.

  Raises:
    FieldError: If a table is missing.
    DataError: If one is not what the publisher offers.
  """
  variant = variant or DEFAULT_VARIANT
  folders = [source_dir, source_dir / "datasets"]
  tables = [
    next((f / name for f in folders if (f / name).is_file()), None)
    for name in TABLES
  ]
  for name, table in zip(TABLES, tables, strict=True):
    if table is None:
      raise errors.FieldError(
        "source_dir",
        f"hold {name} ({_TABLES_URL}{name})",
        f"none in {source_dir}",
      )
    downloads.check_md5(table, known_md5)
  archives = [
    downloads.Archive(folder / name, known_md5.get(name))
    for name in ARCHIVES
    for folder in folders
    if (folder / name).is_file()
  ]
  found = [archive.path.name for archive in archives]
  absent = [_ARCHIVES_URL + name for name in ARCHIVES if name not in found]
  note = f"Archives: found {', '.join(found) or 'none'}"
  if absent:
    note += f", missing {', '.join(absent)} (unpacked images serve as well)"
  return [
    conversion.Job(
      task="inaturalist",
      variant=variant,
      source_dir=source_dir,
      tables=split_tables.read_tables(
        *map(split_tables.TableFile, tables), user_column=variant
      ),
      archives=archives,
      notes=(f"Tables: {tables[0]}, {tables[1]}.", f"{note}."),
      bytes_per_image=_BYTES_PER_IMAGE,
    )
  ]
