"""Turns published images and the tables of a split into files for each user.

The result is what TensorFlow Federated (0.87) keeps of the same data set:
`<variant>/train/<user id>` and `<variant>/test.tfRecord`, images in the order
of the tables. Beside them lies `preparation.json`, which says how they came
about. Until all is done it is under `<variant>.partial/`, from where a program
that was killed goes on.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import fcntl
import json
import os
import pathlib
import shutil

import tensorflow as tf
import tqdm

from tasks.prepare import downloads
from tasks.prepare import image_search
from tasks.prepare import inventory
from tasks.prepare import job as job_lib
from tasks.prepare import split_tables
from tasks.prepare import state as state_lib
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import tfrecord_layout
from tff_fedemb.data import tfrecord_writing

REPORT_FILE = "preparation.json"

_MISSING = ": not found in any archive"
_DAMAGED = ": cannot be decoded"


class _BadFileError(Exception):
  """A file of the output that must not be written as it would be."""


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
    job: job_lib.Job,
    output_dir: pathlib.Path,
    *,
    on_bad_example: str = "fail",
    disk_usage: Callable[[pathlib.Path], object] = shutil.disk_usage,
  ):
    """Initialises the preparation; nothing is read or written yet.

    Args:
      job: What to prepare.
      output_dir: Folder of the result; created if missing.
      on_bad_example: "fail": images that are missing or unreadable end the
        preparation; "skip": they are left out.
      disk_usage: From a folder to an object whose `free` is a number of bytes.

    Raises:
      ValueError: If `on_bad_example` is unknown.
    """
    self._job = job
    # Places of images are noted with their paths, so these must not depend on
    # the folder that the program is started in.
    self._output_dir = output_dir.resolve()
    self._final = self._output_dir / job.variant
    self._work = self._output_dir / f"{job.variant}.partial"
    self._data = self._work / "data"
    self._train = self._data / tfrecord_layout.TRAIN_FOLDER
    self._spool = self._work / "images.spool"
    self._on_bad_example = on_bad_example
    bad_examples.BadExamples(on_bad_example)  # Validates the policy.
    self._disk_usage = disk_usage
    self._files = dict(job.files)

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
      DataError: If something of the source is bad, the disk is too small, or
        the output folder holds something else.
    """
    if self._final.exists():
      self._check_finished()
      if not dry_run:
        # The program was killed between its two last steps.
        shutil.rmtree(self._work, ignore_errors=True)
      return False
    if not dry_run:
      self._train.mkdir(parents=True, exist_ok=True)
    with (
      contextlib.nullcontext() if dry_run else self._lock(),
      contextlib.closing(
        state_lib.State(self._work / "state.sqlite", in_memory=dry_run)
      ) as state,
    ):
      state.check_identity(self._job.identity)
      state.forget_changed([archive.path for archive in self._job.archives])
      state.forget_lost()
      pending = self._look_through(state)
      inventory.tell(
        self._job,
        state,
        pending,
        num_finished=sum(map(self._is_finished, self._files)),
      )
      inventory.check_disk(
        self._output_dir,
        inventory.estimate_bytes(self._job, state, pending, self._unfinished),
        self._disk_usage,
        is_estimate=bool(pending),
      )
      if dry_run:
        return False
      self._verify(state, set() if verified is None else verified)
      for archive in pending:
        missing = self._missing(state)
        if missing:
          image_search.unpack(archive, missing, self._spool, state)
      self._check_missing(state)
      self._forget_outdated(state)
      self._write(state)
      self._write_report(state)
    self._data.rename(self._final)
    shutil.rmtree(self._work)
    return True

  def _check_finished(self) -> None:
    path = self._final / REPORT_FILE
    try:
      report = json.loads(path.read_text())
      found = {name: report[name] for name in self._job.identity}
      lines = report["left_out"]
    except (OSError, ValueError, KeyError, TypeError) as error:
      raise errors.DataError(
        f"{self._final} must not exist, or be prepared by this program, found"
        f" no {REPORT_FILE} that says so. Choose another --output_dir."
      ) from error
    if found != self._job.identity:
      raise errors.DataError(
        f"{self._final} must be of"
        f" {job_lib.describe_tables(self._job.identity)}, found that it was"
        f" prepared from {job_lib.describe_tables(found)}. Choose another"
        " --output_dir."
      )
    bad = bad_examples.BadExamples(self._on_bad_example)
    for line in lines:
      bad.add(f"{self._final} lacks", line)
    bad.check()
    num_missing = sum(line.endswith(_MISSING) for line in lines)
    print(
      f"{self._final} is complete ({len(lines)} bad examples were left out)."
      " Nothing to do."
      + (
        f" {num_missing} of them were not found in any archive: to include"
        f" what has come since, remove {self._final} and run again."
        if num_missing
        else ""
      )
    )

  @contextlib.contextmanager
  def _lock(self) -> Iterator[None]:
    with (self._work / "lock").open("w") as file:
      try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError as error:
        raise errors.DataError(
          f"{self._work} must be used by one program at a time, found another"
          " one at work in it."
        ) from error
      yield

  def _missing(self, state: state_lib.State) -> set[str]:
    return self._job.tables.image_ids - state.image_sizes().keys()

  def _look_through(self, state: state_lib.State) -> list[downloads.Archive]:
    """Finds images; returns the archives to unpack for those not found."""
    image_ids = self._job.tables.image_ids
    tars = [a.path for a in self._job.archives if not a.is_compressed]
    for path in tqdm.tqdm(
      tars, desc="Looking through archives", unit="tar", disable=None
    ):
      if not state.is_marked(path, "listed"):
        state.add_images(path, image_search.list_tar(path, image_ids))
        state.mark(path, "listed")
    # Always anew: files may have come or gone.
    state.forget_images(self._job.source_dir)
    if missing := self._missing(state):
      found = image_search.list_folder(
        self._job.source_dir, missing, exclude=self._output_dir
      )
      state.add_images(self._job.source_dir, found)
    if not self._missing(state):
      return []
    return [
      archive
      for archive in self._job.archives
      if archive.is_compressed and not state.is_marked(archive.path, "listed")
    ]

  def _is_finished(self, file: str) -> bool:
    return (self._data / file).exists()

  @property
  def _unfinished(self) -> list[str]:
    return [file for file in self._files if not self._is_finished(file)]

  def _verify(
    self, state: state_lib.State, verified: set[pathlib.Path]
  ) -> None:
    """Compares checksums of the plain tars that images are taken from."""
    in_use = state.archives_in_use()
    for archive in self._job.archives:
      if archive.path in verified:
        state.mark(archive.path, "verified")
    to_do = [
      archive
      for archive in self._job.archives
      if archive.md5 is not None
      and not archive.is_compressed
      and os.fspath(archive.path) in in_use
      and not state.is_marked(archive.path, "verified")
    ]
    wrong = []
    with tqdm.tqdm(
      total=sum(archive.path.stat().st_size for archive in to_do),
      desc="Verifying checksums",
      unit="B",
      unit_scale=True,
      disable=None,
    ) as bar:
      for archive in to_do:
        found = downloads.compute_md5(archive.path, bar.update)
        if found == archive.md5:
          state.mark(archive.path, "verified")
          verified.add(archive.path)
        else:
          wrong.append(
            downloads.describe_mismatch(archive.path, archive.md5, found)
          )
    if wrong:
      raise errors.DataError(f"{'; '.join(wrong)}. Fetch again.")

  def _check_missing(self, state: state_lib.State) -> None:
    missing = self._missing(state)
    if len(missing) == len(self._job.tables.image_ids):
      raise errors.DataError(
        f"--source_dir={self._job.source_dir} must hold images of"
        f" {self._job.variant}, in archives or unpacked, found none of"
        f" {len(missing)}."
      )
    bad = bad_examples.BadExamples(self._on_bad_example)
    for image_id in sorted(missing):
      bad.add(f"image {image_id}", f"not in {self._job.source_dir}")
    bad.check()

  def _forget_outdated(self, state: state_lib.State) -> None:
    """Has files written anew that lack images which have turned up since."""
    known = state.image_sizes()
    for file, image_id, line in state.left_out():
      if image_id in known and line.endswith(_MISSING):
        (self._data / file).unlink(missing_ok=True)

  def _write(self, state: state_lib.State) -> None:
    """Writes the files that are not finished."""
    for path in self._data.rglob(f"*{tfrecord_writing.PARTIAL_SUFFIX}"):
      path.unlink()
    for file, rows in tqdm.tqdm(
      self._files.items(), desc="Writing users", unit="file", disable=None
    ):
      if not self._is_finished(file):
        with contextlib.suppress(_BadFileError):
          self._write_file(file, rows, state)
    bad = bad_examples.BadExamples(self._on_bad_example)
    for file, _, line in state.left_out():
      bad.add(file, line)
    bad.check()
    if not self._is_finished(tfrecord_layout.TEST_FILE_NAME):
      raise errors.DataError(
        f"{tfrecord_layout.TEST_FILE_NAME} must have images, found none that"
        " can be read."
      )

  def _write_file(
    self, file: str, rows: Sequence[split_tables.Row], state: state_lib.State
  ) -> None:
    left_out = []

    def records():
      for row in rows:
        place = state.find(row.image_id)
        content = None if place is None else place.read()
        if content is None:
          left_out.append((row.image_id, f"image {row.image_id}{_MISSING}"))
        elif not _is_image(content):
          left_out.append((row.image_id, f"image {row.image_id}{_DAMAGED}"))
        else:
          yield tfrecord_writing.serialize_image(content, row.label)
      state.set_left_out(file, left_out)
      if len(left_out) == len(rows) or (
        left_out and self._on_bad_example == "fail"
      ):
        raise _BadFileError

    tfrecord_writing.write_records(self._data / file, records())

  def _write_report(self, state: state_lib.State) -> None:
    left_out = sorted(state.left_out())
    job = self._job
    report = job.identity | {
      "num_users": len(list(self._train.iterdir())),
      "num_users_without_images": len(self._unfinished),
      "num_images": (
        sum(len(rows) for rows in self._files.values()) - len(left_out)
      ),
      "num_left_out": len(left_out),
      "left_out": [f"{file}: {line}" for file, _, line in left_out],
    }
    path = self._data / REPORT_FILE
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(
      f"{self._final}: {report['num_users']} users, {report['num_images']}"
      f" images, {len(left_out)} bad examples left out."
    )
