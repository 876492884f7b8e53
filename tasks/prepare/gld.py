"""Google Landmarks v2 as its publishers offer it, and its federated splits.

Images: Weyand et al., "Google Landmarks Dataset v2", CVPR 2020:
`images_000.tar` to `images_499.tar` of the training set, each with
`md5.images_000.txt` and so on; inside them `a/b/c/abc....jpg`. Splits: Hsu et
al., "Federated Visual Classification with Real-World Data Distribution", ECCV
2020, and the small one of TensorFlow Federated (0.87).
"""

from collections.abc import Collection
import pathlib

from tasks.prepare import photo_jobs
from tff_fedemb import errors
from tff_fedemb.data import bad_examples

_TARS = [f"images_{number:03}.tar" for number in range(500)]
_IMAGES_URL = "https://s3.amazonaws.com/google-landmark/train/images_000.tar"

# The tables of each variant, where they come from, and the name of their folder
# or zip, if they have one.
_TABLES = {
  "gld23k": (
    ("mini_gld_train_split.csv", "mini_gld_test.csv"),
    "https://storage.googleapis.com/tff-datasets-public/",
    "",
  ),
  "gld160k": (
    ("federated_train.csv", "test.csv"),
    "http://storage.googleapis.com/gresearch/federated-vision-datasets/"
    "landmarks-user-160k.zip",
    "landmarks-user-160k",
  ),
}
VARIANTS = tuple(_TABLES)


def _find_archives(source_dir: pathlib.Path) -> dict[pathlib.Path, str | None]:
  """Finds the tars of images, and the checksums that lie beside them.

  Args:
    source_dir: Folder of the tars, or of folders that have them.

  Returns:
    MD5 in hexadecimal digits by the path of a tar; None without a checksum.
  """
  archives: dict[pathlib.Path, str | None] = {}
  tars = [
    *source_dir.glob("images_*.tar"),
    *source_dir.glob("*/images_*.tar"),
  ]
  for path in sorted(tars):
    if path.name in _TARS:
      archives[path] = None
      sums = path.with_name(f"md5.{path.stem}.txt")
      if sums.is_file():
        # `md5sum` prints the digits first.
        words = sums.read_text(errors="replace").split()
        archives[path] = words[0].lower() if words else None
  return archives


def create_jobs(
  source_dir: pathlib.Path, variant: str | None = None
) -> list[photo_jobs.PhotoJob]:
  """Finds what was downloaded.

  Args:
    source_dir: Folder with the tables, unpacked or zipped. It, or a folder in
      it, has tars of images, or the unpacked images.
    variant: One of `VARIANTS`; None for all whose tables are there.

  Returns:
    A job for each variant, at least one.

  Raises:
    FieldError: If no tables are there.
    DataError: If they are not what the publisher offers.
  """
  archives = _find_archives(source_dir)
  note = _describe_archives({path.name for path in archives})
  jobs = []
  known = []
  for name, (names, url, folder) in _TABLES.items():
    if variant not in (None, name):
      continue
    known.append(f"{' and '.join(names)} ({url})")
    # The publishers of the images have another table called `test.csv`.
    places = (folder, f"{folder}.zip", "")
    tables = photo_jobs.find_tables(source_dir, names, places)
    if tables is not None:
      job = photo_jobs.PhotoJob(
        "gld",
        name,
        source_dir,
        tables,
        archives,
        user_column="user_id",
        notes=(f"Tables of {name}: {tables[0]}, {tables[1]}.", note),
      )
      jobs.append(job)
  if not jobs:
    must = f"hold the tables {' or '.join(known)}"
    raise errors.FieldError("source_dir", must, f"none in {source_dir}")
  return jobs


def _describe_archives(names: Collection[str]) -> str:
  """Says how many tars of images were found, and which are missing.

  Args:
    names: Names of those that were found.
  """
  note = f"Archives: {len(names)} of {len(_TARS)} found"
  absent = [name for name in _TARS if name not in names]
  if absent:
    first = bad_examples.name_first(absent)
    note += f", missing {first} ({_IMAGES_URL} and so on)"
  return f"{note}."
