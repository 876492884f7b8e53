"""Files that cannot be written: one line, and what it means for a run."""

from collections.abc import Iterator
import contextlib
import os
import shutil

import tensorflow as tf

from tff_fedemb import errors


@contextlib.contextmanager
def writing(directory: str | os.PathLike[str]) -> Iterator[None]:
  """Says in one line that files cannot be written.

  TensorFlow has no error of its own for a full disk: `ResourceExhaustedError`
  is one of memory, too. So nothing but files may be written within.

  Args:
    directory: Directory of the files, which has to be there.

  Raises:
    errors.StorageError: In place of any error of TensorFlow or of the system.
  """
  try:
    yield
  except (OSError, tf.errors.OpError) as error:
    free = shutil.disk_usage(directory).free
    raise errors.StorageError(
      f"{os.fspath(directory)} cannot be written to: {free:,} bytes are free on"
      " its disk, unless a limit of file sizes is in the way."
    ) from error
