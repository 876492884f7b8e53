"""Helpers for files of a run: TFF's managers, and errors of the disk."""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent import futures
import contextlib
import os
import shutil
from typing import Any, TypeVar

import tensorflow as tf

from tff_fedemb import errors

_Result = TypeVar("_Result")
# TensorFlow's errors for a full disk, and for a file that is too large.
_NO_ROOM = (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError)


def wait_for(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
  """Runs a coroutine of a TFF manager, and returns its result.

  It runs in a thread of its own. A notebook or an asynchronous program runs an
  event loop in this thread already, and a thread can have only one.

  Args:
    coroutine: A coroutine that has not begun.

  Returns:
    What the coroutine returns.

  Raises:
    Exception: Whatever the coroutine raises.
  """
  with futures.ThreadPoolExecutor(max_workers=1) as thread:
    return thread.submit(asyncio.run, coroutine).result()


@contextlib.contextmanager
def writing(directory: str | os.PathLike[str]) -> Iterator[None]:
  """Turns errors of writing files into one line for the user.

  Only write files within: TensorFlow reports a full disk by the error that it
  raises for a lack of memory too, `ResourceExhaustedError`.

  Args:
    directory: Existing directory of the files.

  Raises:
    errors.StorageError: If there is no room, in place of an error of the
      system or of TensorFlow.
    errors.DataError: In place of any other error of the system, or if
      TensorFlow may not write there.
  """
  try:
    yield
  except (OSError, tf.errors.PermissionDeniedError, *_NO_ROOM) as error:
    place = f"{os.fspath(directory)} cannot be written to"
    if not isinstance(error, _NO_ROOM) and not errors.is_no_room(error):
      cause = errors.first_line(error)
      raise errors.DataError(f"{place}: {cause}.") from error
    free = shutil.disk_usage(directory).free
    raise errors.StorageError(
      f"{place}: {free:,} bytes are free on its disk, unless a limit of file"
      " sizes is in the way."
    ) from error
