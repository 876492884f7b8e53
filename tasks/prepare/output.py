"""A prepared data set on its way to the disk: whole, or to be gone on with.

The result is what TensorFlow Federated (0.87) keeps of federated photos:
`<variant>/train/<user id>` and `<variant>/test.tfRecord`. Beside them lies
`preparation.json`, which says how they came about. Until all is done it is
under `<variant>.partial/`, from where a program that was killed goes on: a file
is finished when it is there, and what else must be known is in a journal.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
from typing import Any

import tqdm

from tasks.prepare import downloads
from tasks.prepare import split_tables
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import tfrecord_layout
from tff_fedemb.data import tfrecord_writing

REPORT_FILE = "preparation.json"
MISSING = "not found in any archive"

# What makes a data set what it is, and what to call each item's digest.
_SOURCES = {"tables": "MD5", "sources": "fingerprint"}
_BLOCK = 4096  # What a file takes up is a multiple of it.

Files = Mapping[str, Sequence[split_tables.Row]]


class BadImageError(Exception):
  """An image that is to be left out; says why."""


class _BadFileError(Exception):
  """A file of the output that must not be written as it would be."""


class Journal:
  """What a preparation found out, a line each, so that a kill loses nothing."""

  def __init__(self, path: pathlib.Path):
    """Reads what there is; nothing is written yet.

    Args:
      path: The file.
    """
    self._path = path
    self._entries: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(FileNotFoundError):
      for line in path.read_text(errors="replace").splitlines():
        # Half of a line is what a kill leaves.
        with contextlib.suppress(ValueError):
          kind, key, value = json.loads(line)
          self.entries(kind)[key] = value

  def entries(self, kind: str) -> dict[str, Any]:
    """What was noted last of each key."""
    return self._entries.setdefault(kind, {})

  def add(self, kind: str, key: str, value: Any) -> None:
    """Notes something, in place of what was noted of the key."""
    with self._path.open("a") as file:
      file.write(f"\n{json.dumps([kind, key, value])}\n")
      file.flush()
      os.fsync(file.fileno())
    self.entries(kind)[key] = value


def describe_identity(identity: Mapping[str, Any]) -> str:
  """For instance "test.csv (MD5 0123...)", of each source of an identity."""
  return " and ".join(
    f"{name} ({digest} {value})"
    for key, digest in _SOURCES.items()
    for name, value in identity.get(key, {}).items()
  )


def read_report(folder: pathlib.Path) -> dict[str, Any]:
  """What `preparation.json` in a folder says; nothing if it is not there."""
  try:
    found = json.loads((folder / REPORT_FILE).read_text())
  except (OSError, ValueError):
    return {}
  return found if isinstance(found, dict) else {}


def size_of_file(sizes: Sequence[int]) -> int:
  """Disk that a file of images of these sizes takes, bytes."""
  return _BLOCK + sum(sizes) + tfrecord_writing.RECORD_OVERHEAD * len(sizes)


def check_disk(
  output_dir: pathlib.Path,
  needed: int,
  *,
  field: str = "output_dir",
  note: str = "",
  disk_usage: Callable[[pathlib.Path], Any] = shutil.disk_usage,
) -> None:
  """Says how much disk is needed and free, and refuses what does not fit.

  Args:
    output_dir: Folder of the result; it need not exist yet.
    needed: Bytes that will be written.
    field: What the folder is called in the error.
    note: What to add to the bytes needed.
    disk_usage: From a folder to an object whose `free` is a number of bytes.

  Raises:
    FieldError: If less is free than needed.
  """
  parent = output_dir
  while not parent.exists():
    parent = parent.parent
  free = downloads.format_bytes(disk_usage(parent).free)
  wanted = downloads.format_bytes(needed)
  print(f"Disk: {wanted} needed{note}, {free} free in {parent}.")
  if needed > disk_usage(parent).free:
    raise errors.FieldError(
      field, f"have {wanted} free", f"{free} in {output_dir}"
    )


class Output:
  """The folder of a variant, and that from which it is made."""

  def __init__(
    self,
    output_dir: pathlib.Path,
    variant: str,
    identity: Mapping[str, Any],
    *,
    on_bad_example: str = "fail",
  ):
    """Initialises the output; nothing is written yet.

    Args:
      output_dir: Folder of the result; created if missing.
      variant: Name of its folder in there.
      identity: Task, variant, and digests of "tables" or "sources" by name:
        what must be the same for a preparation to be taken up again.
      on_bad_example: "fail": images that are missing or unreadable end the
        preparation; "skip": they are left out.
    """
    output_dir = output_dir.resolve()
    self.final = output_dir / variant
    self.work = output_dir / f"{variant}.partial"
    self._data = self.work / "data"
    self._identity = dict(identity)
    self._policy = on_bad_example
    self.journal = Journal(self.work / "journal.jsonl")

  def create_bad_examples(self) -> bad_examples.BadExamples:
    """An empty collection of what is bad, with the policy of this output."""
    return bad_examples.BadExamples(self._policy)

  def is_complete(self) -> bool:
    """Whether all was done before, which it says.

    Raises:
      DataError: If the folder holds something else, or lacks images that are
        not to be skipped.
    """
    if not self.final.exists():
      return False
    report = read_report(self.final)
    found = {name: report.get(name) for name in self._identity}
    if None in found.values() or "left_out" not in report:
      raise errors.DataError(
        f"{self.final} must not exist, or be prepared by this program, found"
        f" no {REPORT_FILE} that says so. Choose another output_dir."
      )
    if found != self._identity:
      raise errors.DataError(
        f"{self.final} must be of {describe_identity(self._identity)}, found"
        f" that it was prepared from {describe_identity(found)}. Choose"
        " another output_dir."
      )
    bad = self.create_bad_examples()
    for line in report["left_out"]:
      bad.add(f"{self.final} lacks", line)
    bad.check()
    print(
      f"{self.final} is complete ({len(bad)} bad examples were left out)."
      " Nothing to do."
    )
    if num_missing := sum(line.endswith(MISSING) for line in bad.lines):
      print(
        f"{num_missing} of them were not found in any archive: to include what"
        f" has come since, remove {self.final} and run again."
      )
    return True

  def check_begun(self) -> None:
    """Refuses to go on with what was begun of something else."""
    begun = self.journal.entries("identity").get("", self._identity)
    if begun != self._identity:
      raise errors.DataError(
        f"{self.work} must be of {describe_identity(self._identity)}, found"
        f" that it was begun from {describe_identity(begun)}. Remove it, or"
        " choose another output_dir."
      )

  @contextlib.contextmanager
  def open(self, *, wait: bool = False) -> Iterator[None]:
    """Holds the folder that is worked in, and tidies it up.

    Args:
      wait: Whether to wait for another program at work, rather than to refuse;
        it may have finished the data set then.

    Raises:
      DataError: If another program is at work, or something else was begun.
    """
    (self._data / tfrecord_layout.TRAIN_FOLDER).mkdir(
      parents=True, exist_ok=True
    )
    descriptor = os.open(self.work, os.O_RDONLY)
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
      if not self.final.exists():
        self._begin()
      yield
    except BlockingIOError as error:
      raise errors.DataError(
        f"{self.work} must be used by one program at a time, found another"
        " one at work in it."
      ) from error
    finally:
      os.close(descriptor)

  def _begin(self) -> None:
    # Another program may have written since this one looked.
    self.journal = Journal(self.work / "journal.jsonl")
    self.check_begun()
    if not self.journal.entries("identity"):
      # Files of which nobody knows what they were made from.
      shutil.rmtree(self._data)
      (self._data / tfrecord_layout.TRAIN_FOLDER).mkdir(parents=True)
      self.journal.add("identity", "", self._identity)
    for path in self._data.rglob(f"*{tfrecord_writing.PARTIAL_SUFFIX}"):
      path.unlink()

  def discard(self) -> None:
    """Removes what was worked with."""
    shutil.rmtree(self.work, ignore_errors=True)

  def is_written(self, file: str) -> bool:
    """Whether a file is finished; it has its name below the variant's."""
    return (self._data / file).exists()

  def left_out(self) -> list[tuple[str, str, str]]:
    """File, image and reason of all that was left out."""
    return [
      (file, image_id, reason)
      for file, images in self.journal.entries("left_out").items()
      for image_id, reason in images
    ]

  def write(
    self,
    files: Files,
    read: Callable[[str], bytes],
    *,
    keep_empty: bool = False,
  ) -> None:
    """Writes the files that are not finished.

    Args:
      files: Rows of each file, by its name.
      read: From an image's name to its content; raises `BadImageError`.
      keep_empty: Whether a user without any image has an empty file, rather
        than none.

    Raises:
      DataError: If images are bad and not to be skipped.
    """
    for file, rows in tqdm.tqdm(
      files.items(), desc="Writing users", unit="file", disable=None
    ):
      if not self.is_written(file):
        with contextlib.suppress(_BadFileError):
          self._write_file(file, rows, read, keep_empty)
    bad = self.create_bad_examples()
    for file, image_id, reason in self.left_out():
      bad.add(file, f"image {image_id}: {reason}")
    bad.check()
    if not self.is_written(tfrecord_layout.TEST_FILE_NAME):
      raise errors.DataError(
        f"{tfrecord_layout.TEST_FILE_NAME} must have images, found none that"
        " can be read."
      )

  def _write_file(
    self,
    file: str,
    rows: Sequence[split_tables.Row],
    read: Callable[[str], bytes],
    keep_empty: bool,
  ) -> None:
    left_out = []

    def records():
      for row in rows:
        try:
          content = read(row.image_id)
        except BadImageError as error:
          left_out.append((row.image_id, str(error)))
        else:
          yield tfrecord_writing.serialize_image(content, row.label)
      if left_out or file in self.journal.entries("left_out"):
        self.journal.add("left_out", file, left_out)
      is_empty = len(left_out) == len(rows) and not keep_empty
      if is_empty or (left_out and self._policy == "fail"):
        raise _BadFileError

    tfrecord_writing.write_records(self._data / file, records())

  def forget(self, found: Callable[[str], bool]) -> None:
    """Has files written anew that lack images which have turned up since.

    Args:
      found: Whether an image is there now.
    """
    for file, image_id, reason in self.left_out():
      if reason == MISSING and found(image_id):
        (self._data / file).unlink(missing_ok=True)

  def finish(self, files: Files, **facts: Any) -> None:
    """Writes the report and gives the folder its name.

    Args:
      files: Those of `write`.
      **facts: What else the report is to say.
    """
    left_out = [
      f"{file}: image {image_id}: {reason}"
      for file, image_id, reason in sorted(self.left_out())
    ]
    num_rows = sum(map(len, files.values()))
    report = self._identity | {
      "num_users": sum(map(self.is_written, files)) - 1,
      "num_users_without_images": len(files) - sum(map(self.is_written, files)),
      "num_images": num_rows - len(left_out),
      "num_left_out": len(left_out),
      "left_out": left_out,
      **facts,
    }
    path = self._data / REPORT_FILE
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(
      f"{self.final}: {report['num_users']} users, {report['num_images']}"
      f" images, {len(left_out)} bad examples left out."
    )
    self._data.rename(self.final)
    shutil.rmtree(self.work)
