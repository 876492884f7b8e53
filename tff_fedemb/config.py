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
`errors.FieldError`. A program makes flags of the fields; the help of a flag is
the field's line under `Attributes:`.

Programs report a mistake in a flag before they import TensorFlow, which takes
seconds. A module with a configuration therefore imports TensorFlow, and modules
of ours that need it at once, within `epy.lazy_imports()`: they are loaded when
they are first used. `from __future__ import annotations` keeps signatures from
using them. A class derived from one of TensorFlow's has a module of its own.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
import csv
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

_BOUNDS = ("above", "minimum", "below", "maximum")


def field(default: Any = dataclasses.MISSING, **options: Any) -> Any:
  """Declares a field; a plain default declares one without options.

      restart_every: int | None = config.field(None, minimum=1)

  Args:
    default: Its default; none if it must be given.
    **options: Attributes of a `FieldSpec` from `flag` on, with each bound as an
      option of its own: `above` (exclusive), `minimum` (inclusive), `below`
      (exclusive) and `maximum` (inclusive).

  Returns:
    What `dataclasses.field` returns, for the class that has the field.
  """
  options["bounds"] = {x: options.pop(x) for x in _BOUNDS if x in options}
  return dataclasses.field(default=default, metadata=options)


# A field that is a configuration itself.
part = field


@dataclasses.dataclass(frozen=True)
class FieldSpec:
  """A field of a configuration.

  Attributes:
    name: Its name.
    type: `bool`, `int`, `float`, `str`, or `tuple` of words; of a part, its
      subclass of `Config`; `object` for anything else.
    optional: Whether it may be None.
    default: Its default, `dataclasses.MISSING` if it must be given.
    documentation: Its line under `Attributes:`, without line breaks.
    flag: Name of its flag, or of the flag that chooses the class of a part;
      that of the field unless declared.
    bounds: Bounds of a number, by `field`'s name for them.
    choices: Words that a word, or each of several words, must be among; None
      for anything.
    registry: Classes that a part may have, by name, beside `module:Class` of
      your own; None if it always has that of `type`.
    decides: Whether the field, and all fields in it, decide the result of a
      run. A run that goes on must have the same value of such a field.
    searchable: Whether private tuning may search it; of a part, its class. Such
      a field decides a model and neither the privacy cost nor the data.
    path: Whether it is the path of a file or folder.
    may_have_commas: Whether each of several words takes a flag of its own,
      because names and paths may have commas; `split_words` tells those from
      lists.
  """

  name: str
  type: Any
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
  may_have_commas: bool = False


def _find_type(annotation: Any) -> tuple[type, bool]:
  """The type of a field as in `FieldSpec`, and whether it may be None.

  Args:
    annotation: The annotation of the field, already resolved.
  """
  members = [annotation]
  if isinstance(annotation, types.UnionType):
    members = list(typing.get_args(annotation))
  optional = types.NoneType in members
  if optional:
    members.remove(types.NoneType)
  first, *others = members
  found = typing.get_origin(first) or first
  is_part = isinstance(found, type) and issubclass(found, Config)
  has_words = all(each in _WORDS for each in typing.get_args(first))
  if others or not (is_part or (found in _TYPES and has_words)):
    found = object
  return found, optional


# Types of fields that have JSON; a tuple is one of words or numbers.
_TYPES = (bool, int, float, str, tuple)
_WORDS = (str, int, float, Ellipsis)
# Specs by class, filled in on the first request.
_SPECS: dict[type, tuple[FieldSpec, ...]] = {}


def specs(config_class: type["Config"]) -> tuple[FieldSpec, ...]:
  """Returns the fields of a configuration in the order of their declaration.

  They are read once for each class.

  Args:
    config_class: The class.

  Returns:
    A specification of each field that can be given.
  """
  if config_class not in _SPECS:
    _SPECS[config_class] = _read_specs(config_class)
  return _SPECS[config_class]


def _read_specs(config_class: type["Config"]) -> tuple[FieldSpec, ...]:
  """Puts annotations, options and documentation of the fields together.

  The documentation is that under `Attributes:`; a class inherits its bases'.

  Args:
    config_class: The class.

  Raises:
    errors.DataError: If the class has fields and is no dataclass.
  """
  for name, value in vars(config_class).items():
    if isinstance(value, dataclasses.Field):
      raise errors.DataError(
        f"{config_class.__qualname__} must be a dataclass, or its {name} is no"
        " field: write @dataclasses.dataclass(frozen=True, kw_only=True) above"
        " the class."
      )
  documentation: dict[str, str] = {}
  for base in reversed(config_class.__mro__):
    text = base.__dict__.get("__doc__") or ""
    parsed = docstring_parser.parse(text, docstring_parser.Style.GOOGLE)
    for param in parsed.params:
      words = (param.description or "").split()
      documentation[param.arg_name] = " ".join(words)
  annotations = typing.get_type_hints(config_class)
  found = []
  for member in dataclasses.fields(config_class):
    if not member.init:
      continue
    declared = {"flag": member.name, **member.metadata}
    kind, optional = _find_type(annotations[member.name])
    found.append(
      FieldSpec(
        member.name,
        kind,
        optional,
        member.default,
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

  def __init_subclass__(cls, **options: Any):
    super().__init_subclass__(**options)
    if "__repr__" not in vars(cls):
      # A dataclass makes its own, but keeps one that the class has itself.
      cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

  def __repr__(self) -> str:
    """Shows the fields that are not at their defaults, as scikit-learn does.

    Its name is that in `tff_fedemb`: `Gaussian`, not `GaussianConfig`.
    """
    name = type(self).__name__.removesuffix("Config")
    told = []
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      is_default = type(value) is type(field.default) and value == field.default
      if field.repr and not is_default:
        told.append(f"{field.name}={value!r}")
    return f"{name}({', '.join(told)})"

  def __post_init__(self):
    """Checks each field, and turns its value into one of Python's own types.

    Raises:
      errors.FieldError: If a field must be given and is not, or has a value out
        of its range.
    """
    for spec in specs(type(self)):
      value = getattr(self, spec.name)
      is_none = value is None and spec.type is not object
      if is_none and spec.optional:
        continue
      is_empty = isinstance(value, str) and not value
      must_be_given = spec.default is dataclasses.MISSING
      if is_none or (is_empty and must_be_given):
        raise errors.FieldError(spec.name, "be given", "nothing")
      # JSON wants Python's own numbers, not NumPy's.
      object.__setattr__(self, spec.name, check(spec, value))

  def to_json(self) -> dict[str, Any]:
    """Returns JSON values by field; a class may have its own.

    Values that are None or of no type that JSON knows are left out. A part that
    may have one of several classes has the name of its own as `kind`.

    Raises:
      TypeError: If the class of a part has no name (`Registry.name_of`).
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
          value = spec.registry.to_json(value)
      values[spec.name] = list(value) if isinstance(value, tuple) else value
    return values

  @classmethod
  def from_json(cls: type[_ConfigT], values: Mapping[str, Any]) -> _ConfigT:
    """Inverse of `to_json`.

    Args:
      values: JSON values by field; a part may also be given as it is.

    Returns:
      The configuration, whose fields are checked as if you had made it
      yourself.

    Raises:
      errors.FieldError: If there is no such field or class, a field without a
        default is missing, or a value is out of its range.
      errors.DataError: If the class of a part cannot be imported.
    """
    if not isinstance(values, Mapping):
      raise errors.FieldError(cls.__name__, "be fields by name", values)
    known = {spec.name: spec for spec in specs(cls)}
    fields = {}
    for name, value in values.items():
      if name not in known:
        raise errors.FieldError(name, f"be a field of {cls.__name__}", "none")
      spec = known[name]
      if not isinstance(value, Mapping):
        fields[name] = value
      elif spec.registry is None:
        fields[name] = spec.type.from_json(value)
      else:
        fields[name] = spec.registry.from_json(value, name=name)
    for name, spec in known.items():
      if spec.default is dataclasses.MISSING and name not in fields:
        raise errors.FieldError(name, "be given", "nothing")
    return cls(**fields)


def check(spec: FieldSpec, value: Any) -> Any:
  """Checks the value of a field.

  A path may be given as a `pathlib` path, and several words as any iterable.

  Args:
    spec: The field.
    value: The value; None only where the type is `object`.

  Returns:
    The value as one of Python's own types.

  Raises:
    errors.FieldError: If it has another type, or is out of its range.
  """
  if spec.type is int:
    bounds: dict[str, Any] = {"minimum": -(2**63), **spec.bounds}
    return checks.check_integer(spec.name, value, **bounds)
  if spec.type is float:
    return checks.check_number(spec.name, value, **spec.bounds)
  is_path = spec.type is str and isinstance(value, pathlib.PurePath)
  if is_path or (spec.type is tuple and isinstance(value, Iterable)):
    value = spec.type(value)
  words = {bool: "true or false", str: "a text"}
  checks.check_type(spec.name, value, spec.type, words.get(spec.type, ""))
  if spec.choices is not None:
    for word in value if spec.type is tuple else (value,):
      checks.check_choice(spec.name, word, spec.choices)
  return value


def split_words(
  words: Iterable[str], is_known: Callable[[str], object]
) -> list[str]:
  """Splits words at their commas, but for those that are known as they are.

  Args:
    words: Names or paths, each of which may have commas, or several with commas
      between; quotes keep a comma, as in a CSV file.
    is_known: Whether there is something of that name.

  Returns:
    The names or paths, in their order.
  """
  found: list[str] = []
  for word in words:
    if is_known(word):
      found.append(word)
    else:
      found += map(str.strip, next(csv.reader([word]), []))
  return found


def walk(config: "Config") -> Iterator[tuple[tuple[str, ...], FieldSpec, Any]]:
  """Yields every field of a configuration and of its parts.

  Args:
    config: The configuration.

  Yields:
    The names that lead to the field, its specification, and its value. A part
    whose class may vary is yielded too, with the name of its class. `decides`
    of a specification is false if it is false for the part that has the field.
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
    changes: Values by the names that lead to the fields, as in `walk`. The
      value of a part is the name of its class, which keeps the fields that both
      classes have.

  Returns:
    A configuration of the same class.

  Raises:
    errors.FieldError: If there is no such field, or a value is out of its
      range.
    errors.DataError: If the class of a part cannot be imported.
  """
  return _rebuild(config, type(config), changes)


def _rebuild(
  config: Any, config_class: Any, changes: Mapping[tuple[str, ...], Any]
) -> Any:
  """As `replace`; the class may be another than that of the configuration.

  Args:
    config: A configuration whose fields are kept where the class has them too.
    config_class: Class of the result.
    changes: As in `replace`, by the names from here on.
  """
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
