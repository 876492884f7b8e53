"""Classes by name: those of the library, and yours as `module:Class`.

Flags, files and ledgers name the class of a part. A name without a colon is a
registered one; `module:Class` is imported when it is looked up.
"""

from collections.abc import Mapping
import dataclasses
import importlib
from typing import Any, TypeVar

from tff_fedemb import checks
from tff_fedemb import errors

_T = TypeVar("_T")

# Modules that have moved, by the names that files of runs have for them.
_MODULES = {
  "tff_fedemb.run.array_task": "tff_fedemb.spec.array_task",
}
_NAMES_IN_FILES = {module: name for name, module in _MODULES.items()}


def import_name(name: str) -> Any:
  """Imports an attribute of a module.

  Modules of the library that have moved are found under their old names too.

  Args:
    name: `module:name`.

  Returns:
    The attribute.

  Raises:
    KeyError: If the name has no colon.
    errors.DataError: If there is no such module or attribute.
  """
  module, colon, attribute = name.partition(":")
  if not colon:
    raise KeyError(name)
  module = _MODULES.get(module, module)
  try:
    return getattr(importlib.import_module(module), attribute)
  except (ImportError, AttributeError, ValueError) as error:
    raise errors.DataError(
      f"{name} must be a module, a colon and a name that can be imported from"
      f" it: {error}."
    ) from error


class Registry(dict[str, type[_T]]):
  """Dataclasses by the names that flags and files have for them.

  Every `module:Class` that can be imported is in it as well, but iteration
  leaves it out.
  """

  def __init__(
    self,
    base: Any,
    classes: Mapping[str, type[_T]],
    *,
    kind: str = "part",
  ):
    """Creates the registry of some subclasses of a class.

    Args:
      base: Base of every class, also of those that are imported.
      classes: Classes by name, in the order in which they are listed.
      kind: Kind of the classes in an error, for example "participation".
    """
    super().__init__(classes)
    self.base, self.kind = base, kind

  def __contains__(self, name: Any) -> bool:
    """Returns whether there is a class of this name.

    Args:
      name: Anything; a `module:Class` is imported to find out.

    Raises:
      errors.DataError: If there is no such `module:Class`, or it has another
        base.
    """
    is_own = isinstance(name, str) and ":" in name
    return super().__contains__(name) or (is_own and bool(self[name]))

  def __missing__(self, name: str) -> type[_T]:
    """Imports a class that is not registered.

    Raises:
      KeyError: If the name is no `module:Class`.
      errors.DataError: If there is no such class, or it has another base.
    """
    base = f"{self.base.__module__}.{self.base.__name__}"
    found = import_name(name)
    if not (isinstance(found, type) and issubclass(found, self.base)):
      raise errors.DataError(f"{name} must be a subclass of {base}.")
    return found

  def create(self, name: str, **fields: Any) -> _T:
    """Creates a configuration by name.

    Args:
      name: Name of its class.
      **fields: Its fields; None counts as not given.

    Returns:
      The configuration.

    Raises:
      errors.FieldError: If the name is unknown, a field out of its range or not
        one of this class, or a field without a default not given.
      errors.DataError: If the name is a `module:Class` that cannot be imported,
        or that has another base.
    """
    checks.check_choice(self.kind, name, self)
    found: Any = self[name]
    known = {field.name: field for field in dataclasses.fields(found)}
    fields = {key: value for key, value in fields.items() if value is not None}
    for key in fields.keys() - known.keys():
      raise errors.FieldError(
        key,
        f"not be given with {self.kind} {name}, which has no use for it",
        fields[key],
      )
    for key in known.keys() - fields.keys():
      # These are the same only if both are missing: there is no default.
      if known[key].init and known[key].default is known[key].default_factory:
        raise errors.FieldError(key, f"be given with {name}", "nothing")
    return found(**fields)

  def to_json(self, part: _T) -> dict[str, Any]:
    """Returns a part as JSON values, with the name of its class as `kind`.

    Args:
      part: A configuration of one of the classes.

    Returns:
      JSON values by field.

    Raises:
      TypeError: As `name_of`.
    """
    fields: Any = part
    return {"kind": self.name_of(part)} | fields.to_json()

  def from_json(self, values: Mapping[str, Any], *, name: str) -> _T:
    """Inverse of `to_json`.

    Args:
      values: JSON values by field, and the name of the class as `kind`.
      name: Name of the part's field, for an error.

    Returns:
      The configuration.

    Raises:
      errors.FieldError: If there is no such class, or as `Config.from_json`.
      errors.DataError: If `kind` is a `module:Class` that cannot be imported,
        or that has another base.
    """
    fields = dict(values)
    kind = fields.pop("kind", None)
    checks.check_choice(name, kind, self)
    found: Any = self[kind]
    return found.from_json(fields)

  def name_of(self, part: _T | type[_T]) -> str:
    """Returns the name of a class, or of an object's class.

    Args:
      part: A class, or an object.

    Returns:
      The registered name, or else `module:Class`.

    Raises:
      TypeError: If it has none: it is neither registered nor at the top of a
        module that can be imported.
    """
    found = part if isinstance(part, type) else type(part)
    for name, known in self.items():
      if known is found:
        return name
    if found.__module__ == "__main__" or "." in found.__qualname__:
      raise TypeError(
        f"{found.__qualname__} must be registered, or at the top of a module."
      )
    module = _NAMES_IN_FILES.get(found.__module__, found.__module__)
    return f"{module}:{found.__name__}"
