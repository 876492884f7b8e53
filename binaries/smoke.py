"""Flag `--smoke`: a small run on synthetic data in the same format.

`--flagfile=binaries/flagfiles/gld_fedemb.flags --smoke` reads the flagfile of
the same name in `flagfiles/smoke`, which includes the whole one and overrides
some of its flags; what stands behind it overrides both.
"""

from collections.abc import Sequence
import os
import re

from etils import epy

from binaries import flagfiles
from tasks import task_config
from tff_fedemb import checks
from tff_fedemb import errors

with epy.lazy_imports():
  from tasks.prepare import preparing
  from tasks.synthetic import registry as synthetic

_SMOKE = re.compile(r"--?smoke(=(true|t|1|yes|y))?", re.IGNORECASE)
_FLAGFILE = re.compile(r"(.*flagfiles/)(?:smoke/)?(\w+\.flags)")
_SEED = 1
# Users that make a data set which trains and is written in seconds.
_NUM_USERS = {"emnist": 200, "gld": 100, "inaturalist": 100, "digiface": 100}


def expand(arguments: Sequence[str]) -> list[str]:
  """Replaces flagfiles by small ones if `--smoke` is given.

  Args:
    arguments: Words of the command line, without the program's name.

  Returns:
    The words.

  Raises:
    errors.FieldError: If none of them is a flagfile that has a small one.
  """
  if not any(_SMOKE.fullmatch(word) for word in arguments):
    return list(arguments)
  expanded, is_small = [], False
  for word in arguments:
    found = _FLAGFILE.fullmatch(word)
    if found is not None:
      word = f"{found[1]}smoke/{found[2]}"
      is_small = flagfiles.find(word.rpartition("=")[2]) is not None
    expanded.append(word)
  if not is_small:
    raise errors.FieldError(
      "smoke",
      "be given with --flagfile=binaries/flagfiles/NAME.flags, NAME being a"
      f" benchmark ({', '.join(sorted(_NUM_USERS))}) and an algorithm, such as"
      " emnist_fedemb",
      " ".join(arguments),
    )
  return expanded


def prepare_data(task: str, cache_dir: str | None) -> str:
  """Writes the synthetic data of a task, unless they are there.

  Args:
    task: Name of the task.
    cache_dir: Cache that gets a folder for them [the default cache].

  Returns:
    The directory of the data, for `--data_dir`.

  Raises:
    errors.FieldError: If the task has none, or they cannot be written.
    errors.DataError: If the directory has data that were made differently.
  """
  checks.check_choice("task", task, _NUM_USERS)
  cache = task_config.TaskConfig(cache_dir=cache_dir).cache
  directory = os.fspath(cache / "smoke" / f"{task}_{_NUM_USERS[task]}_{_SEED}")
  try:
    synthetic.WRITERS[task](directory, num_users=_NUM_USERS[task], seed=_SEED)
  except errors.DataError as error:
    raise errors.DataError(f"{error} Remove {directory}.") from error
  except OSError as error:
    raise errors.FieldError(
      "cache_dir", "be a directory that can be written to", error
    ) from error
  if task != "digiface":
    return directory
  # They have the publishers' format, from which data are prepared.
  prepared = f"{directory}_prepared"
  config = preparing.PreparationConfig(
    task=task, source_dir=directory, output_dir=prepared
  )
  preparing.execute(config)
  return prepared
