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

from collections.abc import Callable, Collection, Mapping, Sequence
import dataclasses
import itertools
import sys
from typing import Any, Generic, TypeVar

from absl import flags

from binaries import flagfiles
from binaries import help_text
from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import registry as registry_lib

_ConfigT = TypeVar("_ConfigT", bound=config_lib.Config)
_FULL_HELP = "helpfull"
_HELP = ("help", "helpshort", _FULL_HELP)
# A flag that more classes have is of use with nearly all of them.
_MOST_CLASSES = 6
# Each function defines a flag of a type.
DEFINE: dict[type, Callable[..., Any]] = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  tuple: flags.DEFINE_list,
}
# Fields of mechanisms and participations that a program has for all of them.
PLANNED = (
  *("clip_norm", "noise_multiplier", "noise_seed"),
  *("num_users", "users_per_round", "users_per_client"),
)


@dataclasses.dataclass(frozen=True)
class Field:
  """A field that has a flag.

  Attributes:
    spec: The field.
    of_class: Choice and name of the class that has the field, if it is chosen.
    is_of_part: Whether the field is one of a part.
  """

  spec: config_lib.FieldSpec
  of_class: tuple[str, str] | None = None
  is_of_part: bool = False


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
    self._words = flagfiles.expand(self._typed)
    self._values = flags.FlagValues()
    self._fields: dict[str, list[Field]] = {}
    self._titles: dict[str, list[str]] = {}
    self._flag_of: dict[str, str] = {}

  def __enter__(self) -> "Parser":
    return self

  def __exit__(self, kind, error, trace) -> None:
    if isinstance(error, errors.FieldError):
      flag = self._flag_of.get(error.name, error.name)
      if flag in self._fields:
        raise error.renamed(f"--{flag}") from error

  def add(
    self, config_class: type[_ConfigT], **options: Any
  ) -> "ConfigFlags[_ConfigT]":
    """Defines the flags of a configuration; options are of `ConfigFlags`."""
    return ConfigFlags(self, config_class, **options)

  def add_choice(
    self, choice: str, registry: Mapping[str, Any], skip: Collection[str] = ()
  ) -> dict[str, str]:
    """Defines flags of the fields of several classes, one of which is chosen.

    For a program that makes the chosen one itself, or several of them.

    Args:
      choice: Flag of the choice.
      registry: The classes by name.
      skip: Fields that have no flag.

    Returns:
      The flags by the names of the fields.
    """
    flag_of = {}
    for name in self.class_names(choice, registry):
      for spec in config_lib.specs(registry[name]):
        if spec.name not in skip and spec.type in DEFINE:
          flag_of[spec.name] = spec.flag
          field = Field(spec, (choice, name), is_of_part=True)
          self.define(field, title=f"Options of --{choice}.")
    return flag_of

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
    typed = {word.lstrip("-") for word in self._typed if word.startswith("-")}
    if not typed.isdisjoint(_HELP):
      sections = {}
      for title, names in self._titles.items():
        sections[title] = list(map(self._describe, names))
      is_full = _FULL_HELP in typed
      print(help_text.render(self._documentation, sections, is_full=is_full))
      sys.exit(0)
    try:
      _, *arguments = self._values([self._name, *self._words])
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

  def given(self, flag_of: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The flags that have a value, by name; of some, by the field's name."""
    flag_of = flag_of or {flag: flag for flag in self._fields}
    values = {name: self.value(flag) for name, flag in flag_of.items()}
    return {name: value for name, value in values.items() if value is not None}

  def define(
    self,
    field: Field,
    *,
    title: str,
    details: str = "",
    default: str | None = None,
  ) -> None:
    """Defines the flag of a field, unless another field has the same flag.

    Args:
      field: The field.
      title: Section of the help.
      details: Addition to the documentation.
      default: Name of its default class, of a part.
    """
    spec = field.spec
    known = self._fields.setdefault(spec.flag, [])
    known.append(field)
    if spec.flag != spec.name or spec.name not in self._flag_of:
      self._flag_of[spec.name] = spec.flag
    if len(known) > 1:
      return
    text = spec.documentation
    choices = spec.choices if spec.registry is None else spec.registry
    if choices is not None:
      text = f"{text.rstrip('.')}: {', '.join(sorted(choices))}."
    kind = str if spec.registry is not None else spec.type
    if details:
      text += f" {details}"
    default = default or _show_default(spec.default)
    if default and not text.rstrip(".").endswith("]"):
      text = f"{text.rstrip('.')} [{default}]."
    define = DEFINE[kind]
    if spec.may_have_commas:
      define = flags.DEFINE_multi_string
    define(spec.flag, None, text, flag_values=self._values)
    self._titles.setdefault(title, []).append(spec.flag)

  def class_names(self, flag: str, registry: Mapping[str, Any]) -> list[str]:
    """Names of classes: the registered ones, and `module:Class` of one's own.

    One's own are those that the command line chooses. Their flags have to be
    defined before it is parsed.
    """
    names = dict.fromkeys(registry)
    for word, after in itertools.pairwise([*self._words, ""]):
      name, equals, value = word.lstrip("-").partition("=")
      if word.startswith("-") and name == flag:
        value = value if equals else after
        try:
          names |= {value: None} if ":" in value and value in registry else {}
        except errors.DataError as error:
          raise errors.DataError(f"--{flag}: {error}") from error
    return [*names]

  def refuse_unused(
    self, fields: Collection[Field], chosen: Mapping[str, str]
  ) -> None:
    """Refuses flags of the command line that no chosen class has.

    Args:
      fields: Fields of a configuration that its flags did not set.
      chosen: Names of its classes by the flags that choose them.
    """
    typed = set()
    for word in self._typed:
      if word.startswith("-"):
        typed.add(word.lstrip("-").partition("=")[0])
    for field in fields:
      flag = field.spec.flag
      is_typed = not typed.isdisjoint((flag, f"no{flag}"))
      if is_typed and all(known in fields for known in self._fields[flag]):
        choice, _ = field.of_class or ("", "")
        must = f"be set with {choice} only"
        if choice in chosen:
          must = (
            f"not be set with {choice} {chosen[choice]}, which has no use for"
            " it"
          )
        raise errors.FieldError(f"--{flag}", must, self.value(flag))

  def _describe(self, name: str) -> help_text.Flag:
    """The text of a flag in the help."""
    flag, field = self._values[name], self._fields[name][0]
    return help_text.Flag(
      name,
      flag.help + self._say_classes(name),
      is_boolean=flag.boolean,
      is_of_part=field.is_of_part,
      names=tuple(sorted(field.spec.registry or ())),
    )

  def _say_classes(self, flag: str) -> str:
    """The classes with which alone a flag is of use, if they are few."""
    used_with = dict.fromkeys(
      field.of_class for field in self._fields[flag] if field.of_class
    )
    choices = {choice for choice, _ in used_with}
    if len(choices) != 1 or len(used_with) > _MOST_CLASSES:
      return ""
    return f" (--{choices.pop()}={', '.join(name for _, name in used_with)})"


class ConfigFlags(Generic[_ConfigT]):
  """The flags of one configuration and its parts."""

  def __init__(
    self,
    parser: Parser,
    config_class: type[_ConfigT],
    *,
    skip: Collection[str] = (),
    choices: Mapping[str, registry_lib.Registry] | None = None,
    defaults: Mapping[str, str] | None = None,
    details: Mapping[str, str] | None = None,
  ):
    """Defines the flags.

    Args:
      parser: The program's.
      config_class: The configuration.
      skip: Fields that have no flag, also of parts, everywhere or as
        `part__field`.
      choices: Classes to choose a part from in place of the field's own, by the
        field's name; the flag is called as their kind.
      defaults: Names of the classes that parts have where the user chooses
        none, by the field's name.
      details: Addition to a field's documentation in the help, by its name.
    """
    self._parser, self._class = parser, config_class
    self._skip, self._choices = frozenset(skip), choices or {}
    self._defaults, self._details = defaults or {}, details or {}
    self._fields: list[Field] = []
    self._define(config_class, (), None, _first_line(config_class))

  def _read_spec(self, spec: config_lib.FieldSpec) -> config_lib.FieldSpec:
    registry = self._choices.get(spec.name)
    if registry is None:
      return spec
    return dataclasses.replace(spec, registry=registry, flag=registry.kind)

  def _skips(self, names: Sequence[str]) -> bool:
    return not self._skip.isdisjoint((names[-1], "__".join(names)))

  def _default_class(self, spec: config_lib.FieldSpec) -> str | None:
    if spec.registry is None:
      return None
    is_part = isinstance(spec.default, config_lib.Config)
    default = spec.registry.name_of(spec.default) if is_part else None
    return self._defaults.get(spec.name, default)

  def _define(
    self,
    config_class: Any,
    path: tuple[str, ...],
    of_class: tuple[str, str] | None,
    title: str,
  ) -> None:
    """Defines the flags of a class, and of the parts that it may have."""
    for spec in map(self._read_spec, config_lib.specs(config_class)):
      names = (*path, spec.name)
      if self._skips(names):
        continue
      if spec.registry is not None or spec.type in DEFINE:
        self._fields.append(Field(spec, of_class, is_of_part=bool(path)))
        self._parser.define(
          self._fields[-1],
          title=title,
          details=self._details.get(spec.name, ""),
          default=self._default_class(spec),
        )
      if spec.registry is not None:
        for name in self._parser.class_names(spec.flag, spec.registry):
          options = f"Options of --{spec.flag}."
          found = spec.registry[name]
          self._define(found, names, (spec.flag, name), options)
      elif issubclass(spec.type, config_lib.Config):
        self._define(spec.type, names, of_class, _first_line(spec.type))

  def create(self, **others: Any) -> _ConfigT:
    """Creates the configuration that the flags describe.

    Args:
      **others: Fields, also of parts, that are not flags, or are to be set in
        their place; of parts as `part__field`.

    Raises:
      errors.FieldError: If a field is out of its range, or a flag was given
        that no chosen class has.
    """
    self._used: set[str] = set()
    self._chosen: dict[str, str] = {}
    made = self._create(self._class, (), others)
    unused = [f for f in self._fields if f.spec.flag not in self._used]
    self._parser.refuse_unused(unused, self._chosen)
    return made

  def _create(
    self, config_class: Any, path: tuple[str, ...], others: Mapping[str, Any]
  ) -> Any:
    values = {}
    specs = [*map(self._read_spec, config_lib.specs(config_class))]
    for spec in specs:
      names = (*path, spec.name)
      if "__".join(names) in others:
        values[spec.name] = others["__".join(names)]
      elif self._skips(names):
        continue
      elif spec.registry is not None or spec.type in DEFINE:
        self._used.add(spec.flag)
        value = self._parser.value(spec.flag)
        if value is None:
          value = self._default_class(spec)
        if spec.registry is not None and value is not None:
          checks.check_choice(f"--{spec.flag}", value, spec.registry)
          self._chosen[spec.flag] = value
          value = self._create(spec.registry[value], names, others)
        elif value is not None:
          # Before any that is missing.
          config_lib.check(
            dataclasses.replace(spec, name=f"--{spec.flag}"), value
          )
        if value is not None:
          values[spec.name] = value
      elif issubclass(spec.type, config_lib.Config):
        values[spec.name] = self._create(spec.type, names, others)
    for spec in specs:
      if spec.default is dataclasses.MISSING and spec.name not in values:
        raise errors.FieldError(f"--{spec.flag}", "be given", "nothing")
    try:
      return config_class(**values)
    except errors.FieldError as error:
      # An error names the flag in place of the field.
      for spec in specs:
        if spec.name == error.name:
          raise error.renamed(f"--{spec.flag}") from error
      raise


def _first_line(config_class: type) -> str:
  return str(config_class.__doc__).partition("\n")[0]


def _show_default(default: Any) -> str:
  """A default for the help; nothing if there is none."""
  if default is None or default is dataclasses.MISSING or default in ("", ()):
    return ""
  if isinstance(default, tuple):
    return ",".join(map(str, default))
  return str(default).lower() if isinstance(default, bool) else str(default)
