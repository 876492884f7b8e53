"""Writes a prepared data set; a preparation that was killed goes on later.

The result is what TensorFlow Federated (0.87) keeps of federated photos:
`<variant>/train/<user id>` and `<variant>/test.tfRecord`. Beside them lies
`preparation.json`, which says how they came about. Until all is done they are
under `<variant>.partial/`, from where a program that was killed goes on. A file
that is there is finished. Lines of `left_out.jsonl` say what is not in a file;
the last line of a file counts.
"""

import abc
import collections
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any, NamedTuple

from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import tfrecord_files

MISSING = "not found in any archive"

_REPORT_FILE = "preparation.json"
_BLOCK = 4096  # Files take up whole blocks of this size.


class BadImageError(Exception):
  """An image, or all of its file, is left out; the message says why."""


class Row(NamedTuple):
  """One labelled image of a user or of the test set.

  Attributes:
    image_id: Name of the image, as the job reads it.
    label: Its class, at least 0.
  """

  image_id: str
  label: int


@dataclasses.dataclass(frozen=True)
class Plan:
  """The files to write.

  Attributes:
    files: Rows of each file, by its name below the folder of the variant.
    sizes: Bytes of the images that were found.
    bad: Names of users without images and of images that are missing, and what
      is wrong with them.
  """

  files: Mapping[str, Sequence[Row]]
  sizes: Mapping[str, int]
  bad: Sequence[tuple[str, str]] = ()


class Job(abc.ABC):
  """A data set to prepare, and where its images are.

  Attributes:
    variant: Variant of the task's data; the name of its folder.
    identity: Task, variant, and digests of "tables" or "sources" by name. A
      preparation goes on only if all of these are the same.
  """

  def __init__(self, task: str, variant: str, identity: Mapping[str, Any]):
    """Initialises the job.

    Args:
      task: Name of the task.
      variant: Variant of the task's data.
      identity: What else must be the same for a preparation to go on.
    """
    self.variant = variant
    self.identity = {"task": task, "variant": variant, **identity}

  @abc.abstractmethod
  def look(self) -> Plan:
    """Finds what there is, and says so; nothing is written.

    Returns:
      The files to write, and what is missing for them.

    Raises:
      DataError: If the source is damaged.
      FieldError: If it has too little.
    """

  def verify(self) -> None:  # noqa: B027
    """Checks what was found, before the first file is written.

    The default checks nothing. It may take long: checksums are computed here.

    Raises:
      DataError: If something is not what the publisher offers.
      FieldError: If there are no images.
    """

  @abc.abstractmethod
  def read(self, image_id: str) -> bytes:
    """Reads the content of an image.

    Args:
      image_id: The image, as a row of the plan names it.

    Returns:
      Bytes of the encoded image.

    Raises:
      BadImageError: If the image is to be left out.
    """


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  """Writes an object, whole or not at all.

  Args:
    path: The file.
    value: JSON values by name.
  """
  with whole_files.replacing(path) as partial:
    partial.write_text(json.dumps(value, indent=2) + "\n")


class Preparation:
  """A job under way in an output folder.

  It may be killed at any time: finished files stay, and the next program writes
  the others.
  """

  def __init__(
    self, job: Job, output_dir: pathlib.Path, on_bad_example: str = "fail"
  ):
    """Initialises the preparation.

    Args:
      job: The data set.
      output_dir: Folder of the result; created if missing.
      on_bad_example: "fail": images that are missing or unreadable end the
        preparation; "skip": they are left out.
    """
    self._job = job
    self._policy = on_bad_example
    output_dir = output_dir.resolve()
    self._final = output_dir / job.variant
    self._work = output_dir / f"{job.variant}.partial"
    self._data = self._work / "data"
    self._identity = self._work / "identity.json"
    self._notes = self._work / "left_out.jsonl"

  def run(self, *, dry_run: bool = False) -> bool:
    """Prepares the data set.

    Args:
      dry_run: Whether to stop after printing which images were found, which are
        missing and how much disk space is needed; nothing is written.

    Returns:
      Whether anything was done.

    Raises:
      DataError: If something of the source is bad, or the output folder holds
        something else.
      FieldError: If the disk is too small, or there are no images.
    """
    if self._is_complete():
      if not dry_run:
        # Remove the leftovers of a program that was killed between its last two
        # steps.
        shutil.rmtree(self._work, ignore_errors=True)
      return False
    begun = tfrecord_files.read_json(self._identity)
    if begun and begun != self._job.identity:
      raise self._create_error(self._work, begun)
    plan = self._job.look()
    if num_finished := sum(map(self._is_written, plan.files)):
      print(f"Finished earlier: {num_finished} of {len(plan.files)} files.")
    self._check_disk(plan)
    if dry_run:
      return False
    # These files lack an image that has turned up since; write them anew.
    outdated = set()
    for file, image_id, reason in self._left_out():
      if reason == MISSING and image_id in plan.sizes:
        outdated.add(self._data / file)
    if outdated or not begun:
      self._job.verify()
    self._begin(outdated)
    self._check_bad(plan.bad)
    self._write(plan.files)
    self._finish(plan)
    return True

  def _check_bad(self, found: Sequence[tuple[str, str]]) -> None:
    """Refuses bad examples, unless they are to be skipped.

    Args:
      found: Pairs of a place, and what is wrong there.

    Raises:
      DataError: If something is bad, and the policy is "fail".
    """
    bad = bad_examples.BadExamples(self._policy)
    for where, what in found:
      bad.add(where, what)
    bad.check()

  def _is_written(self, file: str) -> bool:
    """Whether a file is finished."""
    return (self._data / file).exists()

  def _is_complete(self) -> bool:
    """Whether all was done before; says so.

    Raises:
      DataError: If the folder was prepared from something else, or examples
        were left out then, and the policy is "fail" now.
    """
    if not self._final.exists():
      return False
    report = tfrecord_files.read_json(self._final / _REPORT_FILE)
    found = {name: report.get(name) for name in self._job.identity}
    if found != self._job.identity or "left_out" not in report:
      raise self._create_error(self._final, found)
    lines = report["left_out"]
    self._check_bad([(f"{self._final} lacks", line) for line in lines])
    print(
      f"{self._final} is complete ({len(lines)} bad examples were left out)."
      " Nothing to do; to include what has come since, remove it."
    )
    return True

  def _create_error(
    self, folder: pathlib.Path, found: Mapping[str, Any]
  ) -> errors.DataError:
    """Creates the error of a folder with another identity.

    Args:
      folder: The folder.
      found: Its identity.
    """
    return errors.DataError(
      f"{folder} must be prepared by this program from {self._job.identity},"
      f" found {found}. Choose another output_dir."
    )

  def _check_disk(self, plan: Plan) -> None:
    """Says how much disk is needed and free, and refuses what does not fit.

    Args:
      plan: The files to write; those that are finished need no more room.

    Raises:
      FieldError: If less is free than needed.
    """
    needed = 0
    for file, rows in plan.files.items():
      if self._is_written(file):
        continue
      needed += _BLOCK
      for row in rows:
        if row.image_id in plan.sizes:
          size = plan.sizes[row.image_id]
          needed += size + tfrecord_files.RECORD_OVERHEAD
    parent = next(path for path in self._work.parents if path.exists())
    free = shutil.disk_usage(parent).free
    wanted, found = map(progress.format_bytes, (needed, free))
    print(f"Disk: {wanted} needed, {found} free in {parent}.")
    if needed > free:
      raise errors.FieldError(
        "output_dir", f"have {wanted} free", f"{found} in {self._final.parent}"
      )

  def _begin(self, outdated: set[pathlib.Path]) -> None:
    """Makes the folder to work in, without files that are of no use.

    Args:
      outdated: Files to write anew, since they lack an image that is there now.
    """
    if not self._identity.exists():
      # It is unknown what these files were made from.
      shutil.rmtree(self._work, ignore_errors=True)
    (self._data / tfrecord_files.TRAIN_FOLDER).mkdir(
      parents=True, exist_ok=True
    )
    _write_json(self._identity, self._job.identity)
    for path in outdated.union(self._data.rglob(f"*{whole_files.PARTIAL}*")):
      path.unlink(missing_ok=True)

  def _left_out(self) -> list[tuple[str, str, str]]:
    """Returns file, image and reason of all that was left out, sorted.

    Only the last note on a file counts.
    """
    images: dict[str, list[tuple[str, str]]] = {}
    if self._notes.exists():
      for line in self._notes.read_text().splitlines():
        # A program that was killed may have cut off a note. The file's next
        # note replaces it.
        with contextlib.suppress(json.JSONDecodeError):
          images |= json.loads(line)
    left_out = []
    for file, some in images.items():
      left_out += [(file, *image) for image in some]
    return sorted(left_out)

  def _write(self, files: Mapping[str, Sequence[Row]]) -> None:
    """Writes the files that are not finished.

    Args:
      files: Rows of each file, by its name.

    Raises:
      DataError: If an image is bad, and the policy is "fail", or if no test
        image is left.
    """
    for file, rows in progress.create_bar(
      "Writing users", unit="files", items=files.items()
    ):
      if not self._is_written(file):
        records = self._iterate_records(file, rows)
        with contextlib.suppress(BadImageError):
          tfrecord_files.write_records(self._data / file, records)
    bad = []
    for file, image_id, reason in self._left_out():
      bad.append((file, f"image {image_id}: {reason}"))
    self._check_bad(bad)
    if not self._is_written(tfrecord_files.TEST_FILE_NAME):
      raise errors.DataError(
        f"{tfrecord_files.TEST_FILE_NAME} must have images, found none."
      )

  def _iterate_records(self, file: str, rows: Sequence[Row]) -> Iterator[bytes]:
    """Yields a file's records, and notes at their end what is not in it.

    Args:
      file: Name of the file.
      rows: Its images.

    Yields:
      Serialised examples.

    Raises:
      BadImageError: At the end, if the file is not to be kept: it lacks an
        image and the policy is "fail", all its images are missing, or it is
        that of the test images and empty.
    """
    left_out = []
    for row in rows:
      try:
        content = self._job.read(row.image_id)
      except BadImageError as error:
        left_out.append((row.image_id, str(error)))
      else:
        yield tfrecord_files.serialize_image(content, row.label)
    if left_out or self._notes.exists():
      with self._notes.open("a") as notes:
        # The line before may have been cut off.
        notes.write(f"\n{json.dumps({file: left_out})}")
        notes.flush()
        os.fsync(notes.fileno())
    if left_out and self._policy == "fail":
      raise BadImageError(file)
    if len(left_out) == len(rows):
      # Content of a user's images must not decide who has a place.
      is_absent = bool(rows) and {what for _, what in left_out} == {MISSING}
      if is_absent or file == tfrecord_files.TEST_FILE_NAME:
        raise BadImageError(file)

  def _finish(self, plan: Plan) -> None:
    """Writes the report and gives the folder its name.

    Args:
      plan: The files, all of which are written or were left out.
    """
    left_out = []
    counts: collections.Counter[str] = collections.Counter()
    for file, image_id, reason in self._left_out():
      left_out.append(f"{file}: image {image_id}: {reason}")
      counts[file] += 1
    is_empty = [counts[file] == len(x) for file, x in plan.files.items()]
    num_written = sum(map(self._is_written, plan.files))
    report = self._job.identity | {
      "num_users": num_written - 1,
      "num_users_without_images": sum(is_empty),
      "num_images": sum(map(len, plan.files.values())) - len(left_out),
      "num_left_out": len(left_out),
      "left_out": left_out,
    }
    _write_json(self._data / _REPORT_FILE, report)
    print(
      f"{self._final}: {report['num_users']} users, {report['num_images']}"
      f" images, {len(left_out)} bad examples left out."
    )
    self._data.rename(self._final)
    shutil.rmtree(self._work)
