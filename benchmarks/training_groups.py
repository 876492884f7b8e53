"""Which rounds of training take turns, and what their figures are meant to be.

Names of cases are those of `cases.CASES`, which takes TensorFlow to import.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import os
import pathlib
import subprocess
import sys
from typing import Any

from benchmarks import results
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.runtime import precision as precision_lib

PFL_RESEARCH = "pfl_research"
GROWTH_CLIENTS = (10, 50, 200, 1000)
LARGE_MODELS = ("resnet50_4x2x16_112", "mobilenet_v2_4x2x16_224")
PHOTOS = ("mobilenet_v2_gld_encoded", "mobilenet_v2_gld_decoded")
# Compiles and buffers for some rounds before it is what it stays.
LONG_RUN_SETTLED_ROUND = 50
LONG_RUN_ROUNDS = 500
LONG_RUN = f"mobilenet_v2_small_4x1x8_{LONG_RUN_ROUNDS}_rounds"

_RUNTIMES = ("bare", "in_process", "tff")
_LENET = "lenet_10x20x20"
_PFL_CHECK = """
import importlib.metadata, torch
assert importlib.metadata.version('pfl') == '0.6.0'
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingBenchmarkConfig(results.BenchmarkConfig):
  """What the benchmark of training is told.

  Attributes:
    cases: Cases to measure, by the beginning of their names [all].
    pfl_python: Python with torch and pfl-research, to measure that as well.
  """

  cases: tuple[str, ...] = config_lib.field(())
  pfl_python: str | None = None


def _worker(
  case: str, runtime: str, precision: str = precision_lib.FLOAT32
) -> Sequence[str]:
  module = "benchmarks.worker"
  return (sys.executable, "-m", module, case, runtime, precision)


def _pfl_worker(
  python: str, clients: int, steps: int, batch_size: int
) -> Sequence[str]:
  launcher = (
    "-m",
    "torch.distributed.run",
    # As many as `runtime.base` counts, which takes TFF to import.
    f"--nproc_per_node={len(os.sched_getaffinity(0))}",
  )
  script = pathlib.Path(__file__).with_name("pfl_round.py")
  work = (str(clients), str(steps), str(batch_size))
  return (python, *launcher, os.fspath(script), *work)


def _commands(
  cases: Sequence[str], runtimes: Sequence[str]
) -> dict[results.Entry, Sequence[str]]:
  return {
    results.Entry(case, runtime): _worker(case, runtime)
    for case in cases
    for runtime in runtimes
  }


def _lenet_commands(
  pfl_python: str | None,
) -> dict[results.Entry, Sequence[str]]:
  commands = _commands([_LENET], _RUNTIMES)
  # Those of this processor.
  for precision in precision_lib.supported_precisions():
    if precision != precision_lib.FLOAT32:
      entry = results.Entry(f"{_LENET}_{precision}", "in_process")
      commands[entry] = _worker(_LENET, "in_process", precision)
  if pfl_python:
    entry = results.Entry(_LENET, PFL_RESEARCH)
    commands[entry] = _pfl_worker(pfl_python, 10, 20, 20)
  return commands


def _all_groups(pfl_python: str | None) -> Iterable[results.Group]:
  yield results.Group(_lenet_commands(pfl_python))
  for case in ("lenet_50x10x16", "dense25m_4x1x16_gaussian"):
    yield results.Group(_commands([case], _RUNTIMES))
  # The bare loop has no correlated noise.
  for case in ("dense25m_4x1x16_tree", "dense25m_4x1x16_blt"):
    yield results.Group(_commands([case], _RUNTIMES[1:]))
  growth = [f"lenet_{n}x2x16_growth" for n in GROWTH_CLIENTS]
  # Compared with each other, so they take turns.
  yield results.Group(_commands(growth, ["in_process"]))
  for case in growth:
    yield results.Group(_commands([case], ["bare", "tff"]))
  for case in LARGE_MODELS:
    yield results.Group(_commands([case], ["in_process", "keras"]))
  yield results.Group(_commands(PHOTOS, ["in_process"]))
  yield results.Group(
    _commands([LONG_RUN], ["in_process"]),
    LONG_RUN_ROUNDS,
    (LONG_RUN_SETTLED_ROUND, LONG_RUN_ROUNDS),
  )


def select_groups(config: TrainingBenchmarkConfig) -> list[results.Group]:
  """Returns what the flags ask for, in the order of measuring.

  Args:
    config: What the flags say.

  Raises:
    errors.FieldError: If no case begins like that, or the Python is of no use.
  """
  _check_pfl_python(config.pfl_python)
  groups = list(_all_groups(config.pfl_python))
  names = sorted({entry.case for group in groups for entry in group.commands})
  for prefix in config.cases:
    if not any(name.startswith(prefix) for name in names):
      raise errors.FieldError(
        "cases", f"be beginnings of {', '.join(names)}", repr(prefix)
      )
  selected = [
    dataclasses.replace(
      group,
      commands={
        entry: command
        for entry, command in group.commands.items()
        if not config.cases or entry.case.startswith(config.cases)
      },
    )
    for group in groups
  ]
  return [group for group in selected if group.commands]


def _check_pfl_python(python: str | None) -> None:
  if not python:
    return
  try:
    subprocess.run([python, "-c", _PFL_CHECK], capture_output=True, check=True)
  except (OSError, subprocess.CalledProcessError) as error:
    raise errors.FieldError(
      "pfl_python", "be a Python with torch and pfl 0.6.0", python
    ) from error


def _in_process(case: str) -> results.Entry:
  return results.Entry(case, "in_process")


def _compare_walls(
  name: str,
  case: str,
  other: str,
  *,
  runtime: str = "in_process",
  other_case: str | None = None,
  **bounds: Any,
) -> results.Goal:
  """A ratio of a round's seconds, to another runtime or case."""
  numerator = results.Entry(case, runtime)
  denominator = results.Entry(other_case or case, other)
  return results.Goal(name, results.WALL, numerator, denominator, **bounds)


def all_goals() -> Iterable[results.Goal]:
  """What the runtimes are meant to achieve."""
  for case in (_LENET, "lenet_50x10x16"):
    yield _compare_walls("wall_in_process_to_bare", case, "bare", at_most=1.10)
    yield _compare_walls(
      "wall_tff_to_in_process", case, "in_process", runtime="tff"
    )
  for suffix, bound in (("", 1.0), ("_mixed_bfloat16", 0.85)):
    yield _compare_walls(
      "wall_in_process_to_pfl_research",
      _LENET + suffix,
      PFL_RESEARCH,
      other_case=_LENET,
      at_most=bound,
    )
  for suffix in ("_bfloat16_math", "_mixed_bfloat16"):
    yield _compare_walls(
      "wall_to_float32", _LENET + suffix, "in_process", other_case=_LENET
    )
  for aggregator, speedup, peak in (
    ("gaussian", 6, 2.0e9),
    ("tree", 8, 2.8e9),
    ("blt", None, None),
  ):
    case = f"dense25m_4x1x16_{aggregator}"
    yield _compare_walls(
      "wall_tff_to_in_process",
      case,
      "in_process",
      runtime="tff",
      at_least=speedup,
    )
    yield results.Goal(
      results.MEMORY, results.MEMORY, _in_process(case), at_most=peak
    )
  yield _compare_walls(
    "wall_in_process_to_bare", "dense25m_4x1x16_gaussian", "bare", at_most=1.5
  )
  few, many = (
    _in_process(f"lenet_{clients}x2x16_growth")
    for clients in (GROWTH_CLIENTS[0], GROWTH_CLIENTS[-1])
  )
  yield results.Goal(
    "peak_memory_1000_to_10_clients", results.MEMORY, many, few, at_most=1.15
  )
  yield results.Goal(
    "wall_1000_to_100_times_10_clients",
    results.WALL,
    many,
    few,
    scale=100.0,
    at_most=1.1,
  )
  for case in LARGE_MODELS:
    yield _compare_walls(
      "wall_in_process_to_keras", case, "keras", at_most=1.15
    )
    yield results.Goal(
      results.MEMORY, results.MEMORY, _in_process(case), at_most=6.0e9
    )
  encoded, decoded = PHOTOS
  yield _compare_walls(
    "wall_encoded_to_decoded",
    encoded,
    "in_process",
    other_case=decoded,
    at_most=1.15,
  )
  yield results.Goal(
    f"resident_{LONG_RUN_ROUNDS}_to_{LONG_RUN_SETTLED_ROUND}_rounds",
    results.resident_memory_figure(LONG_RUN_ROUNDS),
    _in_process(LONG_RUN),
    _in_process(LONG_RUN),
    results.resident_memory_figure(LONG_RUN_SETTLED_ROUND),
    at_most=1.05,
  )
