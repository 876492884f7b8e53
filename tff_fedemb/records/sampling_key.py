"""The key that decides who takes part in which round of a run.

The operating system draws its 128 bits, once for each run. The key is in a file
beside the checkpoints, readable by its owner alone, and nowhere else:
amplification by sampling holds only against those who cannot read it.
"""

import os
import pathlib
import secrets

from tff_fedemb import errors
from tff_fedemb.participation import participation
from tff_fedemb.records import run_directory

NAME = "sampling_key"

_BITS = 8 * participation.KEY_BYTES


def read(directory: str | os.PathLike[str]) -> int | None:
  """Reads the key of a run.

  Args:
    directory: Directory of its checkpoints.

  Returns:
    The key, in [0, 2 ** 128); `None` if the run has none.

  Raises:
    errors.FieldError: If the file cannot be read as a key.
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
      # The text is a secret, so the message does not show it.
      f"{path} that cannot be read as one ({type(error).__name__})",
    ) from None


def read_or_create(directory: str | os.PathLike[str], *, is_new: bool) -> int:
  """Reads the key of a run, or draws one for a new run.

  Args:
    directory: Directory of its checkpoints; made for its owner alone if it does
      not exist.
    is_new: Whether no round of the run has begun.

  Returns:
    The key, in [0, 2 ** 128).

  Raises:
    errors.FieldError: As `read`, or if rounds have begun and their key is lost.
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
  # The key must be on the disk before users are drawn: if it were lost, for
  # example with the power, nobody could draw them again.
  run_directory.write_private(path, f"{key:0{_BITS // 4}x}\n")
  return key
