"""Pictures of the cost of privacy, from accounting and from finished runs."""

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

# Points of a curve, by the accountant that RDP is compared with. Without
# sampling, epsilon has steps and RDP takes milliseconds a point. With Poisson
# sampling it takes 0.02 s, or about 0.3 s where PLD cannot be used.
_NUM_POINTS = {"gaussian": 100, "pld": 25, None: 13}
# With little noise PLD takes seconds a point, for epsilons of little interest.
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
    runs: Directories of runs, or patterns of them, for measured utility.
    mechanism: How noise is made.
    participation: How users take part.
    num_users: Number of users in epsilon_by_rounds and utility_by_epsilon;
      epsilon_by_users goes from a hundredth of it to ten times as many.
    users_per_round: (Expected) users of a round.
    users_per_client: Users merged in a virtual client.
    mechanism_options: Further fields of the mechanism, by name.
    options: Further fields of the participation, by name.
    rounds: Rounds.
    noise_multipliers: Standard deviations of the noise on the sum of updates,
      as multiples of the clip norm.
    delta: Delta of the guarantee [num_users ** -1.1].
    cohort_factors: Factors for the users of a round and the noise multiplier
      when runs are extrapolated.
    workload: How models follow from updates; correlated noise is made for it.
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
    """Returns the numbers of a field that has several, ascending.

    Args:
      name: Name of the field.

    Returns:
      Different positive numbers, ascending.

    Raises:
      errors.FieldError: If the field has too many, or other than positive
        numbers.
    """
    return checks.check_numbers(
      name, getattr(self, name), most=figures.MAX_CURVES
    )

  @functools.cached_property
  def delta_or_default(self) -> float:
    """Delta of the guarantee; without one, `num_users` to the power of -1.1."""
    if self.delta is None:
      return planning.default_delta(self.num_users)
    return self.delta

  def claim(self, num_users: int) -> participation_lib.Participation:
    """Creates the participation in a population.

    Args:
      num_users: Number of its users.

    Returns:
      The participation, with the period that banded noise needs, if any.

    Raises:
      errors.FieldError: If the fields are not valid for it.
    """
    given = self.mechanism_options | self.options
    of_bands = planning.options_of_bands(
      self.participation, self.mechanism, given
    )
    return participations.create_participation(
      self.participation,
      num_users=num_users,
      users_per_round=self.users_per_round,
      users_per_client=self.users_per_client,
      **(self.options | of_bands),
    )


# Writes one picture from points that are already computed.
_Plot = Callable[[pathlib.Path], None]
# A place on an axis, and the participation and number of rounds there.
_Point = tuple[int, participation_lib.Participation, int]


def draw(config: PictureConfig) -> list[pathlib.Path]:
  """Computes all pictures, then draws them: an error leaves no picture.

  Args:
    config: Pictures to draw.

  Returns:
    Their files, sorted: epsilon by users and by rounds, and with runs also
    measured utility by epsilon and by users.

  Raises:
    errors.FieldError: If a value is out of its range, if the directory cannot
      be written, or if the runs cannot be compared.
    errors.DataError: If a run is damaged.
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
      # Measured runs first: these functions refuse runs that cannot be
      # compared.
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
  """Returns functions that draw the pictures of accounting, by file name.

  Args:
    config: Pictures to draw.
    plans: Plans that differ in their noise multiplier, at least one.

  Returns:
    Functions of a path. Epsilon is computed before they are returned.
  """
  claim = plans[0].participation
  rounds = config.rounds
  tighter = _tighter(claim)
  populations = _populations(
    claim, config.users_per_round, _NUM_POINTS[tighter]
  )
  places = {
    "users": [(n, config.claim(n), rounds) for n in populations],
    "rounds": [(n, claim, n) for n in _round_numbers(claim, rounds)],
  }
  users = f"{config.num_users:,} users"
  settings = {"users": f"{rounds:,} rounds", "rounds": f"of {users}"}
  if plans[0].strategy:
    settings["users"] += f", noise correlated as for {users}"
  with progress_lib.create_bar(
    "Accounting",
    unit="points",
    total=len(plans) * sum(map(len, places.values())),
  ) as progress:
    pictures: dict[str, _Plot] = {}
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
  claim: participation_lib.Participation,
  users_per_round: float,
  num_points: int,
) -> list[int]:
  """Returns numbers of users, `num_users` among them.

  They are even on a logarithmic axis, from a hundredth to ten times the number,
  and have room for the users of a round that were asked for.

  Args:
    claim: Participation in the population of the configuration or the run.
    users_per_round: (Expected) users of a round.
    num_points: Approximate number of populations.

  Returns:
    Different numbers, ascending.
  """
  num_users = claim.num_slots
  # Each round draws from one of this many blocks of users.
  blocks = 1
  if claim.is_sampled:
    blocks = claim.min_separation or 1
  low = max(math.ceil(users_per_round * blocks), num_users // 100)
  grid = np.geomspace(low, 10 * num_users, num_points)
  numbers = {int(number) for number in grid[1:-1]}
  return sorted(numbers | {low, num_users, 10 * num_users})


def _round_numbers(
  claim: participation_lib.Participation,
  rounds: int,
) -> list[int]:
  """Returns numbers of rounds, evenly, and those where epsilon jumps.

  Args:
    claim: The participation.
    rounds: Largest number of rounds.

  Returns:
    Different numbers from 1 on, ascending.
  """
  grid = np.linspace(0, rounds, _NUM_POINTS[_tighter(claim)] + 1)
  numbers = {math.ceil(number) for number in grid[1:]}
  separation = claim.min_separation
  if separation is not None and rounds <= _MAX_PASSES_SHOWN * separation:
    # Epsilon jumps where a pass ends and a user may take part again.
    numbers.add(1)
    for end in range(separation, rounds, separation):
      numbers |= {end, end + 1}
  return sorted(numbers)


def _tighter(claim: participation_lib.Participation) -> str | None:
  """Returns the accountant to compare RDP with, if there is one.

  Args:
    claim: The participation.

  Returns:
    "gaussian" where it is valid, else "pld" where that is, else None.
  """
  return next((name for name in _NAMES if name in claim.accountants), None)


def _compute(
  plans: Sequence[planning.Plan],
  points: Sequence[_Point],
  progress: Any,
) -> pd.DataFrame:
  """Computes epsilon at all points of an axis, by PLD only at a few.

  Args:
    plans: Plans that differ in their noise multiplier.
    points: Places on the axis, with participation and rounds there.
    progress: Bar that counts the points of the user-level reading.

  Returns:
    Rows with `noise_multiplier`, `reading` ("user_level", "tighter" or
    "virtual_client"), `x`, the place, and `epsilon`.
  """
  rows: list[tuple[float, str, int, float]] = []

  def add(
    plan: planning.Plan,
    reading: str,
    chosen: Sequence[_Point],
    accountant: str,
    sensitivity: float | None = None,
  ) -> None:
    """Adds a row for each point, by one accountant and sensitivity."""
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
    claim = plan.participation
    # RDP, which is quick, where it is valid.
    first = claim.accountants[0]
    add(plan, "user_level", points, first)
    tighter = _tighter(claim)
    if tighter == "pld":
      epsilons = [row[-1] for row in rows[-len(points) :]]
      add(plan, "tighter", _choose_for_pld(points, epsilons), tighter)
    elif tighter:
      add(plan, "tighter", points, tighter)
    if claim.sensitivity_in_clip_norms != 1:
      add(plan, "virtual_client", points, first, 1.0)
  columns = ["noise_multiplier", "reading", "x", "epsilon"]
  return pd.DataFrame(rows, columns=columns)


def _choose_for_pld(
  points: Sequence[_Point],
  epsilons: Sequence[float],
) -> list[_Point]:
  """Chooses a few points, evenly, whose epsilon is of interest.

  Args:
    points: The points.
    epsilons: Epsilon of each by the quick accountant.

  Returns:
    At most eight points with an epsilon below 20.
  """
  pairs = zip(points, epsilons, strict=True)
  low = [point for point, epsilon in pairs if epsilon < _PLD_EPSILON_LIMIT]
  count = min(_NUM_PLD_POINTS, len(low))
  return [low[round(place)] for place in np.linspace(0, len(low) - 1, count)]


def _caption(plan: planning.Plan, setting: str) -> str:
  """Describes a plan and the readings of epsilon below a picture.

  Args:
    plan: The plan.
    setting: What is the same at all points, in a few words.
  """
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
  """Returns curves of runs, with their epsilons elsewhere.

  Args:
    runs: As returned by `measured_runs.find`.
    places: Maps a run to options of `measured_runs.extrapolate`, by cohort
      factor or number of users.
  """
  # Runs that differ only in their seeds are extrapolated once.
  with progress_lib.create_bar(
    "Extrapolating", unit="settings", total=runs.setting.nunique()
  ) as progress:

    def extrapolate(run: Any) -> dict[float, float]:
      progress.update()
      epsilons = {}
      for place, options in places(run).items():
        epsilons[place] = measured_runs.extrapolate(run, **options)
      return epsilons

    return measured_runs.create_curves(runs, extrapolate)


def _prepare_measured(runs: pd.DataFrame) -> _Plot:
  """Returns what draws runs with noise over their numbers of users.

  Args:
    runs: Runs as returned by `measured_runs.find`.

  Raises:
    errors.FieldError: As `measured_runs.create_curves` and `extrapolate`.
  """

  def other_users(run: Any) -> dict[float, dict[str, Any]]:
    options: dict[float, dict[str, Any]] = {}
    claim = run.ledger.participation
    users = claim.users_per_round
    for num_users in _populations(claim, users, _NUM_MEASURED_POINTS):
      delta = planning.default_delta(num_users)
      options[num_users] = {
        "num_users": num_users,
        "cohort_factor": 1.0,
        "delta": delta,
      }
    return options

  return functools.partial(
    privacy_plots.plot_measured_by_users,
    curves=_create_curves(runs[runs.noise_multiplier > 0], other_users),
    caption=(
      "Markers show the cost of runs and their recall at FAR"
      f" {measured_runs.FALSE_ACCEPT_RATE:g}. Lines show the cost of the same"
      " rounds and noise with other numbers of users, computed without a run. δ"
      " is 1 / N^1.1 to one digit on lines, and that of the runs at markers."
    ),
  )


def _prepare_utility(config: PictureConfig, runs: pd.DataFrame) -> _Plot:
  """Returns what draws the picture of recall over epsilon.

  Args:
    config: Population, delta and cohort factors.
    runs: Runs as returned by `measured_runs.find`.

  Raises:
    errors.FieldError: As `measured_runs.create_curves` and `extrapolate`.
  """
  larger: dict[float, dict[str, Any]] = {}
  for factor in config.numbers("cohort_factors"):
    larger[factor] = {
      "num_users": config.num_users,
      "cohort_factor": factor,
      "delta": config.delta_or_default,
    }
  return functools.partial(
    utility_plots.plot_extrapolated_by_epsilon,
    curves=_create_curves(runs, lambda run: larger),
    false_accept_rate=measured_runs.FALSE_ACCEPT_RATE,
    caption=_utility_caption(config, runs),
    untrained=runs.recall_untrained.mean(),
  )


def _utility_caption(config: PictureConfig, runs: pd.DataFrame) -> str:
  """Describes runs and their epsilons below the picture of utility.

  Args:
    config: Population and delta of the extrapolation.
    runs: The runs.
  """
  delta = f"{config.delta_or_default:.2g}".replace("e-0", "e-")
  return (
    f"Task {runs.task.iloc[0]}. Left: the recall was measured in simulations of"
    f" {measured_runs.describe_cohorts(runs)}; ε is that of"
    f" {config.num_users:,} users at δ = {delta}, user-level, by the"
    " tightest valid accountant, for a cohort and a noise multiplier that are"
    " both larger by the factor in the legend. The noise on the mean update is"
    " then the same; the same recall is assumed. Right: the ε of the"
    " simulations themselves, at their own δ. Bars: standard deviation over"
    " seeds."
  )
