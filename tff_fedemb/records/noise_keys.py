"""Keys that correlated noise goes on with, by the round that they are for.

Correlated noise is a function of a key in the checkpoint. Two copies of a run's
directory would go on with the same noise, and what they release on other data
would differ by the data alone. So the first round of a program that no line of
the chain tells of gets 128 bits of the operating system mixed into the key.
They are on the disk before the round runs: once the chain has the round, it can
run again with the noise that it had. A copy that was made before has not got
them, and one that was made afterwards has to come to what the chain says.
"""

import json
import os
import pathlib

from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.mechanisms import secret_noise

NAME = "noise_keys"


class NoiseKeys:
  """Keys in a file beside the checkpoints, which is its owner's alone."""

  def __init__(self, directory: str | os.PathLike[str]):
    """Reads the keys, if there are any.

    Args:
      directory: Directory of the run's checkpoints.

    Raises:
      errors.FieldError: If the file holds something else.
    """
    self._path = pathlib.Path(directory) / NAME
    # The last that was drawn here.
    self._drawn: int | None = None
    try:
      text = self._path.read_text(encoding="ascii")
      found = {}
      for number, key in json.loads(text).items():
        found[int(number)] = list(map(int, key))
      if any(len(key) != 2 for key in found.values()):
        raise ValueError("a key of another length")
    except FileNotFoundError:
      found = {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
      raise errors.FieldError(
        "run_dir",
        "hold the keys of its noise",
        # The text itself is a secret.
        f"{self._path} that cannot be read ({type(error).__name__})",
      ) from None
    self._keys: dict[int, list[int]] = found

  def for_round(self, number: int, *, has_run: bool) -> list[int] | None:
    """Returns the key to mix in before a round, None if it has all it needs.

    Args:
      number: Number of the round, from 1.
      has_run: Whether the chain has it; it is to have the same noise then.
    """
    if has_run:
      return self._keys.get(number)
    if self._drawn is not None and self._drawn < number:
      # The state has what was mixed in then.
      return None
    # Later keys belong to rounds that were never released.
    kept = {n: key for n, key in self._keys.items() if n < number}
    self._keys = kept | {number: secret_noise.draw_key()}
    with whole_files.replacing(self._path) as partial:
      partial.touch(mode=0o600)
      partial.write_text(json.dumps(self._keys) + "\n", encoding="ascii")
    self._drawn = number
    return self._keys[number]
