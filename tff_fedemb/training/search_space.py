"""Distributions of hyperparameters, from which a tuning draws its trials.

A search space is a JSON object, from fields of a run (by the names of their
flags) to what their values are drawn from:

  {"client_learning_rate": {"log_uniform": [0.01, 0.3]},
   "server_momentum": {"uniform": [0.8, 0.95]},
   "batch_size": {"values": [16, 32]}}
"""

from collections.abc import Mapping, Sequence
import json
import math
import os
import pathlib
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.spec import spec as spec_lib

KINDS = ("values", "uniform", "log_uniform")

# Independent distributions. Maps the name of a field to the kind of its
# distribution, one of `KINDS`, and to its values or bounds.
SearchSpace = Mapping[str, tuple[str, tuple[Any, ...]]]


def draw(space: SearchSpace, generator: np.random.Generator) -> dict[str, Any]:
  """Draws a value of each field.

  Args:
    space: Distributions of the fields, as `read` returns them.
    generator: Generator that every value is drawn from.

  Returns:
    Values by the name of the field; the same seed draws the same ones, whatever
    the order of the space.
  """
  drawn = {}
  for name, (kind, values) in sorted(space.items()):
    if kind == "values":
      drawn[name] = values[generator.integers(len(values))]
    elif kind == "uniform":
      drawn[name] = float(generator.uniform(*values))
    else:
      low, high = map(math.log, values)
      drawn[name] = math.exp(generator.uniform(low, high))
  return drawn


def apply(
  spec: spec_lib.RunSpec, values: Mapping[str, Any]
) -> spec_lib.RunSpec:
  """Returns a spec with other values of some fields.

  Args:
    spec: The spec.
    values: Values by field name; a field may be of a class that is itself among
      the values.

  Returns:
    The new spec, checked as when it is made.

  Raises:
    errors.FieldError: If the spec has no such field, or a value is out of its
      range.
  """
  fields = _find_fields(spec, {name: [value] for name, value in values.items()})
  changes = {}
  for name, value in values.items():
    if name not in fields:
      raise errors.FieldError(name, "be a field of the run", repr(value))
    path, _ = fields[name]
    changes[path] = value
  return config_lib.replace(spec, changes)


def read(path: str | os.PathLike[str], spec: spec_lib.RunSpec) -> SearchSpace:
  """Reads a search space, a JSON file in the format above.

  Args:
    path: The file.
    spec: Spec of the trials, but for what is drawn.

  Returns:
    The distributions, their values and bounds checked.

  Raises:
    errors.FieldError: If it has another format, names a field that does not
      exist or may not be searched, or has values that the field does not take;
      if the trials would train on pooled data.
  """
  spec.check_private()
  try:
    space = json.loads(pathlib.Path(path).read_text())
  except (OSError, ValueError) as error:
    raise _error("be a JSON file", error) from error
  if not isinstance(space, dict) or not space:
    raise _error(
      "be an object of fields and what to draw their values from", repr(space)
    )
  fields = _find_fields(spec, {name: _listed(x) for name, x in space.items()})
  checked = {}
  for name, choice in space.items():
    if name not in fields:
      raise _error("hold fields of the trials", repr(name))
    names, field = fields[name]
    if not field.searchable:
      raise _error(
        f"not hold {name}: all trials must have the same data, privacy cost"
        " and evaluation, and a sampling of their own",
        name,
      )
    _check_cost(name, names, spec)
    checked[name] = _check_choice(field, name, choice)
  return checked


def _check_cost(name: str, path: Sequence[str], spec: spec_lib.RunSpec) -> None:
  """Refuses a search that would give trials costs of their own.

  Correlated noise that is made for the server's momentum has another matrix,
  and so another sensitivity, for each momentum.

  Args:
    name: Flag of the searched field.
    path: Names that lead to the field in the spec.
    spec: Spec of the trials, but for what is drawn.

  Raises:
    errors.FieldError: If the field decides the matrix.
  """
  decides = path[-1] == "momentum" or path == ("server_optimizer",)
  of_server = path[0] == "server_optimizer" and decides
  is_made_for_it = (
    spec.check_private().mechanism.follows_workload
    and spec.noise_objective != strategy_lib.OF_PREFIX_SUMS
  )
  if of_server and is_made_for_it:
    raise _error(
      f"not hold {name} with noise that is made for the server's momentum: all"
      " trials must have the same privacy cost; noise_objective"
      f" {strategy_lib.OF_PREFIX_SUMS} is for any momentum",
      name,
    )


def _listed(choice: Any) -> Sequence[Any]:
  """Returns the list of values of a choice; an empty one for other kinds.

  Args:
    choice: JSON value of a field, not checked yet.
  """
  values = choice.get("values") if isinstance(choice, dict) else None
  return values if isinstance(values, list) else []


def _find_fields(
  spec: spec_lib.RunSpec, classes: Mapping[str, Sequence[Any]]
) -> dict[str, tuple[tuple[str, ...], config_lib.FieldSpec]]:
  """The fields that trials may have, with their paths, by flag.

  Args:
    spec: Spec of the trials, but for what is drawn.
    classes: Names of classes that replace that of a part, by the flag of the
      part; other flags and values may be among them.

  Returns:
    The path of names to each field and its specification, by flag. Fields of a
    class that may be drawn are among them.
  """
  found: dict[str, tuple[tuple[str, ...], config_lib.FieldSpec]] = {}
  replaced: list[tuple[str, ...]] = []
  for path, field, _ in config_lib.walk(spec):
    if any(path[: len(part)] == part for part in replaced):
      continue
    found.setdefault(field.flag, (path, field))
    if field.registry is None or field.flag not in classes:
      continue
    replaced.append(path)
    for kind in classes[field.flag]:
      if isinstance(kind, str) and kind in field.registry:
        for inner in config_lib.specs(field.registry[kind]):
          found.setdefault(inner.flag, ((*path, inner.name), inner))
  return found


def _error(requirement: str, found: object) -> errors.FieldError:
  """An error of the whole search space.

  Args:
    requirement: See `errors.FieldError`.
    found: See `errors.FieldError`.
  """
  return errors.FieldError("search_space", requirement, found)


def _check_choice(
  field: config_lib.FieldSpec, name: str, choice: Any
) -> tuple[str, tuple[Any, ...]]:
  """The kind of a field's distribution, and its values or bounds.

  Args:
    field: Specification of the field.
    name: Its flag.
    choice: JSON value for it, such as `{"uniform": [0.8, 0.95]}`.

  Returns:
    The kind, and the values or the two bounds.

  Raises:
    errors.FieldError: If it has another format, or values that the field does
      not take; bounds are for fields of type float alone.
  """
  if not isinstance(choice, dict) or len(choice) != 1:
    raise _error(f"have one of {', '.join(KINDS)} for {name}", repr(choice))
  [(kind, values)] = choice.items()
  checks.check_choice(f"search_space: {name}", kind, KINDS)
  if not isinstance(values, list) or not values:
    raise _error(f"have a list of values for {name}", repr(values))
  try:
    found = tuple(_check_value(field, name, kind, value) for value in values)
  except errors.FieldError as error:
    raise error.renamed(f"search_space: {name}") from error
  if kind == "values":
    return kind, found
  low, positive = -math.inf, ""
  if kind == "log_uniform":
    low, positive = 0.0, " positive"
  are_bounds = len(found) == 2 and low < found[0] < found[1]
  if field.type is not float or not are_bounds:
    raise _error(
      f"have two{positive} numbers in ascending order as {kind} bounds of"
      f" {name}, a field of type {field.type.__name__}",
      repr(values),
    )
  return kind, found


def _check_value(
  field: config_lib.FieldSpec, name: str, kind: str, value: Any
) -> Any:
  """A bound as a number, or a value as the field takes it.

  Args:
    field: Specification of the field.
    name: Its flag.
    kind: One of `KINDS`.
    value: JSON value.

  Raises:
    errors.FieldError: If it is no number, or no value of the field.
  """
  if kind != "values":
    return checks.check_number(name, value)
  if field.registry is None:
    return config_lib.check(field, value)
  checks.check_choice(name, value, field.registry)
  return value
