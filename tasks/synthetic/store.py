"""What generators do with files: whole or not at all, and never over others.

What was made with the same arguments is kept; anything else is refused.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import io
import os
import pathlib
import shutil

from PIL import Image

from tff_fedemb import errors


def create_dir(path: str | os.PathLike[str]) -> pathlib.Path:
  """Creates a directory if it is missing, and returns its path.

  Raises:
    OSError: If it cannot be created, or is a file.
  """
  path = pathlib.Path(path)
  if path.exists() and not path.is_dir():
    raise NotADirectoryError(f"output_dir must be a directory: {path}")
  path.mkdir(parents=True, exist_ok=True)
  return path


def is_made(
  path: pathlib.Path, wanted: Mapping[str, object], found: Mapping[str, object]
) -> bool:
  """Whether a file or folder is there, made as wanted.

  Args:
    path: Of the file or folder.
    wanted: The parameters with which it would be made.
    found: What it says about its making; nothing if it was not made here.

  Raises:
    errors.DataError: If it is there, but made otherwise.
  """
  if not path.exists():
    return False
  if found != wanted:
    expected, actual = (
      ", ".join(f"{key}={value}" for key, value in parameters.items())
      for parameters in (wanted, found)
    )
    raise errors.DataError(
      f"{path} must be absent or made with {expected}, found"
      f" {actual or 'something from elsewhere'}; nothing was changed."
    )
  print(f"{path} is there already, made with the same parameters; kept")
  return True


@contextlib.contextmanager
def partial_dir(output_dir: pathlib.Path) -> Iterator[pathlib.Path]:
  """A directory for what is not complete, within another; gone in the end."""
  path = output_dir / f".{os.getpid()}.partial"
  shutil.rmtree(path, ignore_errors=True)
  try:
    path.mkdir()
    yield path
  finally:
    shutil.rmtree(path, ignore_errors=True)


def move(path: pathlib.Path, to: pathlib.Path) -> None:
  """Gives what is complete its name, and says so."""
  os.replace(path, to)
  print(f"Wrote {to}")


def save_sheet(
  rows: Sequence[Sequence[bytes]],
  output_png: str | os.PathLike[str],
  *,
  side: int,
) -> None:
  """Draws a contact sheet.

  Args:
    rows: Encoded images of each row.
    output_png: Where to write the picture.
    side: Pixels of an image in the picture, at most.
  """
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
