"""Made-up downloads in the layouts of their publishers."""

import hashlib
import io
import os
import pathlib
import tarfile

import pandas as pd

from tasks.prepare import gld
from tasks.prepare import inaturalist
from tasks.prepare import output
from tests.data import photo_files

# Two users, whose images lie in both tars and in another order than the table.
GLD_TRAIN = (
  ("17", "ab0", 2),
  ("9", "cd1", 0),
  ("17", "ef2", 1),
  ("17", "ab3", 2),
  ("9", "ab0", 2),
)
GLD_TEST = (("cd4", 0), ("ef5", 1))
GLD_TARS = {
  "images_000.tar": ("ef5", "ab3", "zz9", "cd1"),
  "images_007.tar": ("ef2", "cd4", "ab0"),
}
INATURALIST_TRAIN = (
  ("o1", "g5", "a1", 3),
  ("o2", "NA", "b2", 4),
  ("o1", "g5", "c3", 3),
  ("o2", "g6", "d4", 0),
)
INATURALIST_TEST = (("e5", 3), ("f6", 4))


def write_table(path, columns, rows):
  """Writes a CSV file, with a column that nobody asks for."""
  table = pd.DataFrame(rows, columns=columns).assign(label=0)
  table.to_csv(path, index=False)


def write_tar(path, contents):
  """Writes a tar of files and their folders."""
  with tarfile.open(path, "w") as archive:
    for name, content in contents.items():
      folder = tarfile.TarInfo(os.path.dirname(name))
      folder.type = tarfile.DIRTYPE
      archive.addfile(folder)
      member = tarfile.TarInfo(name)
      member.size = len(content)
      archive.addfile(member, io.BytesIO(content))


def write_md5(path):
  """Writes the checksum of a tar beside it, as the publishers of GLD do."""
  digits = hashlib.md5(path.read_bytes()).hexdigest()
  path.with_name(f"md5.{path.stem}.txt").write_text(f"{digits}  {path.name}\n")


def write_gld(folder, *, variant="gld160k", images=None):
  """Writes what a user downloads; `images` replaces contents by id."""
  images = images or {}
  folder.mkdir(parents=True, exist_ok=True)
  names = {
    "gld160k": ("federated_train.csv", "test.csv"),
    "gld23k": ("mini_gld_train_split.csv", "mini_gld_test.csv"),
  }[variant]
  write_table(folder / names[0], ("user_id", "image_id", "class"), GLD_TRAIN)
  write_table(folder / names[1], ("image_id", "class"), GLD_TEST)
  for name, ids in GLD_TARS.items():
    contents = {
      "/".join([*i, f"{i}.jpg"]): images.get(i, photo_files.encode(i))
      for i in ids
    }
    write_tar(folder / name, contents)
    write_md5(folder / name)
  return [folder / name for name in names]


def write_inaturalist(folder):
  """Writes what a user unpacks; two images are those of the tests."""
  folder.mkdir(parents=True)
  write_table(
    folder / "iNaturalist_train.csv",
    ("user_120k", "geo_1k", "image_id", "class"),
    INATURALIST_TRAIN,
  )
  write_table(
    folder / "iNaturalist_test.csv", ("image_id", "class"), INATURALIST_TEST
  )
  contents = {
    f"train_val_images/Aves/A b/{i}.jpg": photo_files.encode(i)
    for i in ("d4", "xx", "c3", "b2", "e5")
  }
  contents["train_val_images/Aves/A b/._d4.jpg"] = b"what macOS adds"
  contents |= {f"test2017/{i}.jpg": photo_files.encode(i) for i in ("f6", "a1")}
  for path, content in contents.items():
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)
  return folder / "iNaturalist_train.csv", folder / "iNaturalist_test.csv"


def prepare_gld(source, folder, policy="fail", *, variant="gld160k", **options):
  """Prepares what `write_gld` wrote; whether anything was done."""
  (job,) = gld.create_jobs(source, variant)
  return output.Preparation(job, folder, policy).run(**options)


def prepare_inaturalist(source, folder, variant="user_120k"):
  """Prepares what `write_inaturalist` wrote; whether anything was done."""
  (job,) = inaturalist.create_jobs(source, variant)
  return output.Preparation(job, folder).run()


def read_files(folder):
  """Contents of all files, by their names below the folder."""
  folder = pathlib.Path(folder)
  return {
    os.fspath(path.relative_to(folder)): path.read_bytes()
    for path in sorted(folder.rglob("*"))
    if path.is_file()
  }


def read_records(folder):
  """Images and classes of all records, by the names of the TFRecord files."""
  return {
    name: photo_files.read(folder / name)
    for name in read_files(folder)
    if not name.endswith(".json")
  }
