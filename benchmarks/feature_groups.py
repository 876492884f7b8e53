"""Which fits on features take turns, and what they are meant to achieve."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from benchmarks import feature_cases
from benchmarks import results
from tff_fedemb import config as config_lib
from tff_fedemb import errors

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
# Room that is left on the disk.
_SPARE_BYTES = 2**28


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureBenchmarkConfig(results.BenchmarkConfig):
  """What the benchmark of fits is told.

  Attributes:
    cases: What to measure, METHOD_NxDxK, for N examples of D numbers in K
      classes; METHOD is least_squares, sgd or feature_covariance.
    data_dir: Directory for files of features, which are deleted [the system's
      for temporary files].
  """

  rounds: int = config_lib.field(3, minimum=1)
  warmup_rounds: int = config_lib.field(1, minimum=0)
  cases: tuple[str, ...] = config_lib.field(_CASES_OF_ALL)
  data_dir: str | None = None


_Cases = Mapping[feature_cases.Examples, Sequence[feature_cases.Case]]


def parse_cases(config: FeatureBenchmarkConfig) -> _Cases:
  """Returns the cases by what they are fitted on, each of them once.

  Args:
    config: What the flags say.

  Raises:
    errors.FieldError: If there is none, one is none, or there is no room for
      the files.
  """
  if not config.cases:
    raise errors.FieldError("cases", "name cases", "none")
  directory = pathlib.Path(config.data_dir or tempfile.gettempdir())
  if not directory.is_dir():
    raise errors.FieldError("data_dir", "be an existing directory", directory)
  groups: dict[feature_cases.Examples, list[feature_cases.Case]] = {}
  for case in dict.fromkeys(map(feature_cases.parse, config.cases)):
    groups.setdefault(case.examples, []).append(case)
  # One file at a time.
  needed = max(examples.file_bytes for examples in groups) + _SPARE_BYTES
  free = shutil.disk_usage(directory).free
  if free < needed:
    raise errors.FieldError(
      "data_dir",
      f"have {needed / 1e9:.1f} GB free",
      f"{free / 1e9:.1f} GB in {directory}",
    )
  return groups


def _command(module: str, *arguments: str) -> tuple[str, ...]:
  return (sys.executable, "-m", f"benchmarks.{module}", *arguments)


def create_groups(
  cases: _Cases, data_dir: str | None
) -> Iterator[results.Group]:
  """Yields a group for each case, whose file exists until the next one.

  Args:
    cases: What `parse_cases` returned.
    data_dir: Where to write the files, one at a time.
  """
  for examples, of_file in cases.items():
    with tempfile.TemporaryDirectory(dir=data_dir or None) as directory:
      path = os.path.join(directory, "features.npz")
      command = _command("feature_cases", path, str(of_file[0]))
      subprocess.run(command, check=True)
      for case in of_file:
        yield results.Group(
          {
            results.Entry(str(case), runtime): _command(
              "feature_worker", str(case), runtime, path
            )
            for runtime in ("private", "bare")
          },
          columns=dataclasses.asdict(examples),
          samples_anonymous_memory=True,
        )


def all_goals(cases: _Cases) -> Iterable[results.Goal]:
  """What the fits are meant to achieve."""
  for case in (case for of_file in cases.values() for case in of_file):
    yield results.Goal(
      "wall_to_bare",
      results.WALL,
      results.Entry(str(case), "private"),
      results.Entry(str(case), "bare"),
      # Of short ones a part is calibration, which the loops do without.
      at_most=1.15 if str(case) == _LARGE else None,
    )
  large = results.Entry(_LARGE, "private")
  smallest = results.Entry(_SMALLEST, "private")
  yield results.Goal(results.WALL, results.WALL, large, at_most=120.0)
  yield results.Goal(results.MEMORY, results.MEMORY, large, at_most=4e9)
  yield results.Goal(
    "wall_to_8_times_125000",
    results.WALL,
    large,
    smallest,
    scale=8.0,
    at_most=1.1,
  )
  yield results.Goal(
    "anonymous_memory_to_125000",
    results.ANONYMOUS_MEMORY,
    large,
    smallest,
    at_most=1.1,
  )
