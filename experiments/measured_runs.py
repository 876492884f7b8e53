"""Finished runs as points of utility against epsilon.

Runs that differ in nothing but --seed are one measurement; those that differ in
--noise_multiplier besides are one curve. The utility is what was measured; the
epsilon is the run's own, and that of a larger population with a larger cohort
and more noise, computed from the ledger that the run left.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import glob
import json
import pathlib
from typing import Any

from tff_fedemb import errors
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import utility_plots
from tff_fedemb.privacy import extrapolation
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.program import run_directory
from tff_fedemb.strategies import strategy as strategy_lib

FALSE_ACCEPT_RATE = 1e-3

_NOISE = "noise_multiplier"
# What a curve has in common does not depend on these.
_VARYING = (
  "seed",
  _NOISE,
  "extrapolated_num_users",
  "extrapolated_cohort_factor",
)


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run.

  Attributes:
    path: Its directory.
    task: Name of the benchmark.
    algorithm: Name of the algorithm.
    mechanism: 'gaussian', the name of a strategy, or 'no noise'.
    noise_multiplier: As in the ledger; 0 without noise.
    strategy: Of correlated noise; None for independent noise.
    participation: Who took part.
    rounds: Number of rounds.
    epsilon: What the run itself cost.
    recall: At `FALSE_ACCEPT_RATE`, after training.
    recall_untrained: At `FALSE_ACCEPT_RATE`, before training.
    settings: All its flags.
  """

  path: pathlib.Path
  task: str
  algorithm: str
  mechanism: str
  noise_multiplier: float
  strategy: strategy_lib.Strategy | None
  participation: participation_lib.Participation
  rounds: int
  epsilon: float
  recall: float
  recall_untrained: float
  settings: Mapping[str, Any]

  @property
  def is_noiseless(self) -> bool:
    """Whether the run protects nobody."""
    return self.noise_multiplier == 0

  def settings_without(self, names: Sequence[str]) -> str:
    """The other flags, as text that is the same where they are."""
    # A flag that was not given is as good as one that did not exist yet.
    others = {
      name: value
      for name, value in self.settings.items()
      if name not in names and value is not None
    }
    return json.dumps(others, sort_keys=True)


def find(patterns: Sequence[str]) -> tuple[list[Run], list[pathlib.Path]]:
  """Reads the finished runs among directories.

  Args:
    patterns: Directories, or patterns of such as a shell has.

  Returns:
    The runs by path, and the directories whose run is not finished.

  Raises:
    ValueError: If a pattern matches nothing, nothing is finished, a file is
      not that of a run, or the runs are of several tasks.
  """
  paths = set()
  for pattern in patterns:
    found = {
      pathlib.Path(p) for p in glob.glob(pattern) if pathlib.Path(p).is_dir()
    }
    if not found:
      raise ValueError(
        f"runs must be directories of runs, found none for {pattern!r}."
      )
    paths |= found
  finished = [
    path for path in sorted(paths) if (path / run_directory.SUMMARY).exists()
  ]
  if not finished:
    raise ValueError(
      f"runs must hold a finished run ({run_directory.SUMMARY}), found none"
      f" in {len(paths)} directories."
    )
  runs = [read(path) for path in finished]
  tasks = sorted({run.task for run in runs})
  if len(tasks) > 1:
    raise ValueError(
      f"runs must be of one task, to be compared, found {', '.join(tasks)}."
    )
  return runs, sorted(paths - set(finished))


def read(path: pathlib.Path) -> Run:
  """Reads a finished run.

  Args:
    path: Its directory.

  Raises:
    ValueError: If the files are not those of a run, or its noise changed.
  """
  rate = verification.format_false_accept_rate(FALSE_ACCEPT_RATE)
  try:
    summary = json.loads((path / run_directory.SUMMARY).read_text())
    settings = json.loads((path / run_directory.SETTINGS).read_text())
    ledger = ledger_lib.Ledger.from_json(json.dumps(summary["ledger"]))
    recall = float(summary["recall_at_far"][rate])
    recall_untrained = float(summary["recall_at_far_untrained"][rate])
    epsilon = float(summary["privacy"]["epsilon"])
    task, algorithm = str(summary["task"]), str(summary["algorithm"])
    settings = dict(settings)
  except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
    raise ValueError(
      f"runs must be directories that training wrote, found {path}:"
      f" {type(error).__name__}: {error}"
    ) from error
  try:
    noise = ledger.noise
  except errors.DataError as error:
    raise errors.DataError(f"{error} ({path})") from error
  return Run(
    path=path,
    task=task,
    algorithm=algorithm,
    mechanism=noise.mechanism if noise.multiplier else "no noise",
    noise_multiplier=noise.multiplier,
    strategy=noise.strategy,
    participation=ledger.participation,
    rounds=ledger.rounds,
    epsilon=epsilon,
    recall=recall,
    recall_untrained=recall_untrained,
    settings=settings,
  )


def extrapolate(
  run: Run, *, num_users: int, cohort_factor: float, delta: float
) -> float:
  """Returns the user-level epsilon of a run in a larger population.

  Privacy:
    As `extrapolation.extrapolate`.

  Args:
    run: The simulation, with noise.
    num_users: Population to extrapolate to.
    cohort_factor: Multiplies the users of a round and the noise multiplier.
    delta: In (0, 1).

  Raises:
    ValueError: As `extrapolation.extrapolate`; names the run.
  """
  try:
    return extrapolation.extrapolate(
      rounds=run.rounds,
      noise_multiplier=run.noise_multiplier,
      participation=run.participation,
      strategy=run.strategy,
      num_users=num_users,
      cohort_factor=cohort_factor,
      delta=delta,
    ).user_level.epsilon
  except ValueError as error:
    raise ValueError(f"{error} (extrapolating {run.path})") from error


def create_curves(
  runs: Sequence[Run], extrapolated: Callable[[Run], Mapping[float, float]]
) -> list[utility_plots.UtilityCurve]:
  """Groups runs to curves, in the order of their names.

  Args:
    runs: Of one task.
    extrapolated: Epsilon by cohort factor; called once for each measurement,
      with one of its runs.

  Returns:
    A curve for each setting with noise, with the run without noise of the same
    algorithm if there is one.

  Raises:
    ValueError: If no run has noise, or an algorithm has several settings
      without noise: it would not be clear which one to compare with.
  """
  noiseless: dict[str, list[Run]] = collections.defaultdict(list)
  groups = collections.defaultdict(list)
  for run in runs:
    if run.is_noiseless:
      noiseless[run.algorithm].append(run)
    else:
      alike = run.algorithm, run.mechanism, run.settings_without(_VARYING)
      groups[alike].append(run)
  if not groups:
    raise ValueError(
      f"runs must include some with noise, found {len(runs)} without."
    )
  for algorithm, same in noiseless.items():
    settings = {run.settings_without(["seed"]): run.path for run in same}
    if len(settings) > 1:
      raise ValueError(
        f"runs must include at most one setting of {algorithm} without noise,"
        " found several:"
        f" {', '.join(str(path) for path in settings.values())}."
      )
  names = _names(list(groups.values()))
  curves = []
  for name, same in zip(names, groups.values(), strict=True):
    baseline = noiseless.get(same[0].algorithm)
    curves.append(
      utility_plots.UtilityCurve(
        name,
        same[0].algorithm,
        tuple(
          _measurement(level, extrapolated(level[0]))
          for level in _levels_of_noise(same)
        ),
        noiseless=_measurement(baseline, {}) if baseline else None,
      )
    )
  return sorted(curves, key=lambda curve: curve.name)


def _levels_of_noise(runs: Sequence[Run]) -> list[list[Run]]:
  levels = collections.defaultdict(list)
  for run in runs:
    levels[run.noise_multiplier].append(run)
  return [levels[noise] for noise in sorted(levels)]


def _measurement(
  runs: Sequence[Run], extrapolated: Mapping[float, float]
) -> utility_plots.UtilityMeasurement:
  return utility_plots.UtilityMeasurement(
    tuple(run.recall for run in runs), runs[0].epsilon, extrapolated
  )


def _names(groups: Sequence[Sequence[Run]]) -> list[str]:
  """Algorithm and mechanism, and what else differs if that is not unique."""
  names = [f"{runs[0].algorithm}, {runs[0].mechanism}" for runs in groups]
  full_names = []
  for name, runs in zip(names, groups, strict=True):
    alike = [g[0] for n, g in zip(names, groups, strict=True) if n == name]
    flags = sorted({flag for run in alike for flag in run.settings})
    differing = [
      f"{flag}={runs[0].settings.get(flag)}"
      for flag in flags
      if flag not in _VARYING
      and len({json.dumps(run.settings.get(flag)) for run in alike}) > 1
    ]
    full_names.append("\n".join([name, *differing]))
  return full_names
