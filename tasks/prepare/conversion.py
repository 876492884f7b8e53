"""Turns published images and the tables of a split into files for each user.

Hsu, Qi and Brown, "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020. `output` says what the files are; images are in the
order of the tables.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import os
import pathlib
import shutil
from typing import Any

import tensorflow as tf
import tqdm

from tasks.prepare import downloads
from tasks.prepare import image_search
from tasks.prepare import output as output_lib
from tasks.prepare import split_tables
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_layout


@dataclasses.dataclass(frozen=True)
class Job:
  """A data set to prepare: a split, and where its images may be.

  Attributes:
    task: Name of the task.
    variant: Which of the task's data sets; the name of its folder.
    source_dir: Folder of all that was downloaded.
    tables: The split.
    archives: Where images may be, beside folders of unpacked ones.
    notes: Lines to tell the user about what was found and what is missing.
    bytes_per_image: Average size of an image, for those in compressed archives,
      whose sizes are not known in advance.
  """

  task: str
  variant: str
  source_dir: pathlib.Path
  tables: split_tables.SplitTables
  archives: Sequence[downloads.Archive]
  notes: Sequence[str] = ()
  bytes_per_image: int = 0

  @property
  def identity(self) -> dict[str, object]:
    """As of `output.Output`."""
    return {
      "task": self.task,
      "variant": self.variant,
      "tables": dict(sorted(self.tables.md5.items())),
    }

  @property
  def files(self) -> dict[str, Sequence[split_tables.Row]]:
    """Files of the result, by name, and what is to be in each."""
    return {
      f"{tfrecord_layout.TRAIN_FOLDER}/{user_id}": rows
      for user_id, rows in self.tables.users.items()
    } | {tfrecord_layout.TEST_FILE_NAME: self.tables.test}


def _is_image(content: bytes) -> bool:
  """Whether the tasks can decode it."""
  try:
    if tf.io.is_jpeg(content):
      # All of the file is decoded, and an eighth of each side computed.
      tf.io.decode_jpeg(content, channels=3, ratio=8)
    else:
      tf.io.decode_image(content, channels=3, expand_animations=False)
  except tf.errors.InvalidArgumentError:
    return False
  return True


class Preparation:
  """A job under way in an output folder."""

  def __init__(
    self,
    job: Job,
    output_dir: pathlib.Path,
    *,
    on_bad_example: str = "fail",
    disk_usage: Callable[[pathlib.Path], Any] = shutil.disk_usage,
  ):
    """Initialises the preparation; nothing is read or written yet.

    Args:
      job: What to prepare.
      output_dir: Folder of the result; created if missing.
      on_bad_example: "fail": images that are missing or unreadable end the
        preparation; "skip": they are left out.
      disk_usage: From a folder to an object whose `free` is a number of bytes.
    """
    self._job = job
    self._files = job.files
    self._image_ids = job.tables.image_ids
    self._output_dir = output_dir.resolve()
    self._output = output_lib.Output(
      output_dir, job.variant, job.identity, on_bad_example=on_bad_example
    )
    self._unpacked = self._output.work / "images"
    self._disk_usage = disk_usage
    # Where the images that were found are.
    self._found: dict[str, image_search.Location] = {}

  def run(
    self,
    *,
    dry_run: bool = False,
    verified: set[pathlib.Path] | None = None,
  ) -> bool:
    """Prepares the data set, from where an earlier run was ended.

    Args:
      dry_run: Whether to stop after telling what was found, what is missing
        and how much disk it takes; nothing is written.
      verified: Archives whose checksums are known to be right; those that are
        verified now are added.

    Returns:
      Whether anything was prepared.

    Raises:
      DataError: If something of the source is bad, or the output folder holds
        something else.
      FieldError: If the disk is too small, or there are no images.
    """
    if self._output.is_complete():
      if not dry_run:
        # The program was killed between its two last steps.
        self._output.discard()
      return False
    if dry_run:
      self._output.check_begun()
      self._look_around()
      return False
    with self._output.open():
      pending = self._look_around()
      self._verify(set() if verified is None else verified)
      for archive in pending:
        if missing := self._missing():
          folder = self._unpacked / archive.path.name
          image_search.unpack(archive, missing, folder)
          self._found |= image_search.list_folder(folder, missing)
      self._check_missing()
      self._output.forget(self._found.__contains__)
      self._output.write(self._files, self._read)
      self._output.finish(self._files)
    return True

  def _missing(self) -> set[str]:
    return self._image_ids - self._found.keys()

  def _look_around(self) -> list[downloads.Archive]:
    """Finds images, and says what there is and what disk is needed.

    Returns:
      The archives to unpack for the images that were not found.
    """
    tars = [a.path for a in self._job.archives if not a.is_compressed]
    for path in tqdm.tqdm(
      tars, desc="Looking through archives", unit="tar", disable=None
    ):
      listed = image_search.list_tar(path, self._image_ids)
      self._found = listed | self._found
    # Not into folders of archives that are not unpacked to their end.
    for folder in sorted(self._unpacked.glob("[!.]*")):
      self._found |= image_search.list_folder(folder, self._missing())
    if missing := self._missing():
      self._found |= image_search.list_folder(
        self._job.source_dir, missing, exclude=self._output_dir
      )
    pending = [
      archive
      for archive in self._job.archives
      if archive.is_compressed
      and self._missing()
      and not (self._unpacked / archive.path.name).exists()
    ]
    self._tell(pending)
    output_lib.check_disk(
      self._output_dir,
      self._estimate_bytes(bool(pending)),
      note=" (estimated, with unpacked images)" if pending else "",
      disk_usage=self._disk_usage,
    )
    return pending

  def _tell(self, pending: Sequence[downloads.Archive]) -> None:
    """Says what was found and what is missing."""
    job, tables = self._job, self._job.tables
    num_train = sum(map(len, tables.users.values()))
    missing = sorted(self._missing())
    where = f"missing ({downloads.format_names(missing)})"
    if pending:
      names = ", ".join(archive.path.name for archive in pending)
      where = f"to be looked for in {names}"
    without = [a.path.name for a in job.archives if a.md5 is None]
    num_finished = sum(map(self._output.is_written, self._files))
    lines = [
      *job.notes,
      f"{job.task} {job.variant}: {len(tables.users)} users with {num_train}"
      f" images, {len(tables.test)} test images.",
      f"Images: {len(self._found)} found, {len(missing)}"
      f" {where if missing else 'missing'}.",
      f"Checksums: {len(job.archives) - len(without)} of {len(job.archives)}"
      " archives have one"
      + (f"; none: {downloads.format_names(without)}." if without else "."),
    ]
    if num_finished:
      lines.append(
        f"Finished earlier: {num_finished} of {len(self._files)} files."
      )
    print("\n".join(lines))

  def _estimate_bytes(self, to_be_unpacked: bool) -> int:
    """Disk that will be taken; exact but for images not found yet."""
    sizes = {image_id: place.size for image_id, place in self._found.items()}
    unpacked = 0
    if to_be_unpacked:
      missing = self._missing()
      unpacked = len(missing) * self._job.bytes_per_image
      sizes |= dict.fromkeys(missing, self._job.bytes_per_image)
    return unpacked + sum(
      output_lib.size_of_file(
        [sizes[row.image_id] for row in rows if row.image_id in sizes]
      )
      for file, rows in self._files.items()
      if not self._output.is_written(file)
    )

  def _verify(self, verified: set[pathlib.Path]) -> None:
    """Compares checksums of the plain tars that images are taken from."""
    known = self._output.journal.entries("verified")
    in_use = {place.path for place in self._found.values()}
    to_do = {}
    for archive in self._job.archives:
      path = os.fspath(archive.path)
      facts = archive.path.stat()
      fact = [facts.st_size, facts.st_mtime_ns]
      if archive.path in verified or known.get(path) == fact:
        continue
      if archive.md5 is not None and path in in_use:
        to_do[archive] = fact
    wrong = []
    with tqdm.tqdm(
      total=sum(size for size, _ in to_do.values()),
      desc="Verifying checksums",
      unit="B",
      unit_scale=True,
      disable=None,
    ) as bar:
      for archive, fact in to_do.items():
        found = downloads.compute_md5(archive.path, bar.update)
        if found == archive.md5:
          self._output.journal.add("verified", os.fspath(archive.path), fact)
          verified.add(archive.path)
        else:
          wrong.append(
            downloads.describe_mismatch(archive.path, archive.md5, found)
          )
    if wrong:
      raise errors.DataError(f"{'; '.join(wrong)}. Fetch again.")

  def _check_missing(self) -> None:
    if not self._found:
      raise errors.FieldError(
        "source_dir",
        f"hold images of {self._job.variant}, in archives or unpacked",
        f"none of {len(self._image_ids)} in {self._job.source_dir}",
      )
    bad = self._output.create_bad_examples()
    for image_id in sorted(self._missing()):
      bad.add(f"image {image_id}", f"not in {self._job.source_dir}")
    bad.check()

  def _read(self, image_id: str) -> bytes:
    place = self._found.get(image_id)
    if place is None:
      raise output_lib.BadImageError(output_lib.MISSING)
    content = place.read()
    if not _is_image(content):
      raise output_lib.BadImageError("cannot be decoded")
    return content
