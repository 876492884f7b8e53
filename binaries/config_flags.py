"""Flags made from configurations, and configurations made from flags.

A program has one function:

  def main(argv):
    with config_flags.Parser(argv, __doc__) as parser:
      config = parser.add(match.MatchConfig)
      parser.parse()
      match.execute(config.create())

Each field of a configuration (`tff_fedemb.config`) becomes a flag with the
field's name, type and documentation. Where a field is a part that may have one
of several classes, a flag chooses the class by its name, or as `module:Class`,
and the fields of all classes are flags. A flag of a class that is not chosen is
refused on the command line and ignored in a flagfile.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import dataclasses
import itertools
import sys
import textwrap
from typing import Any, Generic, TypeVar

from absl import flags

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import registry as registry_lib

_ConfigT = TypeVar("_ConfigT", bound=config_lib.Config)
_HELP = ("help", "helpshort", "helpfull")
# A flag that more classes have is of use with nearly all of them.
_MOST_CLASSES = 6
# Each function defines a flag of a type.
DEFINE = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  tuple: flags.DEFINE_list,
}
# A choice of a class, and the class's name.
_Condition = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Field:
  """A field that has a flag, and the choices by which it is used.

  Attributes:
    spec: The field.
    conditions: Choices and the names of the classes that have the field.
  """

  spec: config_lib.FieldSpec
  conditions: tuple[_Condition, ...] = ()


class Parser:
  """The flags of one program, for one command line."""

  def __init__(
    self,
    argv: Sequence[str],
    documentation: str,
    *,
    expand: Callable[[Sequence[str]], Sequence[str]] = list,
  ):
    """Begins with no flags.

    Args:
      argv: The program's name and its arguments.
      documentation: Beginning of the help.
      expand: Maps the arguments to those that are parsed.

    Raises:
      errors.FieldError: If a file of flags cannot be read.
    """
    self._name, self._documentation = argv[0], documentation
    self._typed = list(expand(argv[1:]))
    self._values = flags.FlagValues()
    self._fields: dict[str, list[Field]] = {}
    self._titles: dict[str, list[str]] = {}
    self._flag_of: dict[str, str] = {}
    try:
      self._words = self._values.read_flags_from_files(self._typed)
    except flags.Error as error:
      raise errors.FieldError("--flagfile", "be a file", error) from error

  def __enter__(self) -> "Parser":
    return self

  def __exit__(self, kind, error, trace) -> None:
    if isinstance(error, errors.FieldError):
      flag = self._flag_of.get(error.name, error.name)
      if flag in self._fields:
        raise error.renamed(f"--{flag}") from error

  def add(
    self,
    config_class: type[_ConfigT],
    *,
    skip: Collection[str] = (),
    choices: Mapping[str, registry_lib.Registry] | None = None,
    defaults: Mapping[str, str] | None = None,
    details: Mapping[str, str] | None = None,
  ) -> "ConfigFlags[_ConfigT]":
    """Defines the flags of a configuration.

    Args:
      config_class: The configuration.
      skip: Fields that have no flag, also of parts, everywhere or as
        `part__field`.
      choices: Classes to choose a part from in place of the field's own, by the
        field's name; the flag is called as their kind.
      defaults: Names of the classes that parts have where the user chooses
        none, by the field's name.
      details: Addition to a field's documentation in the help, by its name.
    """
    return ConfigFlags(
      self, config_class, skip, choices or {}, defaults or {}, details or {}
    )

  def parse(
    self, commands: Sequence[str] = (), *, takes_arguments: bool = False
  ) -> list[str]:
    """Parses the command line, once all flags are defined.

    Args:
      commands: Commands that the first argument may be; the first is the
        default.
      takes_arguments: Whether arguments that are no flags are allowed.

    Returns:
      The arguments that are no flags, the command first.

    Raises:
      errors.FieldError: If an argument is not allowed, or a flag is unknown or
        of another type.
    """
    # absl takes these for text before it knows which flags there are.
    if any(word.lstrip("-") in _HELP for word in self._typed if word != "-"):
      print(self._help())
      sys.exit(0)
    try:
      _, *arguments = self._values([self._name, *self._typed])
    except flags.Error as error:
      message = " ".join(str(error).split()).rstrip(".")
      raise errors.DataError(
        f"{message}. --helpshort lists the flags."
      ) from None
    arguments = arguments or list(commands[:1])
    allowed = (
      f"one of {', '.join(commands)}, and flags" if commands else "flags"
    )
    is_command = not commands or arguments[0] in commands
    others = arguments[1:] if commands else arguments
    if not is_command or (others and not takes_arguments):
      raise errors.FieldError(
        "arguments",
        f"be {allowed} (--name=value)",
        repr(" ".join(arguments)),
      )
    return arguments

  def value(self, flag: str) -> Any:
    """The value of a flag; None if it was not given."""
    value = self._values[flag].value
    return tuple(value) if isinstance(value, list) else value

  def set(self, values: Mapping[str, Any]) -> None:
    """Sets flags, as if the user had given them."""
    for flag, value in values.items():
      setattr(self._values, flag, value)

  @property
  def given(self) -> dict[str, Any]:
    """The flags that have a value, by name."""
    values = {flag: self.value(flag) for flag in self._fields}
    return {flag: value for flag, value in values.items() if value is not None}

  def is_typed(self, flag: str) -> bool:
    """Whether a flag stands on the command line, and not in a flagfile."""
    names = {
      word.lstrip("-").partition("=")[0]
      for word in self._typed
      if word.startswith("-")
    }
    return flag in names or f"no{flag}" in names

  def define(
    self, field: Field, *, title: str, details: str = "", default: str = ""
  ) -> None:
    """Defines the flag of a field, unless another field has the same flag."""
    spec = field.spec
    known = self._fields.setdefault(spec.flag, [])
    known.append(field)
    if spec.flag != spec.name:
      self._flag_of[spec.name] = spec.flag
    self._flag_of.setdefault(spec.name, spec.flag)
    if len(known) > 1:
      return
    text = spec.documentation
    if spec.registry is not None or spec.choices is not None:
      words = sorted(spec.choices if spec.registry is None else spec.registry)
      text = f"{text.rstrip('.')}: {', '.join(words)}."
    kind = str if spec.registry is not None else spec.type
    if details:
      text += f" {details}"
    if default and not text.rstrip(".").endswith("]"):
      text = f"{text.rstrip('.')} [{default}]."
    DEFINE[kind](spec.flag, None, text, flag_values=self._values)
    self._titles.setdefault(title, []).append(spec.flag)

  def own_names(self, flag: str, registry: Mapping[str, Any]) -> list[str]:
    """Names `module:Class` that the command line chooses a class by.

    Their flags have to be defined before the command line is parsed.
    """
    words, names = [*self._words, ""], []
    for word, after in itertools.pairwise(words):
      name, equals, value = word.lstrip("-").partition("=")
      if word.startswith("-") and name == flag:
        value = value if equals else after
        try:
          names += [value] if ":" in value and value in registry else []
        except errors.DataError as error:
          raise errors.DataError(f"--{flag}: {error}") from error
    return names

  def check_unused(
    self,
    fields: Collection[Field],
    used: Collection[str],
    chosen: Mapping[str, str],
  ) -> None:
    """Refuses flags of the command line that no chosen class has.

    Args:
      fields: Those of a configuration and its parts.
      used: Flags of those that it has been made from.
      chosen: Names of its classes by the flags that choose them.
    """
    for field in fields:
      flag = field.spec.flag
      elsewhere = [f for f in self._fields[flag] if f not in fields]
      if flag in used or elsewhere or self.value(flag) is None:
        continue
      if self.is_typed(flag):
        choice, _ = field.conditions[-1]
        must = f"be set with {choice} only"
        if choice in chosen:
          must = (
            f"not be set with {choice} {chosen[choice]}, which has no use for"
            " it"
          )
        raise errors.FieldError(f"--{flag}", must, self.value(flag))

  def _help(self) -> str:
    """The flags with what they are for, by section."""
    lines = [self._documentation.strip(), "", "Flags:"]
    for title, names in self._titles.items():
      lines += ["", title]
      for name in names:
        flag = self._values[name]
        shown = f"--[no]{name}" if flag.boolean else f"--{name}"
        lines += [f"  {shown}", *_wrap(flag.help + self._say_classes(name))]
    lines += ["", "  --flagfile", *_wrap("File with a flag in each line.")]
    return "\n".join(lines)

  def _say_classes(self, flag: str) -> str:
    """The classes with which alone a flag is of use, if they are few."""
    used_with = dict.fromkeys(
      field.conditions[-1] for field in self._fields[flag] if field.conditions
    )
    choices = {choice for choice, _ in used_with}
    if len(choices) != 1 or len(used_with) > _MOST_CLASSES:
      return ""
    return f" (--{choices.pop()}={', '.join(name for _, name in used_with)})"


def _wrap(text: str) -> list[str]:
  indent = "    "
  return textwrap.wrap(
    text, width=80, initial_indent=indent, subsequent_indent=indent
  )


class ConfigFlags(Generic[_ConfigT]):
  """The flags of one configuration and its parts."""

  def __init__(
    self,
    parser: Parser,
    config_class: type[_ConfigT],
    skip: Collection[str],
    choices: Mapping[str, registry_lib.Registry],
    defaults: Mapping[str, str],
    details: Mapping[str, str],
  ):
    self._parser, self._class = parser, config_class
    self._skip, self._choices = frozenset(skip), choices
    self._defaults = defaults
    self._fields: list[Field] = []
    first = str(config_class.__doc__).partition("\n")[0]
    for field, default, title in self._collect(config_class, (), (), first):
      self._fields.append(field)
      parser.define(
        field,
        title=title,
        default=default,
        details=details.get(field.spec.name, ""),
      )

  def _read_spec(self, spec: config_lib.FieldSpec) -> config_lib.FieldSpec:
    registry = self._choices.get(spec.name)
    if registry is None:
      return spec
    return dataclasses.replace(spec, registry=registry, flag=registry.kind)

  def _skips(self, names: Sequence[str]) -> bool:
    return not self._skip.isdisjoint((names[-1], "__".join(names)))

  def _collect(
    self,
    config_class: Any,
    path: tuple[str, ...],
    conditions: tuple[_Condition, ...],
    title: str,
  ) -> Iterator[tuple[Field, str, str]]:
    """Yields fields with flags, their defaults, and their section's title."""
    for spec in map(self._read_spec, config_lib.specs(config_class)):
      names = (*path, spec.name)
      if self._skips(names):
        continue
      if spec.registry is not None:
        default = self._defaults.get(spec.name, "")
        if not default and isinstance(spec.default, config_lib.Config):
          default = spec.registry.name_of(spec.default)
        yield Field(spec, conditions), default, title
        own = self._parser.own_names(spec.flag, spec.registry)
        for name in dict.fromkeys((*spec.registry, *own)):
          inner = (*conditions, (spec.flag, name))
          yield from self._collect(
            spec.registry[name], names, inner, f"Options of --{spec.flag}."
          )
      elif issubclass(spec.type, config_lib.Config):
        part = str(spec.type.__doc__).partition("\n")[0]
        yield from self._collect(spec.type, names, conditions, part)
      elif spec.type in DEFINE:
        yield (
          Field(spec, conditions),
          show_default(spec.default),
          title,
        )

  def create(self, **others: Any) -> _ConfigT:
    """Creates the configuration that the flags describe.

    Args:
      **others: Fields, also of parts, that are not flags, or are to be set in
        their place; of parts as `part__field`.

    Raises:
      errors.FieldError: If a field is out of its range, or a flag was given
        that no chosen class has.
    """
    used: set[str] = set()
    chosen: dict[str, str] = {}
    made = self._create(self._class, (), others, used, chosen)
    self._parser.check_unused(self._fields, used, chosen)
    return made

  def _create(
    self,
    config_class: Any,
    path: tuple[str, ...],
    others: Mapping[str, Any],
    used: set[str],
    chosen: dict[str, str],
  ) -> Any:
    values, flag_of, missing = {}, {}, []
    for spec in map(self._read_spec, config_lib.specs(config_class)):
      names = (*path, spec.name)
      flag_of[spec.name] = spec.flag
      if "__".join(names) in others:
        values[spec.name] = others["__".join(names)]
      elif self._skips(names) or (
        spec.type is object and spec.registry is None
      ):
        continue
      elif spec.registry is not None:
        used.add(spec.flag)
        name = self._parser.value(spec.flag) or self._defaults.get(spec.name)
        if name is None and isinstance(spec.default, config_lib.Config):
          name = spec.registry.name_of(spec.default)
        if name is not None:
          checks.check_choice(f"--{spec.flag}", name, spec.registry)
          chosen[spec.flag] = name
          values[spec.name] = self._create(
            spec.registry[name], names, others, used, chosen
          )
      elif issubclass(spec.type, config_lib.Config):
        values[spec.name] = self._create(spec.type, names, others, used, chosen)
      else:
        used.add(spec.flag)
        value = self._parser.value(spec.flag)
        if value is not None:
          flagged = dataclasses.replace(spec, name=f"--{spec.flag}")
          values[spec.name] = config_lib.check(flagged, value)
      if spec.default is dataclasses.MISSING and spec.name not in values:
        missing.append(spec.flag)
    # A value that is wrong is told before one that is missing.
    if missing:
      raise errors.FieldError(f"--{missing[0]}", "be given", "nothing")
    try:
      return config_class(**values)
    except errors.FieldError as error:
      # An error names the flag in place of the field.
      if error.name not in flag_of:
        raise
      raise error.renamed(f"--{flag_of[error.name]}") from error


def show_default(default: Any) -> str:
  """A default for the help; nothing if there is none."""
  if default is None or default is dataclasses.MISSING or default in ("", ()):
    return ""
  if isinstance(default, tuple):
    return ",".join(map(str, default))
  return str(default).lower() if isinstance(default, bool) else str(default)
