"""Values that a user sets, declared once: their type, range and meaning.

A configuration is a frozen dataclass derived from `Config`:

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class TreeConfig(config.Config):
    \"\"\"What aggregator tree is made from.

    Attributes:
      restart_every: Rounds of a tree [a single tree].
    \"\"\"

    restart_every: int | None = config.field(None, minimum=1)

Construction checks every field against its annotation and its range, and raises
`errors.FieldError`. A program makes flags of the fields, whose help is their
line under `Attributes:`.

A mistake in a flag is told before TensorFlow is imported, which takes seconds.
A module with a configuration therefore imports TensorFlow, and modules of ours
that need it at once, within `epy.lazy_imports()`: they are loaded when they are
first used, and `from __future__ import annotations` keeps signatures from using
them. A class derived from one of TensorFlow's has a module of its own.
"""

from collections.abc import Collection, Iterator, Mapping
import dataclasses
import pathlib
import types
import typing
from typing import Any, TypeVar

import docstring_parser

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import registry as registry_lib

_ConfigT = TypeVar("_ConfigT", bound="Config")

_SETTLED_LATER = "settled_later"


def field(
  default: Any = dataclasses.MISSING,
  *,
  above: float | None = None,
  minimum: float | None = None,
  below: float | None = None,
  maximum: float | None = None,
  choices: Collection[str] | None = None,
  settled_later: bool = False,
  flag: str | None = None,
  decides: bool = True,
  searchable: bool = False,
  path: bool = False,
) -> Any:
  """Declares a field with a range; a plain default declares one without.

  Args:
    default: Its default; none if it must be given.
    above: Exclusive lower bound of a number; None for no such bound, as below.
    minimum: Inclusive lower bound.
    below: Exclusive upper bound.
    maximum: Inclusive upper bound.
    choices: Words that a word, or each word of several, must be among.
    settled_later: Whether it may be None until whoever knows it has set it,
      which its type does not say: what needs it is asked only then.
    flag: Name of its flag; None if as the field.
    decides: Whether it decides the result of a run. A run that goes on must
      have the same value of such a field.
    searchable: Whether private tuning may search it. Such a field decides a
      model and neither the privacy cost nor the data.
    path: Whether it is the path of a file or folder.
  """
  bounds = {"above": above, "minimum": minimum}
  bounds |= {"below": below, "maximum": maximum}
  bounds = {name: bound for name, bound in bounds.items() if bound is not None}
  return dataclasses.field(
    default=default,
    metadata={
      "bounds": bounds,
      "choices": choices,
      _SETTLED_LATER: settled_later,
      "flag": flag,
      "decides": decides,
      "searchable": searchable,
      "path": path,
    },
  )


def part(
  default: Any = dataclasses.MISSING,
  *,
  registry: registry_lib.Registry | None = None,
  flag: str | None = None,
  decides: bool = True,
  searchable: bool = False,
) -> Any:
  """Declares a field that is a configuration itself.

  Args:
    default: Its default; none if it must be given.
    registry: The classes that it may have, by name, beside one that is named
      `module:Class`; None if it has that of its annotation.
    flag: Name of the flag that chooses its class; None if as the field.
    decides: As in `field`, of all that is in it.
    searchable: As in `field`, of its class.
  """
  return dataclasses.field(
    default=default,
    metadata={
      "registry": registry,
      "flag": flag,
      "decides": decides,
      "searchable": searchable,
    },
  )


@dataclasses.dataclass(frozen=True)
class FieldSpec:
  """A field of a configuration.

  Attributes:
    name: Its name.
    type: `bool`, `int`, `float`, `str`, or `tuple` of words; a `Config` of a
      part; `object` for anything else.
    optional: Whether it may be None.
    default: Its default, `dataclasses.MISSING` if it must be given.
    documentation: Its line under `Attributes:`, without line breaks.
    bounds: As in `field`, those that there are.
    choices: Words that a word must be among; None for anything.
    registry: Classes of a part by name; None if it has that of `type`.
    flag: Name of its flag.
    decides: Whether it decides the result of a run.
    searchable: Whether private tuning may search it.
    path: Whether it is the path of a file or folder.
  """

  name: str
  type: type
  optional: bool
  default: Any
  documentation: str
  flag: str
  bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)
  choices: Collection[str] | None = None
  registry: registry_lib.Registry | None = None
  decides: bool = True
  searchable: bool = False
  path: bool = False


def _find_type(annotation: Any, settled_later: bool) -> tuple[type, bool]:
  parts = [annotation]
  if isinstance(annotation, types.UnionType):
    parts = list(typing.get_args(annotation))
  optional = settled_later or types.NoneType in parts
  parts = [part for part in parts if part is not types.NoneType]
  found = typing.get_origin(parts[0]) or parts[0]
  if isinstance(found, type) and issubclass(found, Config) and len(parts) == 1:
    return found, optional
  is_other = found is tuple and not (
    set(typing.get_args(parts[0])) <= {str, int, float, Ellipsis}
  )
  if len(parts) > 1 or is_other or found not in _TYPES:
    found = object
  return found, optional


# Types of fields that have JSON; a tuple is one of words or numbers.
_TYPES = (bool, int, float, str, tuple)
# By class, once they are asked for.
_SPECS: dict[type, tuple[FieldSpec, ...]] = {}


def specs(config_class: type["Config"]) -> tuple[FieldSpec, ...]:
  """Returns the fields of a configuration in the order of their declaration."""
  if config_class not in _SPECS:
    _SPECS[config_class] = _read_specs(config_class)
  return _SPECS[config_class]


def _read_specs(config_class: type["Config"]) -> tuple[FieldSpec, ...]:
  documentation: dict[str, str] = {}
  for base in reversed(config_class.__mro__):
    parsed = docstring_parser.parse(
      base.__dict__.get("__doc__") or "", docstring_parser.Style.GOOGLE
    )
    documentation |= {
      param.arg_name: " ".join((param.description or "").split())
      for param in parsed.params
    }
  annotations = typing.get_type_hints(config_class)
  found = []
  for member in dataclasses.fields(config_class):
    # The names of what was declared are those of a `FieldSpec`.
    declared = dict(member.metadata)
    settled_later = declared.pop(_SETTLED_LATER, False)
    declared["flag"] = declared.get("flag") or member.name
    if member.init:
      found.append(
        FieldSpec(
          member.name,
          *_find_type(annotations[member.name], settled_later),
          default=member.default,
          documentation=documentation.get(member.name, ""),
          **declared,
        )
      )
  return tuple(found)


@dataclasses.dataclass(frozen=True)
class Config:
  """A frozen dataclass that checks its fields when it is made.

  Raises:
    errors.FieldError: If a field has a value out of its range.
  """

  def __post_init__(self):
    for spec in specs(type(self)):
      value = getattr(self, spec.name)
      is_none = value is None and spec.type is not object
      if is_none and spec.optional:
        continue
      must_be_given = spec.default is dataclasses.MISSING
      if is_none or (must_be_given and isinstance(value, str) and not value):
        raise errors.FieldError(spec.name, "be given", "nothing")
      # JSON wants Python's own numbers, not NumPy's.
      object.__setattr__(self, spec.name, check(spec, value))

  def to_json(self) -> dict[str, Any]:
    """Returns JSON values by field; a class may have its own.

    Values that are None or of no type that JSON knows are left out. A part that
    may have one of several classes has the name of its own as `kind`.
    """
    values: dict[str, Any] = {}
    for spec in specs(type(self)):
      value = getattr(self, spec.name)
      if value is None or spec.type is object:
        continue
      if isinstance(value, Config):
        if spec.registry is None:
          value = value.to_json()
        else:
          value = part_to_json(value, spec.registry)
      values[spec.name] = list(value) if isinstance(value, tuple) else value
    return values

  @classmethod
  def from_json(cls: type[_ConfigT], values: Mapping[str, Any]) -> _ConfigT:
    """Inverse of `to_json`.

    Raises:
      errors.FieldError: If there is no such field or class, or a value is out
        of its range.
    """
    return cls(**read_fields(cls, values))


def check(spec: FieldSpec, value: Any) -> Any:
  """Returns the value of a field as Python's own; raises if it cannot be it.

  Raises:
    errors.FieldError: If its type is another, or it is out of its range.
  """
  if spec.type is int:
    bounds: dict[str, Any] = {"minimum": -(2**63), **spec.bounds}
    return checks.check_integer(spec.name, value, **bounds)
  if spec.type is float:
    return checks.check_number(spec.name, value, **spec.bounds)
  if spec.type is bool:
    if not isinstance(value, bool):
      raise errors.FieldError(spec.name, "be true or false", repr(value))
  elif spec.type is str:
    if isinstance(value, pathlib.PurePath):
      value = str(value)
    if not isinstance(value, str):
      raise errors.FieldError(spec.name, "be a text", repr(value))
    if spec.choices is not None:
      checks.check_choice(spec.name, value, spec.choices)
  elif issubclass(spec.type, Config):
    if not isinstance(value, spec.type):
      name = spec.type.__name__
      raise errors.FieldError(spec.name, f"be a {name}", repr(value))
  elif spec.type is tuple:
    value = tuple(value)
    for word in value if spec.choices is not None else ():
      checks.check_choice(spec.name, word, spec.choices)
  return value


def walk(config: "Config") -> Iterator[tuple[tuple[str, ...], FieldSpec, Any]]:
  """Yields every field of a configuration and of its parts.

  Yields:
    The names that lead to the field, its specification, and its value: of a
    part, the name of its class if it may have several, and nothing otherwise.
  """
  for spec in specs(type(config)):
    value = getattr(config, spec.name)
    if isinstance(value, Config):
      if spec.registry is not None:
        yield (spec.name,), spec, spec.registry.name_of(value)
      for names, inner, inner_value in walk(value):
        decides = spec.decides and inner.decides
        inner = dataclasses.replace(inner, decides=decides)
        yield (spec.name, *names), inner, inner_value
    elif spec.type is not object:
      yield (spec.name,), spec, value


def replace(
  config: _ConfigT, changes: Mapping[tuple[str, ...], Any]
) -> _ConfigT:
  """Returns a configuration with other values of some fields.

  All of them are set before a range is checked, so that fields which are only
  valid together can change together.

  Args:
    config: The configuration.
    changes: Values by the names that lead to the fields, as of `walk`. The
      value of a part is the name of its class, which keeps the fields that both
      classes have.

  Raises:
    errors.FieldError: If there is no such field, or a value is out of its
      range.
  """
  return _rebuild(config, type(config), changes)


def _rebuild(
  config: Any, config_class: Any, changes: Mapping[tuple[str, ...], Any]
) -> Any:
  known = {spec.name: spec for spec in specs(config_class)}
  values = {n: getattr(config, n) for n in known if hasattr(config, n)}
  by_field: dict[str, dict[tuple[str, ...], Any]] = {}
  for (name, *inner), value in changes.items():
    if name not in known:
      raise errors.FieldError(
        name, f"be a field of {config_class.__name__}", "none"
      )
    by_field.setdefault(name, {})[tuple(inner)] = value
  for name, inner_changes in by_field.items():
    spec, value = known[name], values.get(name)
    chosen = inner_changes.pop((), value)
    if spec.registry is not None and isinstance(chosen, str):
      checks.check_choice(spec.flag, chosen, spec.registry)
      chosen = _rebuild(value, spec.registry[chosen], inner_changes)
    elif inner_changes:
      chosen = _rebuild(chosen, type(chosen), inner_changes)
    values[name] = chosen
  return config_class(**values)


def part_to_json(
  part: "Config", registry: registry_lib.Registry
) -> dict[str, Any]:
  """Returns a part as JSON values, with the name of its class as `kind`.

  Args:
    part: An object of one of several classes.
    registry: These classes.

  Raises:
    TypeError: As `Registry.name_of`.
  """
  return {"kind": registry.name_of(part)} | part.to_json()


def part_from_json(
  values: Mapping[str, Any], registry: registry_lib.Registry, *, name: str
) -> Any:
  """Inverse of `part_to_json`.

  Args:
    values: JSON values of a part.
    registry: Classes that it may have.
    name: Name in an error.

  Raises:
    errors.FieldError: As `Config.from_json`.
  """
  of_part = dict(values)
  kind = of_part.pop("kind", None)
  checks.check_choice(name, kind, registry)
  return registry[kind].from_json(of_part)


def read_fields(
  config_class: type["Config"], values: Mapping[str, Any]
) -> dict[str, Any]:
  """Reads the fields of a class from JSON values, and makes parts of them.

  Args:
    config_class: Class of the fields.
    values: As `Config.to_json` returns them, or some of them.

  Raises:
    errors.FieldError: As `Config.from_json`.
  """
  known = {spec.name: spec for spec in specs(config_class)}
  for name in values.keys() - known.keys():
    raise errors.FieldError(
      name, f"be a field of {config_class.__name__}", "none"
    )
  fields = {}
  for name, value in values.items():
    spec = known[name]
    if isinstance(value, Mapping):
      part_class: Any = spec.type
      if spec.registry is not None:
        value = part_from_json(value, spec.registry, name=name)
      else:
        value = part_class.from_json(value)
    fields[name] = value
  return fields
