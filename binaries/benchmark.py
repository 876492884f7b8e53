"""Measures a round of training: bare TensorFlow, in process, TFF's runtime.

  python -m binaries.benchmark --output_json=benchmark.json

Each runtime works in a process of its own, and they take turns round by round,
so that ratios compare like with like on a machine whose speed drifts. With
--pfl_python, a Python that has torch and pfl-research, that framework does the
same work in the same run.

Large models are compared with bare Keras, which trains one model on as many
images; photos that clients decode with the same photos decoded beforehand; and
the memory of a long run with what it was when the run had settled.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import os
import pathlib
import subprocess
import sys
from typing import Any

from absl import flags

from benchmarks import goals
from benchmarks import measuring
from benchmarks import results
from experiments import command_line
from tff_fedemb.runtime import precision as precision_lib

_RUNTIMES = ("bare", "in_process", "tff")

_PFL_CHECK = """
import importlib.metadata, torch
assert importlib.metadata.version('pfl') == '0.6.0'
"""


@dataclasses.dataclass(frozen=True)
class _Group:
  """What takes turns with each other.

  Attributes:
    commands: Programs that speak like `worker`, with their arguments.
    rounds: Measured rounds from the first one on; `None` for what the flags
      say.
  """

  commands: dict[goals.Entry, Sequence[str]]
  rounds: int | None = None


_OUTPUT_JSON = flags.DEFINE_string(
  "output_json", None, "File to write the figures to.", required=True
)
_CASES = flags.DEFINE_list(
  "cases", [], "Cases to measure, by the beginning of their names [all]."
)
_ROUNDS = flags.DEFINE_integer(
  "rounds", 5, "Measured rounds of each, but for the long run."
)
_WARMUP_ROUNDS = flags.DEFINE_integer(
  "warmup_rounds", 2, "Rounds before those."
)
_PFL_PYTHON = flags.DEFINE_string(
  "pfl_python",
  None,
  "Python with torch and pfl-research, to measure that as well.",
)


def _worker(
  case: str, runtime: str, precision: str = precision_lib.FLOAT32
) -> Sequence[str]:
  module = "benchmarks.worker"
  return (sys.executable, "-m", module, case, runtime, precision)


def _pfl_worker(clients: int, steps: int, batch_size: int) -> Sequence[str]:
  script = pathlib.Path(__file__).parents[1] / "benchmarks" / "pfl_round.py"
  launcher = (
    "-m",
    "torch.distributed.run",
    # As many as `runtime.base` counts, which takes TFF to import.
    f"--nproc_per_node={len(os.sched_getaffinity(0))}",
  )
  work = (str(clients), str(steps), str(batch_size))
  return (_PFL_PYTHON.value, *launcher, os.fspath(script), *work)


def _lower_precisions() -> list[str]:
  """Those of this processor."""
  return [
    name
    for name in precision_lib.supported_precisions()
    if name != precision_lib.FLOAT32
  ]


def _runtime_group(
  case: str, names: Sequence[str], rounds: int | None = None
) -> _Group:
  """One case on several runtimes."""
  return _Group(
    {goals.Entry(case, name): _worker(case, name) for name in names}, rounds
  )


def _case_group(cases: Sequence[str]) -> _Group:
  """Several cases in process."""
  return _Group(
    {
      goals.Entry(case, "in_process"): _worker(case, "in_process")
      for case in cases
    }
  )


def _groups() -> Iterable[_Group]:
  case = "lenet_10x20x20"
  group = _runtime_group(case, _RUNTIMES)
  for precision in _lower_precisions():
    entry = goals.Entry(f"{case}_{precision}", "in_process")
    group.commands[entry] = _worker(case, "in_process", precision)
  if _PFL_PYTHON.value:
    entry = goals.Entry(case, goals.PFL_RESEARCH)
    group.commands[entry] = _pfl_worker(10, 20, 20)
  yield group
  for case in (
    "lenet_50x10x16",
    "dense25m_4x1x16_gaussian",
    "dense25m_4x1x16_tree",
    "dense25m_4x1x16_blt",
  ):
    # The bare loop has no correlated noise.
    correlated = case.endswith(("tree", "blt"))
    yield _runtime_group(case, _RUNTIMES[1:] if correlated else _RUNTIMES)
  growth = [f"lenet_{n}x2x16_growth" for n in goals.GROWTH_CLIENTS]
  # Compared with each other, so they take turns.
  yield _case_group(growth)
  for case in growth:
    yield _runtime_group(case, ("bare", "tff"))
  for case in goals.LARGE_MODELS:
    yield _runtime_group(case, ("in_process", "keras"))
  yield _case_group(goals.PHOTOS)
  yield _runtime_group(goals.LONG_RUN, ("in_process",), goals.LONG_RUN_ROUNDS)


def _selected(
  groups: Iterable[_Group], prefixes: Sequence[str]
) -> list[_Group]:
  groups = list(groups)
  names = sorted({entry.case for group in groups for entry in group.commands})
  for prefix in prefixes:
    if not any(name.startswith(prefix) for name in names):
      raise command_line.UsageError(
        f"--cases must be beginnings of {', '.join(names)}, found {prefix!r}."
      )
  if not prefixes:
    return groups
  selected = [
    dataclasses.replace(
      group,
      commands={
        entry: command
        for entry, command in group.commands.items()
        if entry.case.startswith(tuple(prefixes))
      },
    )
    for group in groups
  ]
  return [group for group in selected if group.commands]


def _check_pfl_python() -> None:
  python = _PFL_PYTHON.value
  if not python:
    return
  try:
    subprocess.run([python, "-c", _PFL_CHECK], capture_output=True, check=True)
  except (OSError, subprocess.CalledProcessError) as error:
    raise command_line.UsageError(
      f"--pfl_python must be a Python with torch and pfl 0.6.0, found {python}."
    ) from error


def _row(
  entry: goals.Entry, measurement: measuring.Measurement
) -> dict[str, Any]:
  row = {
    **dataclasses.asdict(entry),
    "wall_seconds": measurement.median_wall_seconds(),
    "cpu_seconds": measurement.median_cpu_seconds(),
    "peak_memory_bytes": measurement.peak_memory_bytes,
    "wall_seconds_of_rounds": measurement.wall_seconds,
    "ratios": {},
  }
  if entry.case == goals.LONG_RUN:
    resident = measurement.resident_memory_bytes
    for round_num in (goals.LONG_RUN_SETTLED_ROUND, goals.LONG_RUN_ROUNDS):
      row[goals.resident_memory_figure(round_num)] = resident[round_num - 1]
    row["resident_memory_bytes_of_rounds"] = resident
  return row


def main() -> None:
  """Measures, prints and writes."""
  _check_pfl_python()
  groups = _selected(_groups(), _CASES.value)
  path = results.create_file(
    _OUTPUT_JSON.value,
    rounds=_ROUNDS.value,
    warmup_rounds=_WARMUP_ROUNDS.value,
  )
  failures = []
  lines: list[str] = []
  rows: dict[goals.Entry, dict[str, Any]] = {}
  for group in groups:
    try:
      measurements = measuring.measure(
        list(group.commands.values()),
        rounds=group.rounds or _ROUNDS.value,
        warmup_rounds=0 if group.rounds else _WARMUP_ROUNDS.value,
      )
    except measuring.WorkerError as error:
      # What else can be measured is worth having.
      print(f"FAILED: {error}", file=sys.stderr, flush=True)
      failures.append(str(error))
      continue
    for entry, measurement in zip(group.commands, measurements, strict=True):
      rows[entry] = row = _row(entry, measurement)
      print(
        f"{entry.case:32} {entry.runtime:12}"
        f" {row['wall_seconds']:8.3f} s wall {row['cpu_seconds']:8.2f} s CPU"
        f" {row['peak_memory_bytes'] / 1e9:6.2f} GB",
        flush=True,
      )
    lines = results.evaluate(goals.all_goals(), rows)
    results.write(path, rows.values())
  print("\n".join(lines))
  if failures:
    sys.exit(1)


if __name__ == "__main__":
  command_line.run(main)
