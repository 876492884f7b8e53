"""Distributions of hyperparameters, from which a tuning draws its trials.

A search space is a JSON object, from fields of a run (by the names of their
flags, or as paths such as `algorithm.local.learning_rate`) to what their values
are drawn from:

  {"client_learning_rate": {"log_uniform": [0.01, 0.3]},
   "server_momentum": {"uniform": [0.8, 0.95]},
   "batch_size": {"values": [16, 32]}}
"""

from collections.abc import Iterator, Mapping, Sequence
import json
import math
import os
import pathlib
from typing import Any

import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.run import spec as spec_lib

KINDS = ("values", "uniform", "log_uniform")

# Independent distributions: from the name of a field to the kind of its own,
# one of `KINDS`, and its values or bounds.
SearchSpace = Mapping[str, tuple[str, tuple[Any, ...]]]


def draw(space: SearchSpace, generator: np.random.Generator) -> dict[str, Any]:
  """Draws a value of each field."""
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


def _fields(
  spec: spec_lib.RunSpec,
) -> Iterator[tuple[tuple[str, ...], config_lib.FieldSpec]]:
  return ((path, field) for path, field, _ in config_lib.walk(spec))


def _is_called(
  name: str, path: tuple[str, ...], field: config_lib.FieldSpec
) -> bool:
  return name in (field.flag, ".".join(path))


def apply(
  spec: spec_lib.RunSpec, values: Mapping[str, Any]
) -> spec_lib.RunSpec:
  """Returns a spec with other values of some fields.

  Args:
    spec: The spec.
    values: By the names of fields. Classes of parts are set before the fields
      that only they have.

  Raises:
    errors.FieldError: If the spec has no such field, or a value is out of its
      range.
  """
  waiting = dict(values)
  while waiting:
    found = {
      name: (path, field)
      for path, field in _fields(spec)
      for name in waiting
      if _is_called(name, path, field)
    }
    if not found:
      name, value = next(iter(waiting.items()))
      raise errors.FieldError(name, "be a field of the run", repr(value))
    parts = [name for name, (_, field) in found.items() if field.registry]
    name = parts[0] if parts else next(iter(found))
    spec = config_lib.replace(spec, found[name][0], waiting.pop(name))
  return spec


def read(path: str | os.PathLike[str], spec: spec_lib.RunSpec) -> SearchSpace:
  """Reads a search space, a JSON file in the format above.

  Args:
    path: The file.
    spec: Of the trials, but for what is drawn.

  Raises:
    errors.FieldError: If it has another format, names a field that does not
      exist or may not be searched, or has values that the field does not take.
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
      "be an object of fields and what to draw their values from", repr(space)
    )
  return {
    name: _check_choice(_find(name, space, spec), name, choice)
    for name, choice in space.items()
  }


def _find(
  name: str, space: Mapping[str, Any], spec: spec_lib.RunSpec
) -> config_lib.FieldSpec:
  """A field of the trials, also of a class that only some trials choose."""
  specs = [spec]
  for path, field in _fields(spec):
    if field.registry is not None and field.flag in space:
      specs += [config_lib.replace(spec, path, kind) for kind in field.registry]
  for each in specs:
    for path, field in _fields(each):
      if _is_called(name, path, field):
        if not field.searchable:
          raise _error(
            f"not hold {name}: all trials must have the same data, privacy cost"
            " and evaluation, and a sampling of their own",
            name,
          )
        return field
  raise _error("hold fields of the trials", repr(name))


def _error(requirement: str, found: object) -> errors.FieldError:
  return errors.FieldError("search_space", requirement, found)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
  names = [name for name, _ in pairs]
  for name in names:
    if names.count(name) > 1:
      raise _error(f"have {name!r} once", "it twice")
  return dict(pairs)


def _check_choice(
  field: config_lib.FieldSpec, name: str, choice: Any
) -> tuple[str, tuple[Any, ...]]:
  if (
    not isinstance(choice, dict)
    or len(choice) != 1
    or not set(choice) <= set(KINDS)
  ):
    raise _error(f"have one of {', '.join(KINDS)} for {name}", repr(choice))
  [(kind, values)] = choice.items()
  type_name = "str" if field.registry else field.type.__name__
  if kind == "values":
    if not isinstance(values, list) or not values:
      raise _error(f"have a list of values for {name}", repr(values))
    return kind, tuple(_check_value(field, name, value) for value in values)
  if type_name != "float":
    raise _error(
      f"have a list of values for {name}, a field of type {type_name}", kind
    )
  low = 0.0 if kind == "log_uniform" else -math.inf
  if (
    not isinstance(values, list)
    or len(values) != 2
    or not all(isinstance(x, int | float) and math.isfinite(x) for x in values)
    or not low < values[0] < values[1]
  ):
    positive = " positive" if kind == "log_uniform" else ""
    raise _error(
      f"have two{positive} finite numbers in ascending order as {kind} bounds"
      f" of {name}",
      repr(values),
    )
  return kind, tuple(map(float, values))


def _check_value(field: config_lib.FieldSpec, name: str, value: Any) -> Any:
  """A value that a field can have, whatever its range."""
  if field.registry is not None:
    is_right = value in field.registry
  elif field.type is float:
    is_right = isinstance(value, int | float) and math.isfinite(value)
  else:
    is_right = isinstance(value, field.type)
  if not is_right or (isinstance(value, bool) and field.type is not bool):
    kind = "str" if field.registry else field.type.__name__
    raise _error(f"have values of type {kind} for {name}", repr(value))
  return value
