"""Writes the folders of all generators, whole or not at all.

A hidden file in a folder says how it was made. A folder that was made with the
same arguments is kept; anything else is refused.
"""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import json
import os
import pathlib
import shutil

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.data import tfrecord_files

Path = str | os.PathLike[str]

# Hidden, so that a listing of users' folders has nothing else.
_TOLD = ".generator.json"
# Raise this when the same arguments give other data.
_VERSION = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(config.Config):
  """Arguments of every generator.

  Attributes:
    num_users: Number of users.
    seed: Seed of all randomness.
  """

  num_users: int = config.field(minimum=1)
  seed: int = config.field(0, minimum=0)


def show_progress(num_users: int) -> Iterator[int]:
  """Yields the numbers of the users; a bar on a terminal shows what is left.

  Args:
    num_users: Number of users.

  Yields:
    0, 1, ... num_users - 1.
  """
  yield from progress.create_bar(
    "Drawing", unit="users", items=range(num_users)
  )


def _in_words(parameters: Mapping[str, object]) -> str:
  """Lists parameters for an error."""
  return ", ".join(f"{key}={value}" for key, value in parameters.items())


def write_data(
  output_dir: Path,
  given: Config,
  write: Callable[[pathlib.Path], object],
  *,
  name: str,
) -> pathlib.Path:
  """Writes a folder, whole or not at all, unless it is there already.

  Args:
    output_dir: The folder: absent, empty, or made with the same arguments.
    given: Arguments of the generator.
    write: Writes the data into the folder that it is called with.
    name: Name of the data.

  Returns:
    The path of the folder.

  Raises:
    errors.DataError: If the folder holds anything else.
    OSError: If the folder is a file, or cannot be written.
  """
  folder = pathlib.Path(output_dir).resolve()
  parameters: dict[str, object] = {"name": name, "generator_version": _VERSION}
  parameters |= dataclasses.asdict(given)
  folder.mkdir(parents=True, exist_ok=True)
  if any(folder.iterdir()):
    found = tfrecord_files.read_json(folder / _TOLD)
    if found != parameters:
      raise errors.DataError(
        f"{output_dir} must be empty or made with {_in_words(parameters)},"
        f" found {_in_words(found) or 'something from elsewhere'}."
      )
    print(f"{output_dir} is there already, made with the same arguments; kept")
    return folder
  partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
  try:
    partial.mkdir()
    write(partial)
    (partial / _TOLD).write_text(json.dumps(parameters))
    # This replaces an empty folder.
    partial.replace(folder)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  print(f"Wrote {output_dir}")
  return folder
