"""Pictures of what privacy costs, from accounting and from finished runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import glob
import math
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import progress as progress_lib
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import planning
from tff_fedemb.records import output_files

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.plots import figures
  from tff_fedemb.plots import privacy_plots
  from tff_fedemb.plots import utility_plots
  from tff_fedemb.report import measured_runs

# Points of a curve by the accountant that RDP is compared with. RDP takes
# milliseconds without sampling, where epsilon has steps; with Poisson sampling
# it takes 0.02 s, or some 0.3 s where PLD is of no use.
_NUM_POINTS = {"gaussian": 100, "pld": 25, None: 13}
# PLD costs seconds a point where noise is low, for epsilons of little interest.
_NUM_PLD_POINTS = 8
_PLD_EPSILON_LIMIT = 20.0
_MAX_PASSES_SHOWN = 50
# Points of the line through a measured run.
_NUM_MEASURED_POINTS = 9

_NAMES = {"gaussian": "exact Gaussian", "pld": "PLD"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureConfig(config_lib.Config):
  """Pictures to draw.

  Attributes:
    output_dir: Directory of the pictures.
    runs: Directories of runs, or patterns of such, for measured utility.
    mechanism: How noise is made.
    participation: How users take part.
    num_users: Users, the population of epsilon_by_rounds and of
      utility_by_epsilon; epsilon_by_users goes from a hundredth to ten times
      it.
    users_per_round: (Expected) users of a round.
    users_per_client: Users merged in a virtual client.
    mechanism_options: Further fields of the mechanism, by name.
    options: Further fields of the participation.
    rounds: Rounds.
    noise_multipliers: Standard deviations of the noise on the sum of updates /
      clip norm.
    delta: Delta of the guarantee [num_users ** -1.1].
    cohort_factors: Users of a round and noise multiplier, extrapolated / of the
      runs.
    workload: How models are made, for which correlated noise is made.
  """

  output_dir: str
  runs: tuple[str, ...] = config_lib.field((), may_have_commas=True)
  mechanism: str = config_lib.field(
    aggregators.DEFAULT, choices=aggregators.AGGREGATORS
  )
  participation: str = config_lib.field(
    "poisson", choices=participations.PARTICIPATIONS
  )
  num_users: int = config_lib.field(10_000_000, minimum=1)
  users_per_round: float = config_lib.field(131_072.0, above=0)
  users_per_client: int = config_lib.field(32, minimum=1)
  mechanism_options: dict[str, Any] = dataclasses.field(default_factory=dict)
  options: dict[str, Any] = dataclasses.field(default_factory=dict)
  rounds: int = config_lib.field(800, minimum=1)
  noise_multipliers: tuple[str, ...] = config_lib.field(("1.28", "3.5", "10"))
  delta: float | None = config_lib.field(None, **checks.DELTA_RANGE)
  cohort_factors: tuple[str, ...] = config_lib.field(("64", "256", "1024"))
  workload: strategy_lib.Workload = config_lib.part(strategy_lib.Workload())

  def numbers(self, name: str) -> tuple[float, ...]:
    """Returns the numbers in a field of several, ascending.

    Raises:
      errors.FieldError: If they are not a few positive numbers.
    """
    return checks.check_numbers(
      name, getattr(self, name), most=figures.MAX_CURVES
    )

  @functools.cached_property
  def delta_or_default(self) -> float:
    """Delta of the guarantee [one that suits the number of users]."""
    if self.delta is None:
      return planning.default_delta(self.num_users)
    return self.delta

  def claim(self, num_users: int) -> participation_lib.Participation:
    """Returns who takes part, of so many users."""
    of_bands = planning.options_of_bands(
      self.participation, self.mechanism, self.mechanism_options | self.options
    )
    return participations.create_participation(
      self.participation,
      num_users=num_users,
      users_per_round=self.users_per_round,
      users_per_client=self.users_per_client,
      **(self.options | of_bands),
    )


# Writes one picture, all of which is computed already.
_Plot = Callable[[pathlib.Path], None]
# A place on an axis, and the rounds to be accounted for there.
_Point = tuple[int, participation_lib.Participation, int]


def draw(config: PictureConfig) -> list[pathlib.Path]:
  """Computes all, and then draws: a mistake leaves no picture behind.

  Returns the pictures: epsilon by users and by rounds, and measured utility by
  epsilon if there are runs.

  Raises:
    errors.FieldError: If a value is out of its range, or the directory of no
      use.
    errors.DataError: If a run is of no use.
  """
  claim = config.claim(config.num_users)
  plans = []
  for noise_multiplier in config.numbers("noise_multipliers"):
    plan = planning.create_plan(
      config.mechanism,
      claim,
      config.rounds,
      noise_multiplier,
      config.delta_or_default,
      workload=config.workload,
      **config.mechanism_options,
    )
    plans.append(plan)
  plots = {}
  with output_files.directory(config.output_dir) as directory:
    if config.runs:
      runs = measured_runs.find(config_lib.split_words(config.runs, glob.glob))
      # It refuses what is too much to be told apart.
      plots["utility_by_epsilon.png"] = _prepare_utility(config, runs)
      plots["measured_by_users.png"] = _prepare_measured(runs)
    plots |= _prepare_accounting(config, plans)
    for name, plot in plots.items():
      plot(directory / name)
  return sorted(directory / name for name in plots)


def _prepare_accounting(
  config: PictureConfig,
  plans: Sequence[planning.Plan],
) -> dict[str, _Plot]:
  """Returns what draws the pictures of accounting alone, by file."""
  claim = plans[0].participation
  rounds = config.rounds
  places = {
    "users": [
      (n, config.claim(n), rounds)
      for n in _populations(claim, _NUM_POINTS[_tighter(claim)])
    ],
    "rounds": [(n, claim, n) for n in _round_numbers(claim, rounds)],
  }
  users = f"{config.num_users:,} users"
  settings = {"users": f"{rounds:,} rounds", "rounds": f"of {users}"}
  if plans[0].strategy:
    settings["users"] += f", noise correlated as for {users}"
  tighter = _tighter(claim)
  with progress_lib.create_bar(
    "Accounting",
    unit="points",
    total=len(plans) * sum(map(len, places.values())),
  ) as progress:
    pictures: dict[str, Callable[[pathlib.Path], None]] = {}
    for by in places:
      pictures[f"epsilon_by_{by}.png"] = functools.partial(
        privacy_plots.plot_epsilon,
        points=_compute(plans, places[by], progress),
        by=by,
        delta=config.delta_or_default,
        caption=_caption(plans[0], settings[by]),
        accountant="RDP" if "rdp" in claim.accountants else "PLD",
        tighter_accountant=tighter and _NAMES[tighter],
        num_users=config.num_users if by == "users" else None,
      )
  return pictures


def _populations(
  claim: participation_lib.Participation, num_points: int
) -> list[int]:
  """Numbers of users, evenly on a logarithmic axis, `num_users` among them."""
  num_users = claim.num_users
  # Each round draws from one of so many blocks of users.
  blocks = (claim.min_separation or 1) if claim.is_sampled else 1
  low = max(math.ceil(claim.users_per_round * blocks), num_users // 100)
  grid = np.geomspace(low, 10 * num_users, num_points)
  numbers = {int(number) for number in grid[1:-1]}
  return sorted(numbers | {low, num_users, 10 * num_users})


def _round_numbers(
  claim: participation_lib.Participation,
  rounds: int,
) -> list[int]:
  grid = np.linspace(0, rounds, _NUM_POINTS[_tighter(claim)] + 1)[1:]
  numbers = {math.ceil(number) for number in grid}
  separation = claim.min_separation
  if separation is not None and rounds <= _MAX_PASSES_SHOWN * separation:
    # Epsilon jumps where a pass ends and a user may take part once more.
    numbers.add(1)
    for end in range(separation, rounds, separation):
      numbers |= {end, end + 1}
  return sorted(numbers)


def _tighter(claim: participation_lib.Participation) -> str | None:
  """The accountant to compare RDP with, if there is one."""
  return next((name for name in _NAMES if name in claim.accountants), None)


def _compute(
  plans: Sequence[planning.Plan],
  points: Sequence[_Point],
  progress: Any,
) -> pd.DataFrame:
  """Computes epsilon at every point of an axis, PLD at a few."""
  rows: list[tuple[float, str, int, float]] = []

  # RDP, which is quick, where there is one.
  first = plans[0].participation.accountants[0]

  def add(plan, reading, chosen, accountant, sensitivity=None):
    for x, participation, rounds in chosen:
      account = dataclasses.replace(
        plan.account,
        participation=participation,
        accountants=(accountant,),
        history=(composition.Rounds(count=rounds, noise=plan.noise),),
      )
      (epsilon,) = epsilon_lib.epsilon_by_accountant(
        account, sensitivity_in_clip_norms=sensitivity
      ).values()
      rows.append((plan.noise_multiplier, reading, x, epsilon))
      progress.update(reading == "user_level")

  for plan in plans:
    add(plan, "user_level", points, first)
    shown = list(points)
    tighter = _tighter(plan.participation)
    if tighter == "pld":
      pairs = zip(points, rows[-len(points) :], strict=True)
      shown = [point for point, row in pairs if row[-1] < _PLD_EPSILON_LIMIT]
      places = np.linspace(0, len(shown) - 1, min(_NUM_PLD_POINTS, len(shown)))
      shown = [shown[round(place)] for place in places]
    if tighter:
      add(plan, "tighter", shown, tighter)
    if plan.participation.sensitivity_in_clip_norms != 1:
      add(plan, "virtual_client", points, first, 1.0)
  columns = ["noise_multiplier", "reading", "x", "epsilon"]
  return pd.DataFrame(rows, columns=columns)


def _caption(plan: planning.Plan, setting: str) -> str:
  claim = plan.participation
  sensitivity = claim.sensitivity_in_clip_norms
  relation = claim.neighboring_relation_in_words
  readings = (
    "One user changes a round's sum by at most C: the user-level reading and"
    f" Δ = C are the same ({relation})."
  )
  if sensitivity != 1:
    readings = (
      f"User-level: {relation}; one user changes a round's sum by at"
      f" most Δ = {sensitivity:g} C. Δ = C {epsilon_lib.VIRTUAL_CLIENT_UNIT}."
    )
  return (
    f"Mechanism {plan.name}, participation {claim.name}:"
    f" {claim.cohort_in_words} users a round, {claim.users_per_client} in a"
    f" virtual client, {setting}. {readings}"
  )


def _create_curves(
  runs: pd.DataFrame, places: Callable[[Any], Mapping[float, dict[str, Any]]]
) -> utility_plots.Curves:
  """Curves of runs with their epsilon elsewhere.

  Args:
    runs: As `measured_runs.find` returns them.
    places: Maps a run to options of `measured_runs.extrapolate`, by cohort
      factor or number of users.
  """
  # Runs that differ in their seed alone have one cost.
  with progress_lib.create_bar(
    "Extrapolating", unit="settings", total=runs.setting.nunique()
  ) as progress:

    def extrapolate(run):
      progress.update()
      return {
        place: measured_runs.extrapolate(run, **options)
        for place, options in places(run).items()
      }

    return measured_runs.create_curves(runs, extrapolate)


def _prepare_measured(runs: pd.DataFrame) -> _Plot:
  """Returns what draws runs with noise over the users that they had."""

  def other_users(run):
    claim = run.ledger.participation
    return {
      num_users: {
        "num_users": num_users,
        "cohort_factor": 1.0,
        "delta": planning.default_delta(num_users),
      }
      for num_users in _populations(claim, _NUM_MEASURED_POINTS)
    }

  return functools.partial(
    privacy_plots.plot_measured_by_users,
    curves=_create_curves(runs[runs.noise_multiplier > 0], other_users),
    caption=(
      "A marker is what runs with so many users cost, and the recall that they"
      f" have at FAR {measured_runs.FALSE_ACCEPT_RATE:g}. A line is what the"
      " same rounds and noise cost among other numbers of users: no run. δ is"
      " 1 / N^1.1 to one digit on lines, and that of the runs at markers."
    ),
  )


def _prepare_utility(config: PictureConfig, runs: pd.DataFrame) -> _Plot:
  """Returns what draws the picture of recall over epsilon."""
  factors = config.numbers("cohort_factors")

  def larger_cohorts(run):
    del run  # They are the same for all.
    return {
      factor: {
        "num_users": config.num_users,
        "cohort_factor": factor,
        "delta": config.delta_or_default,
      }
      for factor in factors
    }

  return functools.partial(
    utility_plots.plot_extrapolated_by_epsilon,
    curves=_create_curves(runs, larger_cohorts),
    false_accept_rate=measured_runs.FALSE_ACCEPT_RATE,
    caption=_utility_caption(config, runs),
    untrained=runs.recall_untrained.mean(),
  )


def _utility_caption(config: PictureConfig, runs: pd.DataFrame) -> str:
  claims = [ledger.participation for ledger in runs.ledger]
  populations = measured_runs.either(f"{x.num_users:,}" for x in claims)
  cohorts = measured_runs.either(claim.cohort_in_words for claim in claims)
  delta = f"{config.delta_or_default:.2g}".replace("e-0", "e-")
  return (
    f"Task {runs.task.iloc[0]}. Left: the recall was measured in simulations of"
    f" {populations} users, {cohorts} a round; ε is that of"
    f" {config.num_users:,} users at δ = {delta}, user-level, by the"
    " tightest valid accountant, for a cohort and a noise multiplier that are"
    " both larger by the factor in the legend. The noise on the mean update is"
    " then the same; the same recall is assumed. Right: the ε of the"
    " simulations themselves, at their own δ. Bars: standard deviation over"
    " seeds."
  )
