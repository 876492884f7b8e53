"""What makes a learning process happen: a runtime per way of executing it.

* `in_process` (the default): the TensorFlow of the process runs in this Python
  process, one client per GPU or, without any, per core.
* `tff`: TFF's C++ runtime in a `worker_binary` process, the reference that the
  others are compared with.

A runtime's module is imported when the runtime is created, so that one with
dependencies of its own costs nothing to those who do not ask for it.
"""

from collections.abc import Callable
from collections.abc import Mapping
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tff_fedemb.runtime import base


def _create_in_process_runtime(**options) -> "base.Runtime":
  from tff_fedemb.runtime import in_process

  return in_process.InProcessRuntime(**options)


def _create_tff_runtime(**options) -> "base.Runtime":
  from tff_fedemb.runtime import tff_native

  return tff_native.TffRuntime(**options)


RUNTIMES: Mapping[str, Callable[..., "base.Runtime"]] = types.MappingProxyType(
  {
    "in_process": _create_in_process_runtime,
    "tff": _create_tff_runtime,
  }
)


def create_runtime(name: str = "in_process", **options) -> "base.Runtime":
  """Creates a runtime.

  Args:
    name: A key of `RUNTIMES`.
    **options: Keyword arguments of that runtime's class; all of them accept
      `concurrent_clients`, `on_client_error` and `compute_precision`.

  Returns:
    The runtime; close it, or use it as a context manager.

  Raises:
    ValueError: If `name` is not a key of `RUNTIMES`.
  """
  if name not in RUNTIMES:
    raise ValueError(
      f"runtime must be one of {', '.join(sorted(RUNTIMES))}, found {name!r}."
    )
  return RUNTIMES[name](**options)
