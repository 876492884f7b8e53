"""Fresh keys for correlated noise, by the round from which they are used.

Correlated noise is a function of a key in the checkpoint. Two copies of a run's
directory would go on with the same noise: on different data, their releases
would differ by the data alone. So each program mixes 128 bits of the operating
system into the key before the first round that the chain does not have.

The bits are on the disk before the round runs, so a round that the chain has
can run again with the same noise. A copy made before that lacks them and draws
others. A copy made later has to come to the model that the chain records.
"""

import json
import os
import pathlib

from tff_fedemb import errors
from tff_fedemb.mechanisms import secret_noise
from tff_fedemb.records import run_directory

NAME = "noise_keys"


class NoiseKeys:
  """Keys in a file beside the checkpoints, readable by its owner alone."""

  def __init__(self, directory: str | os.PathLike[str]):
    """Reads the keys, if there are any.

    Args:
      directory: Directory of the run's checkpoints.

    Raises:
      errors.FieldError: If the file cannot be read as keys.
    """
    self._path = pathlib.Path(directory) / NAME
    # Round of the last key that this program drew.
    self._drawn: int | None = None
    self._keys: dict[int, list[int]] = {}
    try:
      text = self._path.read_text(encoding="ascii")
      for number, key in json.loads(text).items():
        first, second = key
        self._keys[int(number)] = [int(first), int(second)]
    except FileNotFoundError:
      # No round of the run has begun.
      pass
    except (OSError, ValueError, TypeError, AttributeError) as error:
      raise errors.FieldError(
        "run_dir",
        "hold the keys of its noise",
        # The text is a secret, so the message does not show it.
        f"{self._path} that cannot be read ({type(error).__name__})",
      ) from None

  def for_round(self, number: int, *, has_run: bool) -> list[int] | None:
    """Returns the key to mix into the state before a round.

    A key drawn here is on the disk before this returns. A program draws one
    key, for the first round that the chain does not have, and forgets the keys
    of later rounds, which were never released.

    Args:
      number: Number of the round, from 1.
      has_run: Whether the chain has the round, so that it needs the noise that
        it had.

    Returns:
      Two numbers of 64 bits; `None` if nothing is to be mixed in.
    """
    if has_run:
      return self._keys.get(number)
    if self._drawn is not None and self._drawn < number:
      # The key that this program drew is in the state already.
      return None
    # Later keys belong to rounds that were never released.
    for later in [n for n in self._keys if n > number]:
      del self._keys[later]
    key = secret_noise.draw_key()
    self._keys[number] = key
    run_directory.write_private(self._path, json.dumps(self._keys) + "\n")
    self._drawn = number
    return key
