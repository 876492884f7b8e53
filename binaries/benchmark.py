"""Measures a round of training: bare TensorFlow, in process, TFF's runtime.

  python -m binaries.benchmark --output_json=benchmark.json

Each runtime works in a process of its own, and they take turns round by round,
so that ratios compare like with like on a machine whose speed drifts. With
--pfl_python, a Python that has torch and pfl-research, that framework does the
same work in the same run.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from absl import flags

from binaries import command_line
from binaries.benchmarking import measuring
from tff_fedemb.runtime import precision as precision_lib

_RUNTIMES = ("bare", "in_process", "tff")
_PFL = "pfl_research"
_GROWTH_CLIENTS = (10, 50, 200, 1000)

_OUTPUT_JSON = flags.DEFINE_string(
    "output_json", None, "File to write the figures to.", required=True
)
_CASES = flags.DEFINE_list(
    "cases", [], "Cases to measure, by the beginning of their names [all]."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measured rounds of each.")
_WARMUP_ROUNDS = flags.DEFINE_integer(
    "warmup_rounds", 2, "Rounds before those."
)
_PFL_PYTHON = flags.DEFINE_string(
    "pfl_python", None,
    "Python with torch and pfl-research, to measure that as well.",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Entry:
  """One row of the result.

  Attributes:
    case: Name of the work and, with a lower precision, of that.
    runtime: Who does it.
  """

  case: str
  runtime: str


@dataclasses.dataclass(frozen=True)
class Goal:
  """A figure, or a ratio of two, and what it is meant to be.

  Attributes:
    name: What the result calls it, in the row of `numerator`.
    figure: Of a row: "wall_seconds" or "peak_memory_bytes".
    numerator: The row it belongs to.
    denominator: What that is compared with; `None` for the figure itself.
    scale: Factor of the denominator.
    at_most: Upper bound, if there is one.
    at_least: Lower bound, if there is one.
  """

  name: str
  figure: str
  numerator: Entry
  denominator: Entry | None = None
  scale: float = 1.0
  at_most: float | None = None
  at_least: float | None = None

  def evaluate(self, rows: Mapping[Entry, dict[str, Any]]) -> float | None:
    """The ratio, or `None` if not everything it needs was measured."""
    if self.numerator not in rows:
      return None
    value = rows[self.numerator][self.figure]
    if self.denominator is None:
      return value
    if self.denominator not in rows:
      return None
    return value / (self.scale * rows[self.denominator][self.figure])

  def verdict(self, value: float) -> str:
    """Says whether the goal was met."""
    if self.at_most is not None:
      met = value <= self.at_most
      return f"at most {self.at_most:g}: {'met' if met else 'MISSED'}"
    if self.at_least is not None:
      met = value >= self.at_least
      return f"at least {self.at_least:g}: {'met' if met else 'MISSED'}"
    return ""


def goals() -> Iterable[Goal]:
  """What the runtimes are meant to achieve."""
  wall, memory = "wall_seconds", "peak_memory_bytes"
  for case in ("lenet_10x20x20", "lenet_50x10x16"):
    yield Goal(
        "wall_in_process_to_bare", wall, Entry(case, "in_process"),
        Entry(case, "bare"), at_most=1.10,
    )  # fmt: skip
    yield Goal(
        "wall_tff_to_in_process", wall, Entry(case, "tff"),
        Entry(case, "in_process"),
    )  # fmt: skip
  case = "lenet_10x20x20"
  for suffix, bound in (("", 1.0), ("_mixed_bfloat16", 0.85)):
    yield Goal(
        "wall_in_process_to_pfl_research", wall,
        Entry(case + suffix, "in_process"), Entry(case, _PFL), at_most=bound,
    )  # fmt: skip
  for suffix in ("_bfloat16_math", "_mixed_bfloat16"):
    yield Goal(
        "wall_to_float32", wall, Entry(case + suffix, "in_process"),
        Entry(case, "in_process"),
    )  # fmt: skip
  for aggregator, speedup, peak in (("gaussian", 6, 2.0e9), ("tree", 8, 2.8e9)):
    case = f"dense25m_4x1x16_{aggregator}"
    yield Goal(
        "wall_tff_to_in_process", wall, Entry(case, "tff"),
        Entry(case, "in_process"), at_least=speedup,
    )  # fmt: skip
    yield Goal(
        "peak_memory_bytes", memory, Entry(case, "in_process"), at_most=peak
    )
  case = "dense25m_4x1x16_gaussian"
  yield Goal(
      "wall_in_process_to_bare", wall, Entry(case, "in_process"),
      Entry(case, "bare"), at_most=1.5,
  )  # fmt: skip
  few, many = (
      Entry(f"lenet_{clients}x2x16_growth", "in_process")
      for clients in (_GROWTH_CLIENTS[0], _GROWTH_CLIENTS[-1])
  )
  yield Goal(
      "peak_memory_1000_to_10_clients", memory, many, few, at_most=1.15
  )
  yield Goal(
      "wall_1000_to_100_times_10_clients", wall, many, few, scale=100.0,
      at_most=1.1,
  )  # fmt: skip


def _worker(
    case: str, runtime: str, precision: str = precision_lib.FLOAT32
) -> measuring.Command:
  module = "binaries.benchmarking.worker"
  return measuring.Command(
      (sys.executable, "-m", module, case, runtime, precision)
  )


def _pfl_worker(clients: int, steps: int, batch_size: int) -> measuring.Command:
  script = pathlib.Path(__file__).parent / "benchmarking" / "pfl_round.py"
  launcher = ("-m", "torch.distributed.run", "--nproc_per_node=2")
  work = (str(clients), str(steps), str(batch_size))
  return measuring.Command(
      (_PFL_PYTHON.value, *launcher, os.fspath(script), *work)
  )


def _lower_precisions() -> list[str]:
  """Those of this processor."""
  return [
      name
      for name in precision_lib.supported_precisions()
      if name != precision_lib.FLOAT32
  ]


def _groups() -> Iterable[dict[Entry, measuring.Command]]:
  """What takes turns with each other."""
  case = "lenet_10x20x20"
  group = {Entry(case, name): _worker(case, name) for name in _RUNTIMES}
  for precision in _lower_precisions():
    entry = Entry(f"{case}_{precision}", "in_process")
    group[entry] = _worker(case, "in_process", precision)
  if _PFL_PYTHON.value:
    group[Entry(case, _PFL)] = _pfl_worker(10, 20, 20)
  yield group
  for case in (
      "lenet_50x10x16",
      "dense25m_4x1x16_gaussian",
      "dense25m_4x1x16_tree",
  ):
    # The bare loop has no tree.
    names = _RUNTIMES[1:] if case.endswith("tree") else _RUNTIMES
    yield {Entry(case, name): _worker(case, name) for name in names}
  for clients in _GROWTH_CLIENTS:
    case = f"lenet_{clients}x2x16_growth"
    yield {Entry(case, name): _worker(case, name) for name in _RUNTIMES}


def _selected(
    groups: Iterable[dict[Entry, measuring.Command]], prefixes: Sequence[str]
) -> list[dict[Entry, measuring.Command]]:
  groups = list(groups)
  names = sorted({entry.case for group in groups for entry in group})
  for prefix in prefixes:
    if not any(name.startswith(prefix) for name in names):
      raise command_line.UsageError(
          f"--cases must be beginnings of {', '.join(names)}, found"
          f" {prefix!r}."
      )
  if not prefixes:
    return groups
  return [
      group
      for group in groups
      if any(entry.case.startswith(tuple(prefixes)) for entry in group)
  ]


def _check_pfl_python() -> None:
  python = _PFL_PYTHON.value
  if not python:
    return
  try:
    subprocess.run(
        [python, "-c", "import torch, pfl"], capture_output=True, check=True
    )
  except (OSError, subprocess.CalledProcessError) as error:
    raise command_line.UsageError(
        f"--pfl_python must be a Python with torch and pfl, found {python}."
    ) from error


def _row(
    entry: Entry, measurement: measuring.Measurement
) -> dict[str, Any]:
  return {
      **dataclasses.asdict(entry),
      "wall_seconds": measurement.median_wall_seconds(),
      "cpu_seconds": measurement.median_cpu_seconds(),
      "peak_memory_bytes": measurement.peak_memory_bytes,
      "wall_seconds_of_rounds": measurement.wall_seconds,
      "ratios": {},
  }


def _write(path: pathlib.Path, rows: Iterable[dict[str, Any]]) -> None:
  """Replaces the file at once, so that a reader never sees half of it."""
  partial = path.with_name(path.name + ".partial")
  partial.write_text(json.dumps(list(rows), indent=2) + "\n")
  partial.replace(path)


def main() -> None:
  """Measures, prints and writes."""
  path = pathlib.Path(_OUTPUT_JSON.value)
  if path.is_dir() or not path.absolute().parent.is_dir():
    raise command_line.UsageError(
        f"--output_json must be a file in an existing directory, found {path}."
    )
  for name, value, low in (
      ("rounds", _ROUNDS.value, 1),
      ("warmup_rounds", _WARMUP_ROUNDS.value, 0),
  ):
    if value < low:
      raise command_line.UsageError(
          f"--{name} must be at least {low}, found {value}."
      )
  _check_pfl_python()
  rows: dict[Entry, dict[str, Any]] = {}
  for group in _selected(_groups(), _CASES.value):
    measurements = measuring.measure(
        list(group.values()),
        rounds=_ROUNDS.value,
        warmup_rounds=_WARMUP_ROUNDS.value,
    )
    for entry, measurement in zip(group, measurements, strict=True):
      rows[entry] = row = _row(entry, measurement)
      print(
          f"{entry.case:32} {entry.runtime:12}"
          f" {row['wall_seconds']:8.3f} s wall {row['cpu_seconds']:8.2f} s CPU"
          f" {row['peak_memory_bytes'] / 1e9:6.2f} GB",
          flush=True,
      )
    _write(path, rows.values())
  for goal in goals():
    value = goal.evaluate(rows)
    if value is not None:
      rows[goal.numerator]["ratios"][goal.name] = value
      print(
          f"{goal.numerator.case:32} {goal.name:36} {value:10.4g}"
          f"  {goal.verdict(value)}".rstrip()
      )
  _write(path, rows.values())


if __name__ == "__main__":
  command_line.run(main)
