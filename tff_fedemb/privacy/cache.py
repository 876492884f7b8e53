"""Answers that were computed before, on disk.

An entry is found by everything that determines it: the function's name, its
arguments, the versions of the libraries that compute, and the source text of
this package and of the strategies. The cache never changes an answer and is
never in the way of one: an entry that is damaged counts as absent, and a
directory that cannot be written as empty.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import contextvars
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import tempfile
from typing import Any

_LIBRARIES = ("dp-accounting", "numpy", "scipy")
_SOURCES = ("privacy", "strategies")

_directory: contextvars.ContextVar[pathlib.Path | None]
_directory = contextvars.ContextVar("accounting_cache", default=None)


def default_directory() -> pathlib.Path:
  """Where programs keep the cache unless they are told otherwise."""
  return pathlib.Path("~/.cache/tff_fedemb/accounting").expanduser()


@contextlib.contextmanager
def on_disk(directory: str | os.PathLike[str]) -> Iterator[None]:
  """Lets `remember` use a directory while the context lasts.

  Args:
    directory: Made when there is something to write; may be shared by programs
      that run at the same time.
  """
  token = _directory.set(pathlib.Path(directory))
  try:
    yield
  finally:
    _directory.reset(token)


def remember(
  name: str, arguments: Mapping[str, Any], compute: Callable[[], Any]
) -> Any:
  """Returns what `compute` returns, from the cache if it is there.

  Args:
    name: What is computed.
    arguments: All that determines it, JSON values by name.
    compute: Takes nothing and returns a JSON value; floats may be infinite.
  """
  directory = _directory.get()
  if directory is None:
    return compute()
  key = json.dumps(
    {"name": name, "arguments": dict(arguments), "code": _code()},
    sort_keys=True,
  )
  path = directory / f"{_digest(key)}.json"
  found = _read(path, key)
  if found is None:
    # In a list, so that None is a value as well.
    found = [compute()]
    _write(path, key, found)
  return found[0]


def _read(path: pathlib.Path, key: str) -> list[Any] | None:
  try:
    entry = json.loads(path.read_text(encoding="utf-8"))
    value = entry["value"]
    if entry["key"] == key and entry["digest"] == _digest(key + value):
      return json.loads(value)
  except (OSError, ValueError, TypeError, KeyError, RecursionError):
    pass
  return None


def _write(path: pathlib.Path, key: str, value: list[Any]) -> None:
  text = json.dumps(value)
  entry = {"key": key, "value": text, "digest": _digest(key + text)}
  temporary = None
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own for each writer, and nothing half-written in sight.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    with open(descriptor, "w", encoding="utf-8") as file:
      json.dump(entry, file)
    os.replace(temporary, path)
  except OSError:
    if temporary is not None:
      with contextlib.suppress(OSError):
        os.unlink(temporary)


def _digest(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _code() -> dict[str, str]:
  """What computes: versions of libraries, digests of our own source."""
  package = pathlib.Path(__file__).resolve().parents[1]
  versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
  for name in _SOURCES:
    source = hashlib.sha256()
    for path in sorted((package / name).glob("*.py")):
      source.update(f"{path.name}\0".encode() + path.read_bytes())
    versions[name] = source.hexdigest()
  return versions
