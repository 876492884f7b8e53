"""Classes by name: those of the library, and one's own as `module:Class`."""

from collections.abc import Mapping
import importlib
from typing import Any, TypeVar

from tff_fedemb import errors

_T = TypeVar("_T")


class Registry(dict[str, type[_T]]):
  """Classes by the names that flags and files have for them.

  Every `module:Class` that can be imported is in it as well, though iteration
  leaves it out.
  """

  def __init__(self, base: Any, classes: Mapping[str, type[_T]]):
    """Creates the registry of some subclasses of a class.

    Args:
      base: What every class has to be.
      classes: By name.
    """
    super().__init__(classes)
    self._base = base

  def __contains__(self, name: Any) -> bool:
    is_own = isinstance(name, str) and ":" in name
    return super().__contains__(name) or (is_own and bool(self[name]))

  def __missing__(self, name: str) -> type[_T]:
    """Imports a class of one's own.

    Raises:
      KeyError: If it is no `module:Class`.
      errors.DataError: If there is no such class, or it has another base.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
      raise KeyError(name)
    base = f"{self._base.__module__}.{self._base.__name__}"
    try:
      found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
      raise errors.DataError(
        f"{name} must be the module and the name of a class that can be"
        f" imported: {error}."
      ) from error
    if not (isinstance(found, type) and issubclass(found, self._base)):
      raise errors.DataError(f"{name} must be a subclass of {base}.")
    return found

  def name_of(self, part: _T) -> str:
    """Returns what the class of an object is found by.

    Raises:
      TypeError: If it cannot be found: it is neither registered nor at the top
        of a module that can be imported.
    """
    found = type(part)
    for name, known in self.items():
      if known is found:
        return name
    if found.__module__ == "__main__" or "." in found.__qualname__:
      raise TypeError(
        f"{found.__qualname__} must be registered, or at the top of a module."
      )
    return f"{found.__module__}:{found.__name__}"
