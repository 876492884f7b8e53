"""What `--smoke` stands for: a small run on synthetic data in the same format.

`--flagfile=binaries/flagfiles/gld_fedemb.flags --smoke` is followed by the
flags in `flagfiles/smoke/gld.flags` and `flagfiles/smoke/gld_fedemb.flags`;
flags that come after both on the command line override them.
"""

from collections.abc import Sequence
import os
import pathlib
import re

from tasks import task as task_lib
from tasks.synthetic import registry as synthetic

_FLAGFILES = pathlib.Path(__file__).parent / "flagfiles"
_SMOKE = re.compile(r"--?smoke(=(true|t|1|yes|y))?$", re.IGNORECASE)
_SEED = 1
# Users that make a data set which trains and is written in seconds.
_NUM_USERS = {"emnist": 200, "gld": 100, "inaturalist": 100, "digiface": 100}


def expand(arguments: Sequence[str]) -> list[str]:
  """Puts the flags that `--smoke` stands for behind it.

  Args:
    arguments: Of the command line, without the program's name.

  Returns:
    The arguments, the same if `--smoke` is not among them.

  Raises:
    ValueError: If there is no flagfile of ours before or after it.
  """
  places = [i for i, word in enumerate(arguments) if _SMOKE.match(word)]
  if not places:
    return list(arguments)
  stem = None
  for i, word in enumerate(arguments):
    name, _, value = word.partition("=")
    if name.lstrip("-") == "flagfile":
      if not value:
        i, value = i + 1, (*arguments, "")[i + 1]
      places.append(i)
      stem = pathlib.Path(value).stem
  known = sorted(path.stem for path in (_FLAGFILES / "smoke").glob("*_*.flags"))
  if stem not in known:
    raise ValueError(
        "smoke must be given with --flagfile=binaries/flagfiles/NAME.flags,"
        f" NAME being one of {', '.join(known)}, found {stem}."
    )
  last = max(places) + 1
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
    ValueError: If there are none for that task.
  """
  if task not in _NUM_USERS:
    raise ValueError(
        f"task must be one of {sorted(_NUM_USERS)} with --smoke, found"
        f" {task!r}."
    )
  directory = os.path.join(
      cache_dir or task_lib.default_cache_dir(), "smoke", task
  )
  try:
    synthetic.WRITERS[task](
        directory, num_users=_NUM_USERS[task], seed=_SEED
    )
  except OSError as error:
    raise ValueError(
        f"cache_dir must be a directory that can be written to, found: {error}."
    ) from error
  return directory
