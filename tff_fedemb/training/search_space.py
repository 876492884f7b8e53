"""The flags of a tuning's trials: those of all, and those that are drawn.

The latter come from a search space, a JSON object from names of flags to what
their values are drawn from:

  {"client_learning_rate": {"log_uniform": [0.01, 0.3]},
   "server_momentum": {"uniform": [0.8, 0.95]},
   "batch_size": {"values": [16, 32]}}
"""

from collections.abc import Mapping, Sequence
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
from typing import Any
import xml.etree.ElementTree

from absl import flags
import numpy as np

from tff_fedemb import errors

KINDS = ("values", "uniform", "log_uniform")

# Flags that decide a trial's model and nothing else. The others say what it
# costs, on whom, what it releases, how it is run or how it is judged.
SEARCHABLE_FLAGS = frozenset(
  {
    "augmentation",
    "backbone",
    "batch_size",
    "client_learning_rate",
    "client_lr_schedule",
    "client_momentum",
    "client_optimizer",
    "clip_learning_rate",
    "clip_norm",
    "embedding_dim",
    "head",
    "head_imprint_steps",
    "head_initial_scale",
    "head_learned_scale",
    "head_lr_scale",
    "head_margin",
    "head_scale",
    "head_warmup_steps",
    "local_epochs",
    "max_examples_per_client",
    "server_learning_rate",
    "server_momentum",
    "server_optimizer",
    "target_unclipped_quantile",
    "trainable",
    "turned_classes",
  }
)

# Types of Python that absl's types of flags take.
_TYPES = {"bool": (bool,), "float": (int, float), "int": (int,)}


# Independent distributions: from the name of a flag to the kind of its own, one
# of `KINDS`, and its values or bounds.
SearchSpace = Mapping[str, tuple[str, tuple[Any, ...]]]


def draw(space: SearchSpace, generator: np.random.Generator) -> dict[str, Any]:
  """Draws a value of each flag."""
  drawn = {}
  # Whatever the order in the file, the same seed draws the same values.
  for name, (kind, values) in sorted(space.items()):
    if kind == "values":
      drawn[name] = values[generator.integers(len(values))]
    elif kind == "uniform":
      drawn[name] = float(generator.uniform(*values))
    else:
      low, high = map(math.log, values)
      drawn[name] = math.exp(generator.uniform(low, high))
  return drawn


def read(
  path: str | os.PathLike[str], flag_types: Mapping[str, str]
) -> SearchSpace:
  """Reads a search space, a JSON file in the format above.

  The trials' flags are given with absl's name of their type.

  Raises:
    errors.FieldError: If it has another format, names a flag that does not
      exist or may not be searched, or has values that the flag does not take.
  """
  try:
    text = pathlib.Path(path).read_text()
    space = json.loads(text, object_pairs_hook=_unique)
  except errors.FieldError:
    raise
  except (OSError, ValueError) as error:
    raise _error("be a JSON file", error) from error
  if not isinstance(space, dict) or not space:
    raise _error(
      "be an object of flags and what to draw their values from", repr(space)
    )
  return {
    name: _check_choice(name, choice, flag_types)
    for name, choice in space.items()
  }


def _error(requirement: str, found: object) -> errors.FieldError:
  return errors.FieldError("search_space", requirement, found)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
  names = [name for name, _ in pairs]
  for name in names:
    if names.count(name) > 1:
      raise _error(f"have {name!r} once", "it twice")
  return dict(pairs)


def _check_choice(
  name: str, choice: Any, flag_types: Mapping[str, str]
) -> tuple[str, tuple[Any, ...]]:
  if name not in flag_types:
    raise _error("hold flags of the trials", repr(name))
  if name not in SEARCHABLE_FLAGS:
    raise _error(
      f"not hold {name}: all trials must have the same data, privacy cost and"
      " evaluation, and a sampling of their own",
      name,
    )
  if (
    not isinstance(choice, dict)
    or len(choice) != 1
    or not set(choice) <= set(KINDS)
  ):
    raise _error(f"have one of {', '.join(KINDS)} for {name}", repr(choice))
  [(kind, values)] = choice.items()
  expected = flag_types[name]
  if kind == "values":
    if not isinstance(values, list) or not values:
      raise _error(f"have a list of values for {name}", repr(values))
    for value in values:
      if not _is_of_type(value, expected):
        raise _error(f"have values of type {expected} for {name}", repr(value))
    return kind, tuple(values)
  if expected != "float":
    raise _error(
      f"have a list of values for {name}, a flag of type {expected}", kind
    )
  low = 0.0 if kind == "log_uniform" else -math.inf
  if (
    not isinstance(values, list)
    or len(values) != 2
    or not all(_is_of_type(value, expected) for value in values)
    or not low < values[0] < values[1]
  ):
    positive = " positive" if kind == "log_uniform" else ""
    raise _error(
      f"have two{positive} finite numbers in ascending order as {kind} bounds"
      f" of {name}",
      repr(values),
    )
  return kind, tuple(map(float, values))


def _is_of_type(value: Any, expected: str) -> bool:
  types = _TYPES.get(expected, (str,))
  if isinstance(value, bool) and bool not in types:
    return False
  return isinstance(value, types) and (
    not isinstance(value, float) or math.isfinite(value)
  )


def read_flag_types(
  command: Sequence[str], words: Sequence[str]
) -> dict[str, str]:
  """Asks a program for absl's types of its flags.

  Args:
    command: What starts the program.
    words: Flags of the trials, among them those that choose a part of one's
      own, whose fields are flags as well.
  """
  own = [word for word in words if re.fullmatch(r"--?\w+=[\w.]+:\w+", word)]
  names = [word.strip("-").partition("=")[0] for word in own]
  text = subprocess.run(
    [*command, *own, f"--undefok={','.join(names)}", "--helpxml"],
    stdout=subprocess.PIPE,
    check=False,
  ).stdout
  return {
    flag.findtext("name"): flag.findtext("type")
    for flag in xml.etree.ElementTree.fromstring(text).iter("flag")
    if flag.findtext("key") == "yes"
  }


def read_trial_flags(flagfile: str | None, text: str) -> tuple[str, ...]:
  """Reads the flags of all trials, those of a file first.

  The text has further flags, as in a shell.

  Raises:
    errors.FieldError: If one cannot be read.
  """
  words = []
  try:
    if flagfile:
      words = flags.FLAGS.read_flags_from_files([f"--flagfile={flagfile}"])
    return (*words, *shlex.split(text))
  except flags.Error as error:
    raise errors.FieldError(
      "trial_flagfile", "be a file of flags", error
    ) from error
  except ValueError as error:
    raise errors.FieldError(
      "trial_flags", "be flags as in a shell", error
    ) from error


def check_trial_flags(
  words: Sequence[str], flag_types: Mapping[str, str]
) -> None:
  """Refuses words that are no flags of a trial.

  Args:
    words: As `read_trial_flags` returns them.
    flag_types: As `read_flag_types`.

  Raises:
    errors.FieldError: If one is none.
  """
  for word in words:
    name, equals, _ = word.removeprefix("-").removeprefix("-").partition("=")
    known = name in flag_types and (equals or flag_types[name] == "bool")
    negated = flag_types.get(name.removeprefix("no")) == "bool" and not equals
    if not word.startswith("-") or not (known or negated):
      raise errors.FieldError(
        "trial_flags", "be flags of the trials (--name=value)", repr(word)
      )
    if name == "dry_run":
      raise errors.FieldError(
        "trial_flags", "have trials that train", repr(word)
      )
