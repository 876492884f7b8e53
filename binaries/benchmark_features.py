"""Measures private fits on features, beside bare NumPy loops.

  python -m binaries.benchmark_features --output_json=benchmark.json

A file of synthetic features is written, up to 3 GB, and deleted afterwards.
Each case and the loop that does the same without privacy read it in processes
of their own and take turns. Time includes reading the file, which the system
may have in its cache. Peak memory includes the pages of the file, which is
mapped into memory; "anonymous" memory does not.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from absl import flags

from benchmarks import anonymous_memory
from benchmarks import feature_cases
from benchmarks import goals
from benchmarks import measuring
from benchmarks import results
from experiments import command_line

_LARGE = "least_squares_1000000x768x1000"
_SMALLEST = "least_squares_125000x768x1000"
_CASES_OF_ALL = (
  "sgd_50000x256x100",
  "feature_covariance_50000x256x100",
  "least_squares_250000x192x1000",
  "least_squares_250000x384x1000",
  "least_squares_250000x768x1000",
  _SMALLEST,
  "least_squares_500000x768x1000",
  _LARGE,
)
_RUNTIMES = ("private", "bare")
# Room that is left on the disk.
_SPARE_BYTES = 2**28

_OUTPUT_JSON = flags.DEFINE_string(
  "output_json", None, "File to write the figures to.", required=True
)
_CASES = flags.DEFINE_list(
  "cases",
  list(_CASES_OF_ALL),
  "What to measure: METHOD_NxDxK, for N examples of D numbers in K classes;"
  f" METHOD is {', '.join(feature_cases.METHODS)}.",
)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Measured fits of each.")
_WARMUP_ROUNDS = flags.DEFINE_integer("warmup_rounds", 1, "Fits before those.")
_DATA_DIR = flags.DEFINE_string(
  "data_dir",
  None,
  "Directory for files of features, which are deleted [the system's for"
  " temporary files].",
)


def _all_goals(cases: Iterable[feature_cases.Case]) -> Iterable[goals.Goal]:
  """What the fits are meant to achieve."""
  for case in cases:
    yield goals.Goal(
      "wall_to_bare",
      "wall_seconds",
      goals.Entry(str(case), "private"),
      goals.Entry(str(case), "bare"),
      # Of short ones a part is calibration, which the loops do without.
      at_most=1.15 if str(case) == _LARGE else None,
    )
  entry = goals.Entry(_LARGE, "private")
  yield goals.Goal("wall_seconds", "wall_seconds", entry, at_most=120.0)
  yield goals.Goal("peak_memory_bytes", "peak_memory_bytes", entry, at_most=4e9)
  yield goals.Goal(
    "wall_to_8_times_125000",
    "wall_seconds",
    entry,
    goals.Entry(_SMALLEST, "private"),
    scale=8.0,
    at_most=1.1,
  )
  yield goals.Goal(
    "anonymous_memory_to_125000",
    "peak_anonymous_memory_bytes",
    entry,
    goals.Entry(_SMALLEST, "private"),
    at_most=1.1,
  )


def _group(
  names: Sequence[str],
) -> dict[feature_cases.Examples, list[feature_cases.Case]]:
  """Cases by what they are fitted on, each of them once."""
  groups: dict[feature_cases.Examples, list[feature_cases.Case]] = {}
  for name in names:
    case = command_line.call_with_flags(feature_cases.parse, name)
    of_file = groups.setdefault(case.examples, [])
    if case not in of_file:
      of_file.append(case)
  return groups


def _check_space(
  directory: pathlib.Path, groups: Iterable[feature_cases.Examples]
) -> None:
  # One file at a time.
  needed = max(examples.file_bytes for examples in groups) + _SPARE_BYTES
  free = shutil.disk_usage(directory).free
  if free < needed:
    raise command_line.UsageError(
      f"--data_dir must have {needed / 1e9:.1f} GB free, found"
      f" {free / 1e9:.1f} GB in {directory}."
    )


def _command(module: str, *arguments: str) -> tuple[str, ...]:
  return (sys.executable, "-m", f"benchmarks.{module}", *arguments)


def _measure(
  cases: Sequence[feature_cases.Case], directory: pathlib.Path
) -> dict[goals.Entry, dict[str, Any]]:
  """Rows of cases that are fitted on the same file."""
  rows = {}
  with tempfile.TemporaryDirectory(dir=directory) as data_dir:
    path = os.path.join(data_dir, "features.npz")
    subprocess.run(_command("feature_cases", path, str(cases[0])), check=True)
    for case in cases:
      commands = {
        goals.Entry(str(case), runtime): _command(
          "feature_worker", str(case), runtime, path
        )
        for runtime in _RUNTIMES
      }
      with anonymous_memory.Sampler() as sampler:
        measurements = measuring.measure(
          list(commands.values()),
          rounds=_ROUNDS.value,
          warmup_rounds=_WARMUP_ROUNDS.value,
        )
      for (entry, command), measurement in zip(
        commands.items(), measurements, strict=True
      ):
        rows[entry] = {
          **dataclasses.asdict(entry),
          **dataclasses.asdict(case.examples),
          "wall_seconds": measurement.median_wall_seconds(),
          "cpu_seconds": measurement.median_cpu_seconds(),
          "peak_memory_bytes": measurement.peak_memory_bytes,
          "peak_anonymous_memory_bytes": sampler.peak(command),
          "wall_seconds_of_rounds": measurement.wall_seconds,
          "ratios": {},
        }
        _print_row(entry, rows[entry])
  return rows


def _print_row(entry: goals.Entry, row: dict[str, Any]) -> None:
  print(
    f"{entry.case:34} {entry.runtime:8} {row['wall_seconds']:8.3f} s wall"
    f" {row['cpu_seconds']:8.2f} s CPU"
    f" {row['peak_memory_bytes'] / 1e9:6.2f} GB,"
    f" {row['peak_anonymous_memory_bytes'] / 1e9:5.2f} GB anonymous",
    flush=True,
  )


def _check_data_dir() -> pathlib.Path:
  """Returns the directory for files of features."""
  directory = pathlib.Path(_DATA_DIR.value or tempfile.gettempdir())
  if not directory.is_dir():
    raise command_line.UsageError(
      f"--data_dir must be an existing directory, found {directory}."
    )
  return directory


def main() -> None:
  """Measures, prints and writes."""
  if not _CASES.value:
    raise command_line.UsageError("--cases must name cases, found none.")
  directory = _check_data_dir()
  groups = _group(_CASES.value)
  _check_space(directory, groups)
  path = results.create_file(
    _OUTPUT_JSON.value,
    rounds=_ROUNDS.value,
    warmup_rounds=_WARMUP_ROUNDS.value,
  )
  failures = []
  lines: list[str] = []
  rows: dict[goals.Entry, dict[str, Any]] = {}
  for cases in groups.values():
    try:
      rows |= _measure(cases, directory)
    except (measuring.WorkerError, subprocess.CalledProcessError) as error:
      # What else can be measured is worth having.
      print(f"FAILED: {error}", file=sys.stderr, flush=True)
      failures.append(str(error))
      continue
    all_cases = [case for of_file in groups.values() for case in of_file]
    lines = results.evaluate(_all_goals(all_cases), rows)
    results.write(path, rows.values())
  print("\n".join(lines))
  if failures:
    sys.exit(1)


if __name__ == "__main__":
  command_line.run(main)
