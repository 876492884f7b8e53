"""Reading and writing the files of a run, by TFF's managers and otherwise."""

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


def wait_for(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
  """Returns the result of what a manager of TFF's does.

  It runs in a thread of its own: in a notebook or an asynchronous program this
  one has an event loop that runs, beside which there can be no other.

  Args:
    coroutine: A coroutine that has not begun.
  """
  with futures.ThreadPoolExecutor(max_workers=1) as thread:
    return thread.submit(asyncio.run, coroutine).result()


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
