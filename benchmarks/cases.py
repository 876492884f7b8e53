"""Cases of the benchmark of training, and the programs that do their work.

It does not import TensorFlow, which the measuring process has no use for.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import importlib.util
import json
import os
import sys
import types

from benchmarks import results
from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.runtime import precision as precision_lib

# A backbone of 25 million parameters whose step is cheap: what is left is what
# a framework does with the weights.
DENSE = "dense25m"
# The network of pfl-research's benchmark on CIFAR-10.
SIMPLE_CNN = "simple_cnn"
# Models of TFF's tutorials, which TFF's own algorithm trains.
LINEAR, SOFTMAX, GRU = STOCK = ("linear", "softmax", "gru")
PFL_RESEARCH = "pfl_research"

_ALL = ("bare", "in_process", "tff")
# Clients' data alone, which nobody trains on.
DATA = "data"
_LENET = "lenet_10x20x20"
_BFLOAT16 = precision_lib.MIXED_BFLOAT16
# Like a cohort of devices: many clients with little work, read from storage.
_WRITERS = "convnet_512x2x16"
# The case has 50 of 1,000 users a round, and images that are made up.
_CIFAR10 = "cifar10_50x5x10"
# Users are symbols of about eight images, four to a client.
_SYMBOLS = "symbols_1024x32"
USERS_PER_CLIENT = 4


@dataclasses.dataclass(frozen=True)
class Case:
  """Work of one size.

  Attributes:
    num_clients: Clients of a round.
    steps: Batches that each client trains on.
    batch_size: Images of a batch.
    backbone: Its name in the registry, `DENSE`, `SIMPLE_CNN` or, in place of a
      backbone, one of `STOCK`.
    image_shape: Height, width and channels of what the backbone is given.
    aggregator: Its name in the registry.
    num_writers: Number of users in a database of handwriting that clients read;
      `None` for random pixels, which are made where they are used.
    num_symbols: Number of users of task `symbols`, some of whom a client
      merges; `None` for other data.
    num_classes: Number of classes of random pixels, and of the bare loop.
    learning_rate: Learning rate of clients.
    compute_precision: Precision of the clients.
    runtimes: Programs that take turns on it.
  """

  num_clients: int
  steps: int
  batch_size: int
  backbone: str = "lenet"
  image_shape: tuple[int, int, int] = (28, 28, 1)
  aggregator: str = aggregators.DEFAULT
  num_writers: int | None = None
  num_symbols: int | None = None
  num_classes: int = 36
  learning_rate: float = 0.05
  compute_precision: str = precision_lib.FLOAT32
  runtimes: tuple[str, ...] = _ALL

  def client_ids(self, round_num: int) -> list[str]:
    """The clients of a round, other ones than of the round before."""
    first = round_num * self.num_clients
    numbers = range(first, first + self.num_clients)
    return [str(n % (self.num_writers or sys.maxsize)) for n in numbers]


_GROWTH = {
  f"lenet_{n}x2x16_growth": Case(n, 2, 16) for n in (10, 50, 200, 1000)
}
# The bare loop has no correlated noise; banded noise would hold this model a
# hundred times.
_DENSE_CASES = {
  f"dense25m_4x1x16_{name}": Case(
    *(4, 1, 16, DENSE),
    aggregator=name,
    runtimes=_ALL if name == aggregators.DEFAULT else _ALL[1:],
  )
  for name, known in aggregators.AGGREGATORS.items()
  if known.is_compared and not getattr(known.strategy_class, "is_banded", False)
}
_CIFAR10_CASE = Case(
  *(50, 5, 10, SIMPLE_CNN, (32, 32, 3)), num_classes=10, learning_rate=0.1
)
# Photos in a large network.
_LARGE = functools.partial(Case, 4, 2, 16, runtimes=_ALL[:2])
_STOCK = functools.partial(Case, runtimes=_ALL[1:])
# The same work on a Ray of this machine.
_RAY = {
  "lenet_50x10x16": Case(50, 10, 16),
  "dense25m_4x1x16": Case(4, 1, 16, DENSE),
  **{f"lenet_{n}x2x16": Case(n, 2, 16) for n in (100, 1000)},
}
CASES: Mapping[str, Case] = types.MappingProxyType(
  {
    _LENET: Case(10, 20, 20),
    f"{_LENET}_{_BFLOAT16}": Case(
      *(10, 20, 20), compute_precision=_BFLOAT16, runtimes=("in_process",)
    ),
    "lenet_50x10x16": Case(50, 10, 16),
    _WRITERS: Case(512, 2, 16, "convnet", num_writers=600),
    _SYMBOLS: Case(
      *(1024, 1, 32, "strided"),
      num_symbols=10_000_000,
      runtimes=(DATA, "bare", "in_process"),
    ),
    # The bare loop clips and adds noise.
    _CIFAR10: dataclasses.replace(
      _CIFAR10_CASE, aggregator="none", runtimes=_ALL[1:]
    ),
    f"{_CIFAR10}_gaussian": _CIFAR10_CASE,
    **_DENSE_CASES,
    **_GROWTH,
    "stock_linear_300x1x6": _STOCK(300, 1, 6, LINEAR),
    "stock_linear_5000x1x6": _STOCK(5000, 1, 6, LINEAR),
    "stock_emnist_10x25x20": _STOCK(10, 25, 20, SOFTMAX),
    "stock_text_50x4x16": _STOCK(50, 4, 16, GRU),
    "resnet50_4x2x16_112": _LARGE("resnet50", (112, 112, 3)),
    "mobilenet_v2_4x2x16_224": _LARGE("mobilenet_v2", (224, 224, 3)),
    **{
      f"ray_{name}": dataclasses.replace(case, runtimes=("in_process", "ray"))
      for name, case in _RAY.items()
    },
    "mobilenet_v2_small_4x1x8": Case(
      *(4, 1, 8, "mobilenet_v2_small", (32, 32, 3)), runtimes=("in_process",)
    ),
  }
)
_OF_PFL_RESEARCH = (_LENET, _WRITERS, _CIFAR10, f"{_CIFAR10}_gaussian")


def _command(
  config: results.BenchmarkConfig, name: str, runtime: str
) -> Sequence[str]:
  if runtime != PFL_RESEARCH:
    worker = (sys.executable, "-m", "benchmarks.round_process")
    return (*worker, name, runtime)
  # One process for each core that `runtime.base` counts, which imports TFF.
  return (
    checks.check_given("pfl_python", config.pfl_python),
    *("-m", "torch.distributed.run"),
    f"--nproc_per_node={len(os.sched_getaffinity(0))}",
    *("-m", "benchmarks.pfl_round"),
    json.dumps(dataclasses.asdict(CASES[name])),
  )


def _is_measured(config: results.BenchmarkConfig, name: str) -> bool:
  if config.cases:
    # Who asks for a case by name is told what it needs.
    return name.startswith(config.cases)
  has_ray = importlib.util.find_spec("ray") is not None
  return (has_ray or "ray" not in CASES[name].runtimes) and (
    precision_lib.has_bfloat16() or CASES[name].compute_precision != _BFLOAT16
  )


def select_groups(
  config: results.BenchmarkConfig,
) -> list[dict[results.Entry, Sequence[str]]]:
  """Returns what the flags ask for, in the order of measuring.

  Raises:
    errors.FieldError: If no case begins like that.
  """
  for prefix in config.cases:
    if not any(name.startswith(prefix) for name in CASES):
      raise errors.FieldError(
        "cases", f"be beginnings of {', '.join(sorted(CASES))}", repr(prefix)
      )
  groups = []
  for name, case in CASES.items():
    if _is_measured(config, name):
      runtimes = [*case.runtimes]
      if config.pfl_python and name in _OF_PFL_RESEARCH:
        runtimes.append(PFL_RESEARCH)
      groups.append({(name, r): _command(config, name, r) for r in runtimes})
  return groups
