"""Google Landmarks v2 as its publishers offer it, and its federated splits.

Images: Weyand et al., "Google Landmarks Dataset v2", CVPR 2020:
`images_000.tar` to `images_499.tar` of the training set, each with
`md5.images_000.txt` and so on; inside them `a/b/c/abc....jpg`. Splits: Hsu et
al., "Federated Visual Classification with Real-World Data Distribution", ECCV
2020, and the small one of TensorFlow Federated (0.87).
"""

from collections.abc import Mapping
import dataclasses
import pathlib
import re
import zipfile

from tasks.prepare import conversion
from tasks.prepare import downloads
from tasks.prepare import split_tables
from tff_fedemb import errors
from tff_fedemb.data import reading

NUM_TARS = 500
USER_COLUMN = "user_id"

_TAR_NAME = re.compile(r"images_(\d{3})\.tar")
_IMAGES_URL = "https://s3.amazonaws.com/google-landmark/train/images_000.tar"


@dataclasses.dataclass(frozen=True)
class _Split:
  """Names of the tables, where they may lie, and where they come from."""

  train: str
  test: str
  url: str
  folder: str | None = None


VARIANTS = {
  "gld23k": _Split(
    "mini_gld_train_split.csv",
    "mini_gld_test.csv",
    "https://storage.googleapis.com/tff-datasets-public/",
  ),
  "gld160k": _Split(
    "federated_train.csv",
    "test.csv",
    "http://storage.googleapis.com/gresearch/federated-vision-datasets/"
    "landmarks-user-160k.zip",
    "landmarks-user-160k",
  ),
}


def _find_in_zip(
  path: pathlib.Path, names: tuple[str, str]
) -> list[split_tables.TableFile]:
  try:
    with zipfile.ZipFile(path) as archive:
      members = archive.namelist()
  except reading.ARCHIVE_ERRORS as error:
    raise errors.DataError(
      f"{path} must be a zip archive, found: {error}. Fetch it again."
    ) from error
  by_name = {
    pathlib.PurePosixPath(member).name: member
    for member in members
    if not member.startswith("__MACOSX")
  }
  absent = [name for name in names if name not in by_name]
  if absent:
    raise errors.DataError(
      f"{path} must hold {' and '.join(names)}, found no {absent[0]}."
    )
  return [split_tables.TableFile(path, by_name[name]) for name in names]


def _find_tables(
  source_dir: pathlib.Path, split: _Split, known_md5: Mapping[str, str]
) -> list[split_tables.TableFile] | None:
  """The two tables, from one place; the publisher's own folder first.

  The publishers of the images have a `test.csv` as well, which is another.
  """
  names = (split.train, split.test)
  folders = [source_dir, source_dir / "datasets"]
  if split.folder:
    folders = [folder / split.folder for folder in folders]
  for folder in folders:
    if all((folder / name).is_file() for name in names):
      return [split_tables.TableFile(folder / name) for name in names]
  if split.folder is None:
    return None
  path = source_dir / f"{split.folder}.zip"
  if path.is_file():
    downloads.check_md5(path, known_md5)
    return _find_in_zip(path, names)
  if all((source_dir / name).is_file() for name in names):
    return [split_tables.TableFile(source_dir / name) for name in names]
  return None


def _find_archives(source_dir: pathlib.Path) -> list[downloads.Archive]:
  archives = []
  for path in sorted(
    [*source_dir.glob("images_*.tar"), *source_dir.glob("*/images_*.tar")]
  ):
    match = _TAR_NAME.fullmatch(path.name)
    if match is None:
      continue
    name = f"md5.images_{match[1]}.txt"
    sums = [
      folder / name
      for folder in (path.parent, source_dir / "md5sum" / "train")
      if (folder / name).is_file()
    ]
    archives.append(
      downloads.Archive(
        path, downloads.read_md5_file(sums[0]) if sums else None
      )
    )
  return archives


def _describe_archives(archives: list[downloads.Archive]) -> str:
  found = {archive.path.name for archive in archives}
  names = [f"images_{number:03}.tar" for number in range(NUM_TARS)]
  absent = [name for name in names if name not in found]
  note = f"Archives: {len(found)} of {NUM_TARS} found"
  return note + (
    f", missing {downloads.format_names(absent)} ({_IMAGES_URL} and so on)."
    if absent
    else "."
  )


def create_job(
  source_dir: pathlib.Path,
  variant: str,
  *,
  known_md5: Mapping[str, str] = downloads.KNOWN_MD5,
) -> conversion.Job | None:
  """Finds what was downloaded of a variant.

  Args:
    source_dir: Folder with tars (or a folder of them, such as `train/`, or
      unpacked images) and the tables, unpacked or zipped.
    variant: "gld23k" or "gld160k".
    known_md5: Checksums by file name.

  Returns:
    What to prepare; None if the variant's tables are not there.

  Raises:
    DataError: If a table is not what the publisher offers.
  """
  split = VARIANTS[variant]
  tables = _find_tables(source_dir, split, known_md5)
  if tables is None:
    return None
  for table in tables:
    if table.member is None:
      downloads.check_md5(table.path, known_md5)
  archives = _find_archives(source_dir)
  return conversion.Job(
    task="gld",
    variant=variant,
    source_dir=source_dir,
    tables=split_tables.read_tables(*tables, user_column=USER_COLUMN),
    archives=archives,
    notes=(
      f"Tables of {variant}: {tables[0]}, {tables[1]}.",
      _describe_archives(archives),
    ),
  )


def create_jobs(
  source_dir: pathlib.Path,
  variant: str | None = None,
  *,
  known_md5: Mapping[str, str] = downloads.KNOWN_MD5,
) -> list[conversion.Job]:
  """Finds what was downloaded of one or of all variants.

  Args:
    source_dir: As of `create_job`.
    variant: One of `VARIANTS`, or None for all whose tables are there.
    known_md5: Checksums by file name.

  Returns:
    What to prepare, one or more.

  Raises:
    FieldError: If no tables are there.
    DataError: If they are not what the publisher offers.
  """
  wanted = list(VARIANTS) if variant is None else [variant]
  jobs = [create_job(source_dir, v, known_md5=known_md5) for v in wanted]
  found = [job for job in jobs if job is not None]
  if not found:
    tables = " or ".join(
      f"{VARIANTS[v].train} and {VARIANTS[v].test} ({VARIANTS[v].url})"
      for v in wanted
    )
    raise errors.FieldError(
      "source_dir", f"hold the tables {tables}", f"none in {source_dir}"
    )
  return found
