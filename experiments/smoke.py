"""What `--smoke` stands for: a small run on synthetic data in the same format.

`--flagfile=binaries/flagfiles/gld_fedemb.flags --smoke` is followed by the
flags in `flagfiles/smoke/gld.flags` and `flagfiles/smoke/gld_fedemb.flags`:
they come right behind the flagfile, so that flags behind that override them.
"""

from collections.abc import Sequence
import os
import pathlib
import re

from tasks import task as task_lib
from tasks.synthetic import registry as synthetic
from tff_fedemb import errors

_FLAGFILES = pathlib.Path(__file__).parents[1] / "binaries" / "flagfiles"
_SMOKE = re.compile(r"--?smoke(=(true|t|1|yes|y))?$", re.IGNORECASE)
_SEED = 1
# Users that make a data set which trains and is written in seconds.
_NUM_USERS = {"emnist": 200, "gld": 100, "inaturalist": 100, "digiface": 100}


def is_among(arguments: Sequence[str]) -> bool:
  """Whether `--smoke` is."""
  return any(_SMOKE.match(word) for word in arguments)


def expand(arguments: Sequence[str]) -> list[str]:
  """Puts the flags that `--smoke` stands for behind the flagfile.

  Args:
    arguments: Of the command line, without the program's name.

  Returns:
    The arguments, the same if `--smoke` is not among them.

  Raises:
    ValueError: If there is no flagfile of ours.
  """
  if not is_among(arguments):
    return list(arguments)
  last, stem = 0, None
  for i, word in enumerate(arguments):
    name, _, value = word.partition("=")
    if name.lstrip("-") == "flagfile":
      if not value:
        i, value = i + 1, (*arguments, "")[i + 1]
      last = i + 1
      stem = pathlib.Path(value).stem
  known = sorted(path.stem for path in (_FLAGFILES / "smoke").glob("*_*.flags"))
  if stem not in known:
    raise ValueError(
      "smoke must be given with --flagfile=binaries/flagfiles/NAME.flags,"
      f" NAME being one of {', '.join(known)}, found {stem}."
    )
  inserted = [
    f"--flagfile={_FLAGFILES / 'smoke' / name}.flags"
    for name in (stem.partition("_")[0], stem)
  ]
  return [*arguments[:last], *inserted, *arguments[last:]]


def prepare_data(task: str, cache_dir: str | None) -> str:
  """Writes the synthetic data of a task, unless they are there.

  Args:
    task: Name of the task.
    cache_dir: Where to keep them, or `None` for the default.

  Returns:
    The directory.

  Raises:
    ValueError: If there are none for that task, or they cannot be written.
    errors.DataError: If there are data that were made otherwise.
  """
  if task not in _NUM_USERS:
    raise ValueError(
      f"task must be one of {sorted(_NUM_USERS)} with --smoke, found {task!r}."
    )
  directory = os.path.join(
    cache_dir or task_lib.default_cache_dir(),
    "smoke",
    f"{task}_{_NUM_USERS[task]}_{_SEED}",
  )
  try:
    synthetic.WRITERS[task](directory, num_users=_NUM_USERS[task], seed=_SEED)
  except errors.DataError as error:
    raise errors.DataError(f"{error} Remove {directory}.") from error
  except OSError as error:
    raise ValueError(
      f"cache_dir must be a directory that can be written to, found: {error}."
    ) from error
  return directory
