"""Google Landmarks v2 as its publishers offer it, and its federated splits.

Images: Weyand et al., "Google Landmarks Dataset v2", CVPR 2020:
`images_000.tar` to `images_499.tar` of the training set, each with
`md5.images_000.txt` and so on; inside them `a/b/c/abc....jpg`. Splits: Hsu et
al., "Federated Visual Classification with Real-World Data Distribution", ECCV
2020, and the small one of TensorFlow Federated (0.87).
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import re
import zipfile

from tasks.prepare import photo_jobs
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import reading

_TARS = [f"images_{number:03}.tar" for number in range(500)]
_IMAGES_URL = "https://s3.amazonaws.com/google-landmark/train/images_000.tar"


@dataclasses.dataclass(frozen=True)
class _Split:
  """Names of the tables, where they may lie, and where they come from."""

  names: tuple[str, str]
  url: str
  folder: str | None = None


_SPLITS = {
  "gld23k": _Split(
    ("mini_gld_train_split.csv", "mini_gld_test.csv"),
    "https://storage.googleapis.com/tff-datasets-public/",
  ),
  "gld160k": _Split(
    ("federated_train.csv", "test.csv"),
    "http://storage.googleapis.com/gresearch/federated-vision-datasets/"
    "landmarks-user-160k.zip",
    "landmarks-user-160k",
  ),
}
VARIANTS = tuple(_SPLITS)


def _find_tables(
  source_dir: pathlib.Path, split: _Split
) -> Sequence[photo_jobs.Table] | None:
  """The two tables, from one place; the publisher's own folder first.

  The publishers of the images have a `test.csv` as well, which is another.
  """
  places = [source_dir, source_dir / "datasets"]
  if split.folder:
    places = [place / split.folder for place in places]
    places += [source_dir / f"{split.folder}.zip", source_dir]
  for place in places:
    if place.is_file():
      photo_jobs.check_md5(place)
      try:
        archive = zipfile.ZipFile(place)
      except reading.ARCHIVE_ERRORS as error:
        raise errors.DataError(
          f"{place} must be a zip archive, found: {error}. Fetch it again."
        ) from error
      return [
        zipfile.Path(archive, f"{split.folder}/{name}") for name in split.names
      ]
    tables = [place / name for name in split.names]
    if all(table.is_file() for table in tables):
      for table in tables:
        photo_jobs.check_md5(table)
      return tables
  return None


def _read_md5(path: pathlib.Path) -> str:
  """Reads 32 digits as `md5sum` prints them: first, then maybe a name."""
  words = path.read_text(errors="replace").lower().split()
  digits = words[0] if words else ""
  if not re.fullmatch("[0-9a-f]{32}", digits):
    raise errors.DataError(
      f"{path} must start with an MD5 of 32 hexadecimal digits, found"
      f" {digits[:40]!r}. Fetch it again."
    )
  return digits


def _find_archives(source_dir: pathlib.Path) -> dict[pathlib.Path, str | None]:
  """The tars of images, with the checksums that lie beside them."""
  archives: dict[pathlib.Path, str | None] = {}
  for path in sorted(
    [*source_dir.glob("images_*.tar"), *source_dir.glob("*/images_*.tar")]
  ):
    if path.name in _TARS:
      sums = [
        folder / f"md5.{path.stem}.txt"
        for folder in (path.parent, source_dir / "md5sum" / "train")
      ]
      md5 = [_read_md5(file) for file in sums if file.is_file()]
      archives[path] = md5[0] if md5 else None
  return archives


def create_jobs(
  source_dir: pathlib.Path, variant: str | None = None
) -> list[photo_jobs.PhotoJob]:
  """Finds what was downloaded of one of `VARIANTS`, or of all that are there.

  The folder has tars (or a folder of them, such as `train/`, or unpacked
  images) and the tables, unpacked or zipped. There are one job or more.

  Raises:
    FieldError: If no tables are there.
    DataError: If they are not what the publisher offers.
  """
  wanted = {v: s for v, s in _SPLITS.items() if variant in (None, v)}
  archives = _find_archives(source_dir)
  names = {path.name for path in archives}
  note = f"Archives: {len(names)} of {len(_TARS)} found"
  if absent := [name for name in _TARS if name not in names]:
    absent_names = bad_examples.name_first(absent)
    note += f", missing {absent_names} ({_IMAGES_URL} and so on)"
  jobs = []
  for name, split in wanted.items():
    if (tables := _find_tables(source_dir, split)) is not None:
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
      f"{' and '.join(split.names)} ({split.url})" for split in wanted.values()
    )
    raise errors.FieldError(
      "source_dir", f"hold the tables {known}", f"none in {source_dir}"
    )
  return jobs
