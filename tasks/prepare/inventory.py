"""What is there before anything is done, and what disk it takes."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import pathlib

from tasks.prepare import downloads
from tasks.prepare import job as job_lib
from tasks.prepare import state as state_lib
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_writing

_BLOCK = 4096  # What a file takes up is a multiple of it.


def estimate_bytes(
  job: job_lib.Job,
  state: state_lib.State,
  pending: Sequence[downloads.Archive],
  files: Collection[str],
) -> int:
  """Disk that the output, and what is unpacked for it, will take.

  Args:
    job: What is prepared.
    state: Knows the sizes of the images that were found.
    pending: Compressed archives in which the other images may be.
    files: Files of the output that are not written yet.

  Returns:
    Bytes; exact but for the images that are not found yet.
  """
  sizes = state.image_sizes()
  unknown = job.bytes_per_image if pending else None
  rows_of = dict(job.files)
  total = 0
  for file in files:
    total += _BLOCK
    for row in rows_of[file]:
      size = sizes.get(row.image_id, unknown)
      if size is not None:
        total += size + tfrecord_writing.RECORD_OVERHEAD
  if pending:
    missing = job.tables.image_ids - sizes.keys()
    total += len(missing) * job.bytes_per_image
  return total


def tell(
  job: job_lib.Job,
  state: state_lib.State,
  pending: Sequence[downloads.Archive],
  *,
  num_finished: int,
) -> None:
  """Says what was found and what is missing.

  Args:
    job: What is prepared.
    state: Knows the images that were found.
    pending: Compressed archives in which the other images may be.
    num_finished: Files of the output that are written already.
  """
  for note in job.notes:
    print(note)
  tables = job.tables
  num_train = sum(len(rows) for rows in tables.users.values())
  print(
    f"{job.task} {job.variant}: {len(tables.users)} users with {num_train}"
    f" images, {len(tables.test)} test images."
  )
  missing = sorted(tables.image_ids - state.image_sizes().keys())
  found = len(tables.image_ids) - len(missing)
  if pending:
    print(
      f"Images: {found} found, {len(missing)} to be looked for in"
      f" {', '.join(archive.path.name for archive in pending)}."
    )
  else:
    print(
      f"Images: {found} found, {len(missing)} missing"
      + (f" ({downloads.format_names(missing)})." if missing else ".")
    )
  without = [a.path.name for a in job.archives if a.md5 is None]
  print(
    f"Checksums: {len(job.archives) - len(without)} of {len(job.archives)}"
    " archives have one"
    + (f"; none: {downloads.format_names(without)}." if without else ".")
  )
  if num_finished:
    print(f"Finished earlier: {num_finished} of {len(job.files)} files.")


def check_disk(
  output_dir: pathlib.Path,
  needed: int,
  disk_usage: Callable[[pathlib.Path], object],
  *,
  is_estimate: bool,
) -> None:
  """Says how much disk is needed and free, and refuses what does not fit.

  Args:
    output_dir: Folder of the result; it need not exist yet.
    needed: Bytes that will be written.
    disk_usage: From a folder to an object whose `free` is a number of bytes.
    is_estimate: Whether sizes of images are not known yet.

  Raises:
    DataError: If less is free than needed.
  """
  parent = output_dir
  while not parent.exists():
    parent = parent.parent
  free = disk_usage(parent).free
  print(
    f"Disk: {downloads.format_bytes(needed)} needed"
    + (" (estimated, with unpacked images)" if is_estimate else "")
    + f", {downloads.format_bytes(free)} free in {parent}."
  )
  if needed > free:
    raise errors.DataError(
      f"--output_dir={output_dir} must have {downloads.format_bytes(needed)}"
      f" free, found {downloads.format_bytes(free)}."
    )
