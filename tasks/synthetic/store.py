"""What all generators share: arguments, files and contact sheets.

Files appear whole or not at all, and never over others: what was made with the
same arguments is kept, anything else is refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import dataclasses
import io
import os
import pathlib
import shutil
import sys
from typing import Any, TypeVar

from PIL import Image
import tqdm

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib

Path = str | os.PathLike[str]

# Less is not worth a word before the work starts.
_LARGE = 50_000_000

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(config.Config):
  """What every generator is told.

  Attributes:
    num_users: Number of users.
    seed: Seed of all randomness.
  """

  num_users: int = config.field(minimum=1)
  seed: int = config.field(0, minimum=0)

  def parameters(self, version: int) -> dict[str, Any]:
    """With which data are made, by a generator of this version."""
    return {"generator_version": version, **dataclasses.asdict(self)}


def progress(items: Collection[_T], *, desc: str, unit: str) -> Iterator[_T]:
  """The items, while a bar on standard error shows the time that is left.

  What takes less than five seconds shows none. A file or a pipe gets the bar
  too, but seldom: there it is not overwritten.
  """
  interval = 0.1 if sys.stderr.isatty() else 20.0
  yield from tqdm.tqdm(
    items, desc=desc, unit=unit, delay=5.0, mininterval=interval, smoothing=0.05
  )


def _in_words(parameters: Mapping[str, object]) -> str:
  return ", ".join(f"{key}={value}" for key, value in parameters.items())


def write_missing(
  output_dir: Path,
  wanted: Mapping[str, Mapping[str, object]],
  read_generator: Callable[[pathlib.Path], Mapping[str, object]],
  write: Callable[[pathlib.Path, Sequence[str]], None],
  *,
  num_bytes: int,
) -> list[str]:
  """Writes those of some files or folders that are not there yet.

  Args:
    output_dir: Their directory, created if missing.
    wanted: By name, the parameters with which each is made.
    read_generator: Returns the parameters with which one was made; nothing if
      it was not made here.
    write: Called with a directory and the names that are missing, and writes
      these into the directory. They get their places when all are complete.

  Returns:
    The paths of all.

  Raises:
    errors.DataError: If one is there, but made otherwise, or the disk has less
      than `num_bytes` left.
    OSError: If `output_dir` is a file, or cannot be created or written.
  """
  output_dir = pathlib.Path(output_dir)
  output_dir.mkdir(parents=True, exist_ok=True)
  paths = {name: output_dir / name for name in wanted}
  missing = [name for name, path in paths.items() if not path.exists()]
  for name, path in paths.items():
    if name in missing:
      continue
    found = read_generator(path)
    if found != wanted[name]:
      raise errors.DataError(
        f"{path} must be absent or made with {_in_words(wanted[name])}, found"
        f" {_in_words(found) or 'something from elsewhere'}; nothing was"
        " changed."
      )
    print(f"{path} is there already, made with the same parameters; kept")
  if missing:
    _check_space(output_dir, num_bytes)
  partial = output_dir / f".{os.getpid()}.partial"
  shutil.rmtree(partial, ignore_errors=True)
  try:
    if missing:
      partial.mkdir()
      write(partial, missing)
    for name in missing:
      os.replace(partial / name, paths[name])
      print(f"Wrote {paths[name]}")
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return [str(path) for path in paths.values()]


def _check_space(output_dir: pathlib.Path, num_bytes: int) -> None:
  """Says how much will be written where that is much; refuses too much."""
  if num_bytes < _LARGE:
    return
  free = shutil.disk_usage(output_dir).free
  wanted, left = map(progress_lib.format_bytes, (num_bytes, free))
  if num_bytes > free:
    raise errors.DataError(
      f"{output_dir} must have room for about {wanted}, found {left}; nothing"
      " was changed."
    )
  print(f"Writing about {wanted} to {output_dir}, which has {left} left")


def save_sheet(
  rows: Sequence[Sequence[bytes]], output_png: Path, *, side: int
) -> None:
  """Draws rows of encoded images, of at most `side` pixels, to a picture."""
  cell = side + 2
  width = max(len(row) for row in rows) * cell
  sheet = Image.new("RGB", (width, len(rows) * cell), "white")
  for top, row in enumerate(rows):
    for left, content in enumerate(row):
      image = Image.open(io.BytesIO(content)).convert("RGB")
      image.thumbnail((side, side), Image.Resampling.LANCZOS)
      x, y = ((cell - length) // 2 for length in image.size)
      sheet.paste(image, (left * cell + x, top * cell + y))
  # A palette makes the file less than half as large; only a palette that is
  # given is dithered.
  sheet.quantize(palette=sheet.quantize(256)).save(output_png, optimize=True)
