"""Keeps out modules that the libraries import but that no longer run.

TensorFlow Federated 0.87 and TensorFlow Privacy 0.9 were published for
TensorFlow 2.14. They run on TensorFlow 2.21, but for three imports:

* Both write `tf.keras` and mean Keras 2, which TensorFlow now takes from the
  package `tf_keras` if `TF_USE_LEGACY_KERAS` is set.
* TensorFlow Privacy imports its estimators. They need `tensorflow_estimator`,
  which has been discontinued.
* TFF imports its JAX frontend. jaxlib and TensorFlow register the same protocol
  buffers, and a process that loads both ends at once.

Two more packages take two of the seven seconds of an import of TFF, and are
executed only when they are used: TensorFlow Probability, and the layers of
TensorFlow Model Optimization, which load Keras 3 and matplotlib.

TensorFlow also writes a line about oneDNN, whatever the level of its log. If
`TF_CPP_MIN_LOG_LEVEL` is set, as programs do, importing it writes nothing.

`import tff_fedemb` calls `prepare`, which takes no time and loads nothing:
packages that are kept out become empty ones when they are imported.
"""

from collections.abc import Sequence
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import threading
import types
from typing import Any

# Packages, each with all modules below it.
KEPT_OUT = (
  "tensorflow_federated.python.core.environments.jax_frontend",
  "tensorflow_privacy.privacy.estimators",
)

_MODEL_OPTIMIZATION = "tensorflow_model_optimization.python.core.api"
# Packages that are executed when one of their names is first used.
EXECUTED_LATE = (
  "tensorflow_probability",
  f"{_MODEL_OPTIMIZATION}.clustering.keras",
  f"{_MODEL_OPTIMIZATION}.experimental.combine",
  f"{_MODEL_OPTIMIZATION}.quantization.keras",
  f"{_MODEL_OPTIMIZATION}.sparsity.keras",
)

# Re-entrant, because a module that is executed may use another late one.
_LATE_LOCK = threading.RLock()
_EXECUTING: set[str] = set()
_PACKAGE = pathlib.Path(__file__).parent


def _wants_quiet() -> bool:
  """Whether TensorFlow's log should be silent at its start."""
  return os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") != "0"


def _make_quiet(loader: importlib.abc.Loader) -> None:
  """Makes a loader execute its module without writing to file descriptor 2.

  TensorFlow writes there that oneDNN is on, whatever the level of its log.
  """
  execute = loader.exec_module

  def execute_quietly(module: types.ModuleType) -> None:
    """Executes the module while standard error leads nowhere."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
      os.dup2(nowhere, 2)
      execute(module)
    finally:
      os.dup2(kept, 2)
      os.close(kept)
      os.close(nowhere)

  # mypy takes a method for something that no instance may replace.
  setattr(loader, "exec_module", execute_quietly)  # noqa: B010


class _LateModule(types.ModuleType):
  """A module that is executed when one of its names is first used.

  `importlib.util.LazyLoader` would execute it as soon as it is asked for its
  `__file__`, and TensorFlow asks all modules for theirs.
  """

  def __getattr__(self, name: str) -> Any:
    """Executes the module on the first use of a name that it lacks.

    Names that begin with two underscores do not count, except for those of its
    version and its exports.

    Raises:
      AttributeError: If the executed module lacks the name too.
    """
    if name.startswith("__") and name not in ("__all__", "__version__"):
      raise AttributeError(name)
    self._execute()
    return types.ModuleType.__getattribute__(self, name)

  def __dir__(self) -> list[str]:
    """Executes the module, and lists its names."""
    self._execute()
    return list(types.ModuleType.__dir__(self))

  def _execute(self) -> None:
    """Executes it, unless that is done or this thread is doing it."""
    with _LATE_LOCK:
      name = self.__name__
      if not isinstance(self, _LateModule) or name in _EXECUTING:
        return
      loader = self.__loader__
      assert isinstance(loader, importlib.abc.Loader)
      _EXECUTING.add(name)
      try:
        loader.exec_module(self)
      finally:
        _EXECUTING.discard(name)
      self.__class__ = types.ModuleType  # type: ignore[assignment]


class _LateLoader(importlib.abc.Loader):
  """Loads a module that another loader executes, but later.

  It hands the other loader to the module, which calls it on its first use.
  """

  def __init__(self, loader: importlib.abc.Loader):
    self._loader = loader

  def create_module(
    self, spec: importlib.machinery.ModuleSpec
  ) -> types.ModuleType:
    """Creates the empty module that waits for its first use."""
    return _LateModule(spec.name)

  def exec_module(self, module: types.ModuleType) -> None:
    """Leaves the module empty, for now."""
    assert module.__spec__ is not None
    module.__loader__ = module.__spec__.loader = self._loader


class _EmptyModule(types.ModuleType):
  """A module in which an import finds every name."""

  def __getattr__(self, name: str) -> Any:
    """Returns None for every name that does not begin with two underscores.

    Raises:
      AttributeError: For the others, which Python itself asks for.
    """
    if name.startswith("__"):
      raise AttributeError(name)
    return None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  """Answers imports of packages that are kept out with empty ones.

  It also delays packages of `EXECUTED_LATE`, and silences that of TensorFlow.
  """

  def find_spec(
    self,
    fullname: str,
    path: Sequence[str] | None,
    target: types.ModuleType | None = None,
  ) -> importlib.machinery.ModuleSpec | None:
    """Finds the modules that are treated here; None leaves others to Python."""
    is_quiet = fullname == "tensorflow" and _wants_quiet()
    if is_quiet or fullname in EXECUTED_LATE:
      spec = importlib.machinery.PathFinder.find_spec(fullname, path)
      if spec is None or spec.loader is None:
        return spec
      if is_quiet:
        _make_quiet(spec.loader)
      else:
        spec.loader = _LateLoader(spec.loader)
      return spec
    if any(f"{fullname}.".startswith(f"{name}.") for name in KEPT_OUT):
      return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
    return None

  def create_module(
    self, spec: importlib.machinery.ModuleSpec
  ) -> types.ModuleType:
    """Creates a module in which an import finds every name."""
    return _EmptyModule(spec.name)

  def exec_module(self, module: types.ModuleType) -> None:
    """Leaves the module empty."""


def _find_tasks_and_programs() -> None:
  """Makes `tasks` and `binaries` importable from any directory.

  They come last, so that a package of the user's own with such a name wins.
  """
  for place in (_PACKAGE / "side", _PACKAGE.parent):
    if (place / "tasks" / "registry.py").exists():
      if str(place) not in sys.path:
        sys.path.append(str(place))
      return


def prepare() -> None:
  """Makes later imports of TensorFlow Federated and Privacy work.

  You may call it again. TensorFlow and Keras 3 may have been imported before,
  as long as nobody has used `tf.keras`, and an import of TFF may have failed
  before.

  Raises:
    ImportError: If `tf.keras` is Keras 3 already.
  """
  _find_tasks_and_programs()
  os.environ["TF_USE_LEGACY_KERAS"] = "1"
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    # Before the others, which would find the real estimators and frontend.
    sys.meta_path.insert(0, _Finder())
  if "tensorflow_federated" not in sys.modules:
    # An import of TFF that failed leaves parts that would fail the next one.
    for name in list(sys.modules):
      if name.startswith("tensorflow_federated."):
        del sys.modules[name]
  tensorflow = sys.modules.get("tensorflow")
  if tensorflow and not tensorflow.keras.__name__.startswith("tf_keras."):
    raise ImportError(
      "tf.keras is Keras 3 in this process, and TensorFlow Federated needs"
      " Keras 2: restart, and import tff_fedemb before you use tf.keras, or set"
      " TF_USE_LEGACY_KERAS=1."
    )
