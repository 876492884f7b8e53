"""The key that decides who takes part in which round of a run.

128 bits from the operating system, drawn once for each run, in a file that is
its owner's alone, beside the checkpoints: amplification by sampling holds for
those who cannot read it. It is written nowhere else.
"""

import os
import pathlib
import secrets

from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.participation import participation
from tff_fedemb.records import run_directory

NAME = "sampling_key"

_BITS = 8 * participation.KEY_BYTES


def read(directory: str | os.PathLike[str]) -> int | None:
  """Reads the key of a run, `None` if there is none.

  Args:
    directory: Directory of its checkpoints.

  Raises:
    errors.FieldError: If the file holds something else.
  """
  path = pathlib.Path(directory) / NAME
  try:
    text = path.read_text(encoding="ascii").strip()
    if len(text) != _BITS // 4:
      raise ValueError(f"{len(text)} characters")
    return int(text, 16)
  except FileNotFoundError:
    return None
  except (OSError, ValueError) as error:
    raise errors.FieldError(
      "run_dir",
      f"hold a sampling key of {_BITS // 4} hexadecimal digits",
      # The text itself is a secret.
      f"{path} that cannot be read as one ({type(error).__name__})",
    ) from None


def read_or_create(directory: str | os.PathLike[str], *, is_new: bool) -> int:
  """Reads the key of a run, or draws it for a new one.

  Args:
    directory: Directory of its checkpoints; made, for its owner alone, if need
      be.
    is_new: Whether no round of the run has begun.

  Raises:
    errors.FieldError: As `read`, or if there is none and rounds have begun.
  """
  path = pathlib.Path(directory) / NAME
  run_directory.make_private(path.parent)
  key = read(directory)
  if key is not None:
    return key
  if not is_new:
    raise errors.FieldError(
      "run_dir",
      f"hold the key {path} from which the users of its rounds were drawn",
      "none",
      "Take another directory to start again.",
    )
  key = secrets.randbits(_BITS)
  # Users drawn from a key that a loss of power forgets cannot be drawn again.
  with whole_files.replacing(path) as partial:
    partial.touch(mode=0o600)
    partial.write_text(f"{key:0{_BITS // 4}x}\n", encoding="ascii")
  return key
