"""Flags made from configurations, and configurations made from flags.

Each field of a `tff_fedemb.config.Config` becomes a flag of its name, type,
default and documentation. Where one of several configurations is chosen by name
(an aggregator, a way to take part), the fields of all of them become flags that
are not given unless the user gives them.
"""

from collections.abc import Collection, Mapping
import dataclasses
import re
import sys
from typing import Any, Generic, TypeVar

from absl import flags

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors

# The flags are those of the module that calls `define`.
flags.disclaim_key_flags()

_ConfigT = TypeVar("_ConfigT", bound=config_lib.Config)

_DEFINE = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  tuple: flags.DEFINE_list,
}
# Fields of mechanisms and participations that a program has for all of them.
PLANNED = (
  *("clients_per_round", "clip_norm", "noise_multiplier", "noise_seed"),
  *("num_users", "users_per_round", "users_per_client"),
)
# Flags by the name of the field that they set, where the two differ.
_FLAG_OF_FIELD: dict[str, str] = {}


def flag_name(field: str) -> str:
  """What the user types for a field, `--clip_norm`; the field if no flag."""
  for name in (_FLAG_OF_FIELD.get(field, field), field):
    if name in flags.FLAGS:
      return f"--{name}"
  return field


def _define(spec: config_lib.FieldSpec, name: str, default: Any, text: str):
  if spec.choices is not None:
    text = f"{text.rstrip('.')}: {', '.join(sorted(spec.choices))}."
  if name != spec.name:
    _FLAG_OF_FIELD[spec.name] = name
  # absl takes lists only.
  default = list(default) if isinstance(default, tuple) else default
  _DEFINE[spec.type](name, default, text)


def _value(spec: config_lib.FieldSpec, name: str) -> Any:
  value = flags.FLAGS[name].value
  return tuple(value) if spec.type is tuple and value is not None else value


def _create(config_class, values, flag_of):
  try:
    return config_class(**values)
  except errors.FieldError as error:
    if error.name not in flag_of:
      raise
    raise error.renamed(f"--{flag_of[error.name]}") from error


def values_by_flag(config: config_lib.Config) -> dict[str, Any]:
  """Returns the values of a configuration's fields by what sets them."""
  return {
    spec.flag: getattr(config, spec.name)
    for spec in config_lib.specs(type(config))
  }


class ConfigFlags(Generic[_ConfigT]):
  """The flags of one configuration, and their names."""

  def __init__(
    self,
    config_class: type[_ConfigT],
    *,
    rename: Mapping[str, str] | None = None,
    skip: tuple[str, ...] = (),
    details: Mapping[str, str] | None = None,
  ):
    """Defines the flags, as flags of the calling module.

    Args:
      config_class: The configuration.
      rename: Flags by the names of fields, where the two differ.
      skip: Fields of which there is no flag.
      details: What the help says after the documentation, by fields.
    """
    self._class = config_class
    rename, details = rename or {}, details or {}
    self._specs = {
      rename.get(spec.name, spec.flag): spec
      for spec in config_lib.specs(config_class)
      if spec.name not in skip and spec.type in _DEFINE
    }
    for name, spec in self._specs.items():
      is_missing = spec.default is dataclasses.MISSING
      default = None if is_missing else spec.default
      text = spec.documentation
      if spec.name in details:
        text += f"\n{details[spec.name]}"
      _define(spec, name, default, text)
    self.names = tuple(self._specs)

  def create(self, **others: Any) -> _ConfigT:
    """Creates the configuration that the flags describe.

    Others are fields that are not flags, or are to be set in their place.

    Raises:
      errors.FieldError: If a field is out of its range.
    """
    values = {
      spec.name: _value(spec, name) for name, spec in self._specs.items()
    }
    flag_of = {spec.name: name for name, spec in self._specs.items()}
    return _create(self._class, {**values, **others}, flag_of)


def _own(choice: str, configs: Collection[str]) -> list[str]:
  """Classes of one's own, `module:Class`, that the command line chooses.

  It is not parsed yet: they have flags that are to be defined for that.
  """
  try:
    words = flags.FLAGS.read_flags_from_files(sys.argv[1:])
  except flags.Error:
    return []  # It will be said.
  given = re.findall(rf"^--?{choice}[=\n](.+:.+)$", "\n".join(words), re.M)
  try:
    return [name for name in given if name in configs]
  except errors.DataError as error:
    print(f"error: --{choice}: {error}", file=sys.stderr)
    sys.exit(1)


class ChoiceFlags(Generic[_ConfigT]):
  """The flags of several configurations, of which one is chosen by name."""

  def __init__(
    self,
    choice: str,
    configs: Mapping[str, type[_ConfigT]],
    *,
    rename: Mapping[str, str] | None = None,
    skip: tuple[str, ...] = (),
  ):
    """Defines the flags, as flags of the calling module.

    Args:
      choice: What is chosen, as an error names it, for example "aggregator".
      configs: Configurations by name.
      rename: Flags by the names of fields, where the two differ.
      skip: Fields of which there is no flag.
    """
    self._choice, self._configs = choice, configs
    self._rename = dict(rename or {})
    self._specs: dict[str, config_lib.FieldSpec] = {}
    users: dict[str, list[str]] = {}
    defaults: dict[str, dict[str, Any]] = {}
    for name in sorted({*configs, *_own(choice, configs)}):
      for spec in config_lib.specs(configs[name]):
        if spec.name not in skip and spec.type in _DEFINE:
          flag = self._rename.get(spec.name, spec.flag)
          self._specs.setdefault(flag, spec)
          users.setdefault(flag, []).append(name)
          if spec.default not in (None, dataclasses.MISSING):
            defaults.setdefault(flag, {})[name] = spec.default
    for flag, spec in self._specs.items():
      text = f"{spec.documentation.rstrip('.')} ({choice}"
      text += f" {', '.join(users[flag])})"
      found = defaults.get(flag, {})
      if len(set(found.values())) == 1:
        text += f" [{spec.default}]"
      elif found:
        text += f" [{', '.join(f'{name} {x}' for name, x in found.items())}]"
      _define(spec, flag, None, text + ".")
    self.names = tuple(self._specs)

  @property
  def given(self) -> dict[str, Any]:
    """Fields whose flags were given."""
    return {
      spec.name: _value(spec, flag)
      for flag, spec in self._specs.items()
      if flags.FLAGS[flag].value is not None
    }

  def check(self, name: str) -> None:
    """Checks the flags that were given, where other fields are not known yet.

    Args:
      name: Of the configuration that will be created.

    Raises:
      errors.FieldError: As of `create`.
    """
    values, _ = self._read(name, {})
    for spec in config_lib.specs(self._configs[name]):
      if spec.name in values:
        config_lib.check(spec, values[spec.name])

  def create(self, name: str, **others: Any) -> _ConfigT:
    """Creates the configuration of this name from the flags that were given.

    Others are fields that are not flags, or are to be set in their place.

    Raises:
      errors.FieldError: If the name is unknown, a flag was given that the
        configuration has no use for, or a field is out of its range.
    """
    values, flag_of = self._read(name, others)
    return _create(self._configs[name], values, flag_of)

  def _read(
    self, name: str, others: Mapping[str, Any]
  ) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the values of fields, and flags by their fields."""
    checks.check_choice(self._choice, name, self._configs)
    fields = {spec.name for spec in config_lib.specs(self._configs[name])}
    flag_of = {spec.name: flag for flag, spec in self._specs.items()}
    values = self.given | dict(others)
    for field in sorted(values.keys() - fields):
      raise errors.FieldError(
        f"--{flag_of[field]}" if field in flag_of else field,
        f"not be set with {self._choice} {name}, which has no use for it",
        values[field],
      )
    return values, flag_of
