"""A prepared data set on its way to the disk: whole, or to be gone on with.

The result is what TensorFlow Federated (0.87) keeps of federated photos:
`<variant>/train/<user id>` and `<variant>/test.tfRecord`. Beside them lies
`preparation.json`, which says how they came about. Until all is done it is
under `<variant>.partial/`, from where a program that was killed goes on: a file
is finished when it is there, and what was left out of it stands in a file of
the same name in another folder.
"""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
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
from tff_fedemb.data import tfrecord_files

MISSING = "not found in any archive"

_REPORT_FILE = "preparation.json"
# What makes a data set what it is, and what to call each item's digest.
_DIGESTS = {"tables": "MD5", "sources": "fingerprint"}
_BLOCK = 4096  # What a file takes up is a multiple of it.


class BadImageError(Exception):
  """An image that is to be left out, or all of its file; says why."""


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is to be written.

  Attributes:
    files: Rows of each file, by its name below the folder of the variant.
    sizes: Bytes of the images that were found, or may be.
    unpacked_bytes: What unpacking takes beside, an estimate.
    empty: Users, by what to call them, that have no images; a fault.
    facts: What else the report is to say.
  """

  files: Mapping[str, Sequence[split_tables.Row]]
  sizes: Mapping[str, int]
  unpacked_bytes: int = 0
  empty: Sequence[str] = ()
  facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """What a file says; nothing if it is not there, or something else."""
  try:
    found = json.loads(path.read_text())
  except (OSError, ValueError):
    return {}
  return found if isinstance(found, dict) else {}


def write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  """Writes a file, whole or not at all."""
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(f"{path.name}{tfrecord_files.PARTIAL_SUFFIX}")
  with partial.open("w") as file:
    file.write(json.dumps(value, indent=2) + "\n")
    file.flush()
    os.fsync(file.fileno())
  partial.replace(path)


def read_report(folder: pathlib.Path) -> dict[str, Any]:
  """What `preparation.json` in a folder says; nothing if it is not there."""
  return read_json(folder / _REPORT_FILE)


def _describe(identity: Mapping[str, Any]) -> str:
  """For instance "test.csv (MD5 0123...)", of each source of an identity."""
  return " and ".join(
    f"{name} ({digest} {value})"
    for key, digest in _DIGESTS.items()
    for name, value in identity.get(key, {}).items()
  )


class Preparation(abc.ABC):
  """The folder of a variant, and that from which it is made.

  What is written there is said by sub-classes.
  """

  # Whether a user without any image has an empty file, rather than none.
  keeps_empty_files = False

  def __init__(
    self,
    output_dir: pathlib.Path,
    variant: str,
    identity: Mapping[str, Any],
    *,
    on_bad_example: str = "fail",
    field: str = "output_dir",
  ):
    """Initialises the preparation; nothing is read or written yet.

    Args:
      output_dir: Folder of the result; created if missing.
      variant: Name of its folder in there.
      identity: Task, variant, and digests of "tables" or "sources" by name:
        what must be the same for a preparation to be taken up again.
      on_bad_example: "fail": images that are missing or unreadable end the
        preparation; "skip": they are left out.
      field: What the folder is called in the error of a disk that is too small.
    """
    self.output_dir = output_dir.resolve()
    self.final = self.output_dir / variant
    self.work = self.output_dir / f"{variant}.partial"
    self._data = self.work / "data"
    self._notes = self.work / "left_out"
    self._identity = dict(identity)
    self._policy = on_bad_example
    self._field = field

  @abc.abstractmethod
  def look(self) -> Plan:
    """Finds what there is, and says so; nothing is written."""

  def fetch(self) -> None:  # noqa: B027 Most have nothing to do.
    """Makes what was found ready to be read; may write into `work`."""

  @abc.abstractmethod
  def read(self, image_id: str) -> bytes:
    """The content of an image; raises `BadImageError` if it is to be left out.

    Args:
      image_id: As in the rows of the plan.
    """

  def run(self, *, dry_run: bool = False, wait: bool = False) -> bool:
    """Prepares the data set, from where an earlier run was ended.

    Args:
      dry_run: Whether to stop after telling what was found, what is missing
        and how much disk it takes; nothing is written.
      wait: Whether to wait for another program at work, rather than to refuse.

    Returns:
      Whether anything was prepared.

    Raises:
      DataError: If something of the source is bad, the output folder holds
        something else, or another program is at work in it.
      FieldError: If the disk is too small, or there are no images.
    """
    if self._is_complete():
      if not dry_run:
        # The program was killed between its two last steps.
        shutil.rmtree(self.work, ignore_errors=True)
      return False
    self._check_begun()
    plan = self.look()
    self._check_disk(plan)
    if dry_run:
      return False
    self.check_bad([(name, "no image") for name in plan.empty])
    with self._hold(wait):
      if self.final.exists():  # Another program's, while this one waited.
        shutil.rmtree(self.work, ignore_errors=True)
        return False
      self._begin()
      self.fetch()
      self._write(plan.files)
      self._finish(plan)
    return True

  def check_bad(self, found: Sequence[tuple[str, str]]) -> None:
    """Refuses what is bad, unless it is to be skipped.

    Args:
      found: Where something is bad, and what.
    """
    bad = bad_examples.BadExamples(self._policy)
    for where, what in found:
      bad.add(where, what)
    bad.check()

  def is_written(self, file: str) -> bool:
    """Whether a file is finished; it has its name below the variant's."""
    return (self._data / file).exists()

  def forget_missing(self, image_ids: Mapping[str, Any]) -> None:
    """Has files written anew that lack images which have turned up since.

    Args:
      image_ids: All images that are there now.
    """
    for file, image_id, reason in self._left_out():
      if reason == MISSING and image_id in image_ids:
        (self._data / file).unlink(missing_ok=True)

  def _is_complete(self) -> bool:
    """Whether all was done before, which it says."""
    if not self.final.exists():
      return False
    report = read_report(self.final)
    found = {name: report.get(name) for name in self._identity}
    fault = None
    if None in found.values() or "left_out" not in report:
      fault = f"no {_REPORT_FILE} that says so"
    elif found != self._identity:
      fault = f"that it was prepared from {_describe(found)}"
    if fault:
      raise errors.DataError(
        f"{self.final} must be of {_describe(self._identity)}, prepared by this"
        f" program, found {fault}. Choose another output_dir."
      )
    lines = report["left_out"]
    self.check_bad([(f"{self.final} lacks", line) for line in lines])
    print(
      f"{self.final} is complete ({len(lines)} bad examples were left out)."
      " Nothing to do."
    )
    if num_missing := sum(line.endswith(MISSING) for line in lines):
      print(
        f"{num_missing} of them were {MISSING}: to include what has come since,"
        f" remove {self.final} and run again."
      )
    return True

  def _check_begun(self) -> None:
    begun = read_json(self.work / "identity.json") or self._identity
    if begun != self._identity:
      raise errors.DataError(
        f"{self.work} must be of {_describe(self._identity)}, found that it was"
        f" begun from {_describe(begun)}. Remove it, or choose another"
        " output_dir."
      )

  def _check_disk(self, plan: Plan) -> None:
    """Says how much disk is needed and free, and refuses what does not fit."""
    needed = plan.unpacked_bytes
    for file, rows in plan.files.items():
      if not self.is_written(file):
        needed += _BLOCK + sum(
          plan.sizes[row.image_id] + tfrecord_files.RECORD_OVERHEAD
          for row in rows
          if row.image_id in plan.sizes
        )
    parents = [self.output_dir, *self.output_dir.parents]
    parent = next(folder for folder in parents if folder.exists())
    free = shutil.disk_usage(parent).free
    wanted, found = map(downloads.format_bytes, (needed, free))
    note = " (estimated, with unpacked images)" if plan.unpacked_bytes else ""
    print(f"Disk: {wanted} needed{note}, {found} free in {parent}.")
    if needed > free:
      raise errors.FieldError(
        self._field, f"have {wanted} free", f"{found} in {self.output_dir}"
      )

  @contextlib.contextmanager
  def _hold(self, wait: bool) -> Iterator[None]:
    """Keeps other programs out of the folder that is worked in."""
    self.work.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(self.work, os.O_RDONLY)
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
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
    self._check_begun()
    identity = self.work / "identity.json"
    if not identity.exists():
      # Files of which nobody knows what they were made from.
      for folder in (self._data, self._notes):
        shutil.rmtree(folder, ignore_errors=True)
      write_json(identity, self._identity)
    (self._data / tfrecord_files.TRAIN_FOLDER).mkdir(
      parents=True, exist_ok=True
    )
    for folder in (self._data, self._notes):
      for path in folder.rglob(f"*{tfrecord_files.PARTIAL_SUFFIX}"):
        path.unlink()

  def _left_out(self) -> list[tuple[str, str, str]]:
    """File, image and reason of all that was left out."""
    return sorted(
      (os.fspath(path.relative_to(self._notes)), image_id, reason)
      for path in self._notes.rglob("*")
      if path.is_file()
      for image_id, reason in read_json(path)["images"]
    )

  def _write(self, files: Mapping[str, Sequence[split_tables.Row]]) -> None:
    """Writes the files that are not finished."""
    for file, rows in tqdm.tqdm(
      files.items(), desc="Writing users", unit="file", disable=None
    ):
      if not self.is_written(file):
        with contextlib.suppress(BadImageError):
          tfrecord_files.write_records(
            self._data / file, self._iterate_records(file, rows)
          )
    self.check_bad(
      [(file, f"image {i}: {reason}") for file, i, reason in self._left_out()]
    )
    if not self.is_written(tfrecord_files.TEST_FILE_NAME):
      raise errors.DataError(
        f"{tfrecord_files.TEST_FILE_NAME} must have images, found none that"
        " can be read."
      )

  def _iterate_records(
    self, file: str, rows: Sequence[split_tables.Row]
  ) -> Iterator[bytes]:
    """Yields a file's records, and notes at their end what is not in it."""
    left_out, num_written = [], 0
    for row in rows:
      try:
        content = self.read(row.image_id)
      except BadImageError as error:
        left_out.append((row.image_id, str(error)))
      else:
        num_written += 1
        yield tfrecord_files.serialize_image(content, row.label)
    (self._notes / file).unlink(missing_ok=True)
    if left_out:
      write_json(self._notes / file, {"images": left_out})
    is_empty = not num_written and not self.keeps_empty_files
    if is_empty or (left_out and self._policy == "fail"):
      raise BadImageError(file)

  def _finish(self, plan: Plan) -> None:
    """Writes the report and gives the folder its name."""
    left_out = [
      f"{file}: image {image_id}: {reason}"
      for file, image_id, reason in self._left_out()
    ]
    num_written = sum(map(self.is_written, plan.files))
    report = self._identity | {
      "num_users": num_written - 1,
      "num_users_without_images": len(plan.files) - num_written,
      "num_images": sum(map(len, plan.files.values())) - len(left_out),
      "num_left_out": len(left_out),
      "left_out": left_out,
      **plan.facts,
    }
    write_json(self._data / _REPORT_FILE, report)
    print(
      f"{self.final}: {report['num_users']} users, {report['num_images']}"
      f" images, {len(left_out)} bad examples left out."
    )
    self._data.rename(self.final)
    shutil.rmtree(self.work)
