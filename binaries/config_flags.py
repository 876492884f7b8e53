"""Flags made from configurations, and configurations made from flags.

A program needs one function:

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
# The help does not list the classes of a flag if more than these have it.
_MOST_CLASSES = 6
# Functions that define a flag, by the type of its value.
DEFINE: dict[type, Callable[..., Any]] = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  tuple: flags.DEFINE_list,
}
# Fields that all mechanisms or participations have, for programs that have a
# flag of their own for them.
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
    words = list(expand(argv[1:]))
    flags_and_values = [x.partition("=") for x in words if x.startswith("-")]
    # Flags of the command line itself, not of its flagfiles.
    self._typed = {flag.lstrip("-") for flag, _, _ in flags_and_values}
    self._words = flagfiles.expand(words)
    self._values = flags.FlagValues()
    self._fields: dict[str, list[Field]] = {}
    self._titles: dict[str, list[str]] = {}
    self._flag_of: dict[str, str] = {}

  def __enter__(self) -> "Parser":
    return self

  def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
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

    It is for a program that creates the chosen one itself, or several of them.

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
        if spec.name in skip or spec.type not in DEFINE:
          continue
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
      errors.FieldError: If an argument is not allowed, or a field of your own
        class would share the flag of another part.
      errors.DataError: If a flag is unknown, or its value of another type.
    """
    for flag, fields in self._fields.items():
      _check_not_shared(flag, fields)
    self._print_help()
    try:
      _, *arguments = self._values([self._name, *self._words])
    except flags.Error as error:
      message = " ".join(str(error).split()).rstrip(".")
      raise errors.DataError(
        f"{message}. --helpshort lists the flags."
      ) from None
    must, others, is_command = "be flags (--name=value)", arguments, True
    if commands:
      arguments = arguments or list(commands[:1])
      must = f"be one of {', '.join(commands)}, and flags (--name=value)"
      is_command, others = arguments[0] in commands, arguments[1:]
    if not is_command or (others and not takes_arguments):
      raise errors.FieldError("arguments", must, repr(" ".join(arguments)))
    return arguments

  def _print_help(self) -> None:
    """Ends the program with its help, if the command line asks for it."""
    if self._typed.isdisjoint(_HELP):
      return
    sections = {}
    for title, names in self._titles.items():
      sections[title] = list(map(self._describe, names))
    is_full = _FULL_HELP in self._typed
    print(help_text.render(self._documentation, sections, is_full=is_full))
    sys.exit(0)

  def value(self, flag: str) -> Any:
    """The value of a flag; None if it was not given."""
    value = self._values[flag].value
    return tuple(value) if isinstance(value, list) else value

  def set(self, values: Mapping[str, Any]) -> None:
    """Sets flags, as if the user had given them."""
    for flag, value in values.items():
      setattr(self._values, flag, value)

  def given(self, flag_of: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the flags that have a value, by the names that `flag_of` has."""
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
    """Returns the registered names, and each `module:Class` that is typed.

    The flags of such a class must be defined before the command line is parsed.
    """
    names = dict.fromkeys(registry)
    for word, after in itertools.pairwise([*self._words, ""]):
      name, equals, value = word.lstrip("-").partition("=")
      if not word.startswith("-") or name != flag:
        continue
      value = value if equals else after
      try:
        if ":" in value and value in registry:
          names[value] = None
      except errors.DataError as error:
        raise errors.DataError(f"--{flag}: {error}") from error
    return list(names)

  def refuse_unused(
    self, fields: Collection[Field], chosen: Mapping[str, str]
  ) -> None:
    """Refuses flags of the command line that no chosen class has.

    Args:
      fields: Fields of a configuration that its flags did not set.
      chosen: Names of its classes by the flags that choose them.
    """
    for field in fields:
      flag = field.spec.flag
      is_typed = not self._typed.isdisjoint((flag, f"no{flag}"))
      if is_typed and all(known in fields for known in self._fields[flag]):
        choice, _ = field.of_class or ("", "")
        must = f"be set with {choice} only"
        if choice in chosen:
          name = f"{choice} {chosen[choice]}"
          must = f"not be set with {name}, which has no use for it"
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
    """Names the classes that have a flag, if they are few."""
    used_with = dict.fromkeys(
      field.of_class for field in self._fields[flag] if field.of_class
    )
    choices = {choice for choice, _ in used_with}
    if len(choices) != 1 or len(used_with) > _MOST_CLASSES:
      return ""
    names = ", ".join(name for _, name in used_with)
    return f" (--{choices.pop()}={names})"


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
    """Whether a field has no flag."""
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
        field = Field(spec, of_class, is_of_part=bool(path))
        self._fields.append(field)
        self._parser.define(
          field,
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
    """Creates the configuration of a class, and the parts in it."""
    values = {}
    specs = list(map(self._read_spec, config_lib.specs(config_class)))
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
        if value is None:
          continue
        if spec.registry is not None:
          checks.check_choice(f"--{spec.flag}", value, spec.registry)
          self._chosen[spec.flag] = value
          value = self._create(spec.registry[value], names, others)
        else:
          # A wrong value is told before one that is missing.
          named = dataclasses.replace(spec, name=f"--{spec.flag}")
          config_lib.check(named, value)
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


def _check_not_shared(flag: str, fields: Sequence[Field]) -> None:
  """Refuses a field of a `module:Class` with the flag of another part.

  The parts of the project share flags on purpose, and so may a class that
  inherits their fields.

  Args:
    flag: The flag.
    fields: All fields that have it.

  Raises:
    errors.FieldError: If a class of your own brings it to another part.
  """
  owners = {}
  for field in fields:
    choice, name = field.of_class or ("", "")
    owners.setdefault(choice, []).append(name)
  for choice, names in owners.items():
    if len(owners) > 1 and all(":" in name for name in names):
      raise errors.FieldError(
        f"--{choice}",
        "have fields with flags of their own",
        f"{names[0]} with --{flag}, a flag of another part",
        f'config.field(..., flag="my_{flag}") gives it another one.',
      )


def _first_line(config_class: type) -> str:
  return str(config_class.__doc__).partition("\n")[0]


def _show_default(default: Any) -> str:
  """A default for the help; nothing if there is none."""
  if default is None or default is dataclasses.MISSING or default in ("", ()):
    return ""
  if isinstance(default, tuple):
    return ",".join(map(str, default))
  return str(default).lower() if isinstance(default, bool) else str(default)
