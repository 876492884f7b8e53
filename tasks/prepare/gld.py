"""Google Landmarks v2 as its publishers offer it, and its federated splits.

Images: Weyand et al., "Google Landmarks Dataset v2", CVPR 2020:
`images_000.tar` to `images_499.tar` of the training set, each with
`md5.images_000.txt` and so on; inside them `a/b/c/abc....jpg`. Splits: Hsu et
al., "Federated Visual Classification with Real-World Data Distribution", ECCV
2020, and the small one of TensorFlow Federated (0.87).
"""

import itertools
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
  """The tars of images, with the checksums that lie beside them."""
  archives: dict[pathlib.Path, str | None] = {}
  tars = source_dir.glob("images_*.tar"), source_dir.glob("*/images_*.tar")
  for path in sorted(itertools.chain(*tars)):
    if path.name in _TARS:
      sums = path.with_name(f"md5.{path.stem}.txt")
      # `md5sum` prints the digits first.
      words = sums.read_text(errors="replace").split() if sums.is_file() else []
      archives[path] = words[0].lower() if words else None
  return archives


def create_jobs(
  source_dir: pathlib.Path, variant: str | None = None
) -> list[photo_jobs.PhotoJob]:
  """Finds what was downloaded of one of `VARIANTS`, or of all that are there.

  The folder, or one below it, has tars or unpacked images; it has the tables,
  unpacked or zipped. There are one job or more.

  Raises:
    FieldError: If no tables are there.
    DataError: If they are not what the publisher offers.
  """
  wanted = {v: t for v, t in _TABLES.items() if variant in (None, v)}
  archives = _find_archives(source_dir)
  names = {path.name for path in archives}
  note = f"Archives: {len(names)} of {len(_TARS)} found"
  if absent := [name for name in _TARS if name not in names]:
    absent_names = bad_examples.name_first(absent)
    note += f", missing {absent_names} ({_IMAGES_URL} and so on)"
  jobs = []
  for name, (tables_of_it, _, folder) in wanted.items():
    # The publishers of the images have a `test.csv` as well, which is another.
    places = (folder, f"{folder}.zip", "")
    if tables := photo_jobs.find_tables(source_dir, tables_of_it, places):
      jobs.append(
        photo_jobs.PhotoJob(
          "gld",
          name,
          source_dir,
          tables,
          archives,
          user_column="user_id",
          notes=(f"Tables of {name}: {tables[0]}, {tables[1]}.", f"{note}."),
        )
      )
  if not jobs:
    known = " or ".join(
      f"{' and '.join(tables)} ({url})" for tables, url, _ in wanted.values()
    )
    raise errors.FieldError(
      "source_dir", f"hold the tables {known}", f"none in {source_dir}"
    )
  return jobs
