"""Flags of the fields of several classes, one of which is chosen later.

For a program that names a class of its own accord, or several at once.
"""

from collections.abc import Collection, Mapping
from typing import Any

from binaries import config_flags
from tff_fedemb import config as config_lib

# Fields of mechanisms and participations that a program has for all of them.
PLANNED = (
  *("clients_per_round", "clip_norm", "noise_multiplier", "noise_seed"),
  *("num_users", "users_per_round", "users_per_client"),
)


class ChoiceFlags:
  """The fields of all classes of a registry, one of which is chosen later."""

  def __init__(
    self,
    parser: config_flags.Parser,
    choice: str,
    registry: Mapping[str, Any],
    skip: Collection[str] = (),
  ):
    """Defines the flags.

    Args:
      parser: The program's.
      choice: Name of the choice in an error, for example "mechanism".
      registry: The classes by name.
      skip: Fields that have no flag.
    """
    self._parser = parser
    self._flag_of: dict[str, str] = {}
    for name in (*registry, *parser.own_names(choice, registry)):
      found = registry[name]
      for spec in config_lib.specs(found):
        if spec.name not in skip and spec.type in config_flags.DEFINE:
          self._flag_of[spec.name] = spec.flag
          field = config_flags.Field(spec, ((choice, name),))
          parser.define(
            field,
            title=f"Options of --{choice}.",
            default=config_flags.show_default(spec.default),
          )
    self.names = tuple(self._flag_of.values())

  @property
  def given(self) -> dict[str, Any]:
    """Fields whose flags were given."""
    values = {n: self._parser.value(f) for n, f in self._flag_of.items()}
    return {name: value for name, value in values.items() if value is not None}
