"""Runtimes: each executes a learning process in a way of its own.

Rounds, evaluation and feature extraction run on one that `RuntimeConfig` names.

* `in_process` (the default): the TensorFlow of the process runs in this Python
  process, one client per GPU or, without any, per core.
* `ray`: clients run on the machines of a Ray cluster.
* `tflite`: each client is a process without TensorFlow that runs the file for
  phones; it is in `phones`.
* `tff`: TFF's C++ runtime in a `worker_binary` process, the reference that the
  others are compared with.

Read `base` first, the contract, then `in_process` and `client_fold`. A
runtime's module is imported when the runtime is created, so that one with
dependencies of its own costs nothing to those who do not ask for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import contextlib
import dataclasses
import importlib
import types
from typing import TYPE_CHECKING, Any

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.runtime import precision

if TYPE_CHECKING:
  from tff_fedemb.runtime import base

# Possible reactions of a round to a client whose computation fails.
ON_CLIENT_ERROR = ("fail", "skip")

# Runtimes that take a field. Fields that are not listed are for all of them.
_TAKEN_BY = {
  "on_client_error": ("in_process", "ray", "tflite"),
  "compute_precision": ("in_process", "ray"),
  "require_gpu": ("in_process",),
}

# Fields of a `RuntimeConfig` that `open_map` does not use.
OF_ROUNDS = (
  "concurrent_clients",
  "on_client_error",
  "secure_sum_threshold",
  "compute_precision",
  "require_gpu",
  "ray_clients_per_chunk",
)


# Module and class of each runtime.
RUNTIMES: Mapping[str, tuple[str, str]] = types.MappingProxyType(
  {
    "in_process": ("tff_fedemb.runtime.in_process", "InProcessRuntime"),
    "ray": ("tff_fedemb.runtime.ray", "RayRuntime"),
    "tflite": ("tff_fedemb.phones.litert", "TfliteRuntime"),
    "tff": ("tff_fedemb.runtime.tff_native", "TffRuntime"),
  }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeConfig(config_lib.Config):
  """How rounds are executed.

  Attributes:
    runtime: Runtime that executes the rounds.
    concurrent_clients: Clients that run at a time [one per GPU, or per core
      without a GPU; two per core with runtime tff]; of each worker with runtime
      ray. If there are fewer clients than cores, each runs on several cores
      (runtime in_process), which suits rounds of few, large clients.
    on_client_error: Reaction to a client whose data or training fails; fail
      ends the run, skip goes on without the client (not with runtime tff).
    secure_sum_threshold: Share of a round's clients that have to last until its
      end if the aggregator sums securely; with fewer the round fails (matters
      to on_client_error skip).
    compute_precision: How clients multiply on a CPU, float32 or mixed_bfloat16,
      which is less precise, and faster on processors that have it (with runtime
      in_process or ray).
    require_gpu: Whether to end the program, with the reason, if it can use no
      GPU. A GPU that it can use is used without this as well (by runtime
      in_process).
    ray_address: With runtime ray, the cluster: HOST:PORT of its head, or auto
      on a machine of it [a Ray of this machine's cores, for this program].
    ray_workers: Workers [as many as the cluster has room for, also when it
      grows].
    ray_worker_cores: Cores of a worker, which runs a client on each.
    ray_worker_gpus: GPUs of a worker, or less than one of them; it runs one
      client at a time.
    ray_clients_per_chunk: Clients whose updates a worker adds up before they
      are sent [a 64th of a round's; of small models a 12th, up to 8 MB of
      updates; from 1 to 16]. No other option of Ray's changes the rounding of
      results.

  Raises:
    errors.FieldError: If a field is out of its range, is given for a runtime
      that has no use for it, or a GPU is required and TensorFlow finds none.

  Examples:
    >>> fe.Runtime(runtime="ray", ray_workers=4).ray_workers
    4
  """

  runtime: str = config_lib.field("in_process", choices=RUNTIMES)
  concurrent_clients: int | None = config_lib.field(
    None, minimum=1, decides=False
  )
  on_client_error: str = config_lib.field(
    "fail", choices=ON_CLIENT_ERROR, decides=False
  )
  # Against a server that cheats, Bonawitz et al. 2017 need more than this.
  secure_sum_threshold: float = config_lib.field(
    2 / 3, above=0, maximum=1, decides=False
  )
  compute_precision: str = config_lib.field(
    precision.FLOAT32, choices=precision.PRECISIONS
  )
  require_gpu: bool = config_lib.field(False, decides=False)
  ray_address: str | None = config_lib.field(None, decides=False)
  ray_workers: int | None = config_lib.field(None, minimum=1, decides=False)
  ray_worker_cores: int = config_lib.field(1, minimum=1, decides=False)
  ray_worker_gpus: float = config_lib.field(0.0, minimum=0, decides=False)
  ray_clients_per_chunk: int | None = config_lib.field(None, minimum=1)

  def __post_init__(self):
    super().__post_init__()
    gpus = self.ray_worker_gpus
    if 0 < gpus < 1e-4 or not (gpus < 1 or gpus.is_integer()):
      raise errors.FieldError(
        "ray_worker_gpus", "be a whole number, or from 0.0001 to 1", gpus
      )
    for spec in config_lib.specs(type(self)):
      taken_by: Iterable[str] = _TAKEN_BY.get(spec.name, RUNTIMES)
      if spec.name.startswith("ray_"):
        taken_by = ("ray",)
      is_default = getattr(self, spec.name) == spec.default
      if self.runtime not in taken_by and not is_default:
        raise errors.FieldError(
          spec.name,
          f"be given with runtime {' or '.join(taken_by)}",
          f"runtime {self.runtime}",
        )
    # Importing TensorFlow takes seconds, so it waits until it is needed.
    if self.require_gpu and not importlib.import_module(
      "tensorflow"
    ).config.list_physical_devices("GPU"):
      raise errors.FieldError(
        "require_gpu",
        "find a GPU that TensorFlow can use (with TF_CPP_MIN_LOG_LEVEL=0 in the"
        " environment its log says what is missing)",
        "none",
      )

  def create(self) -> "base.Runtime":
    """Creates the runtime; close it, or use it as a context manager.

    The runtime's module is imported here; a Ray cluster is started or joined.

    Returns:
      A runtime without a process; call `initialize` next.

    Raises:
      errors.FieldError: If this machine or cluster cannot do what the
        configuration says, or if this process is a fork of one that ran
        TensorFlow.
    """
    checks.check_not_forked()
    module, name = RUNTIMES[self.runtime]
    return getattr(importlib.import_module(module), name)(self)

  def open_map(
    self,
  ) -> contextlib.AbstractContextManager[Callable[..., Iterator[Any]]]:
    """Opens a `map` for work other than rounds.

    Returns:
      A context with Python's `map`, or with one that pickles its function and
      runs on the cluster. Results are in the order of the chunks either way.

    Raises:
      errors.FieldError: If the runtime cannot do that, or as in `create`.
    """
    if self.runtime == "ray":
      cluster = importlib.import_module("tff_fedemb.runtime.ray_cluster")
      return cluster.open_map(self)
    if self.runtime != "in_process":
      raise errors.FieldError(
        "runtime",
        "be in_process or ray where there are no rounds",
        self.runtime,
      )
    return contextlib.nullcontext(map)


def create_runtime(name: str = "in_process", **options: Any) -> "base.Runtime":
  """Creates a runtime.

  `create_runtime(concurrent_clients=2)` and
  `fe.Runtime(concurrent_clients=2).create()` are the same.

  Args:
    name: A key of `RUNTIMES`.
    **options: Other fields of `RuntimeConfig`.

  Returns:
    A runtime without a process; close it, or use it as a context manager.

  Raises:
    errors.FieldError: As `RuntimeConfig` and its `create`.
  """
  return RuntimeConfig(runtime=name, **options).create()
