"""The cost of a run before it begins.

A plan names the mechanism, who takes part, how much noise there is and, of
independent noise, how large an update is. Its account is made by what makes
that of a run (`ledger.create_ledger`).
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations


def default_delta(num_users: int) -> float:
  """N^-1.1 rounded to one digit, and always below 1 / N."""
  rounded = float(f"{num_users**-1.1:.0e}")
  return rounded if rounded < 1.0 / num_users else 0.5 / num_users


@dataclasses.dataclass(frozen=True)
class Plan(config.Config):
  """A run that might be made.

  Privacy:
    Unit, neighbouring relation, sensitivity: those of `participation`.
    DpEvent: `composition.composed_events` of `rounds` of `noise`.

  Attributes:
    mechanism: How noise is made, and how much.
    participation: Who takes part.
    rounds: Number of rounds, in [1, `checks.MAX_ROUNDS`].
    delta: In (0, 1).
    accountants: Names of those to ask [`epsilon.default_accountants`].
    num_parameters: Numbers of an update, for what the arithmetic of independent
      noise leaves (`arithmetic`); None leaves that out.
    workload: How the run makes its models, for which correlated noise is made.

  Raises:
    errors.FieldError: If a value is out of its range, or the mechanism's noise
      not one that the participation allows.
  """

  mechanism: mechanism_lib.MechanismConfig
  participation: participation_lib.Participation
  rounds: int = config.field(minimum=1, maximum=checks.MAX_ROUNDS)
  delta: float = config.field(**checks.DELTA_RANGE)
  _: dataclasses.KW_ONLY
  accountants: tuple[str, ...] | None = None
  num_parameters: int | None = config.field(None, minimum=1)
  workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS

  def __post_init__(self):
    super().__post_init__()
    self.mechanism.check_clients(self.participation.clients_per_round)
    strategy = self.mechanism.strategy_class
    if strategy is not None:
      composition.check_correlated(strategy, self.participation)
      if self.num_parameters is not None:
        raise errors.FieldError(
          "num_parameters",
          f"not be given with mechanism {self.name}: what its arithmetic"
          " leaves is not bounded",
          self.num_parameters,
        )
    accountants = self.accountants
    if accountants is None:
      accountants = epsilon_lib.default_accountants(
        self.participation, self.noise_multiplier
      )
    accountants = self.participation.select_accountants(accountants)
    if self.participation.is_drawn_once:
      # The kind of noise decides which accountant applies.
      accountants = ("monte_carlo" if strategy else "allocation",)
    object.__setattr__(self, "accountants", accountants)

  @property
  def name(self) -> str:
    """Name of the mechanism."""
    return aggregators.AGGREGATORS.name_of(self.mechanism)

  @property
  def noise_in_words(self) -> str:
    """Name of the noise in tables."""
    return self.mechanism.noise_in_words or self.name

  @property
  def noise_multiplier(self) -> float:
    """Standard deviation of the noise on a round's sum over the clip norm.

    For correlated noise it is that of a row of Z (see `mechanisms.strategy`).
    """
    return self.mechanism.noise_multiplier

  @functools.cached_property
  def strategy(self) -> strategy_lib.Strategy | None:
    """How noise is correlated over the rounds; None if it is not."""
    return self.mechanism.create_strategy(
      composition.schedule_of(self.participation, self.rounds), self.workload
    )

  @property
  def noise(self) -> composition.Noise:
    """Noise that every round adds to its sum."""
    return composition.Noise(self.noise_multiplier, self.strategy)

  @property
  def family(self) -> tuple[str, str]:
    """Mechanism and participation: plans that differ in size alone."""
    return self.name, self.participation.name

  @property
  def size(self) -> int | None:
    """The value of the mechanism's `size_field`; None without one."""
    field = self.mechanism.size_field
    return None if field is None else getattr(self.mechanism, field)

  @property
  def model_copies(self) -> int:
    """Arrays of the model's size that the noise needs beside it, at most."""
    return self.strategy.model_copies(self.rounds) if self.strategy else 0

  @functools.cached_property
  def model_stddevs(self) -> np.ndarray:
    """Noise of the model after each round, in clip norms.

    Float64 `[rounds]`: that of the rounds' sums, divided by the (expected)
    virtual clients of a round, at a server learning rate of 1.
    """
    scale = self.noise_multiplier / self.participation.clients_per_round
    if self.strategy is None:
      weights = self.workload.first_column(self.rounds)
      return scale * np.sqrt(np.cumsum(np.square(weights)))
    return scale * self.strategy.model_stddevs(self.rounds, self.workload)

  @property
  def error(self) -> float:
    """The noise that the workload's objective makes small."""
    return self.workload.error(self.model_stddevs)

  @property
  def rmse(self) -> float:
    """Root mean square of `model_stddevs`."""
    return math.sqrt(np.mean(np.square(self.model_stddevs)))

  @property
  def max_error(self) -> float:
    """Largest of `model_stddevs`."""
    return float(np.max(self.model_stddevs))

  @property
  def account(self) -> ledger_lib.Ledger:
    """All rounds."""
    return ledger_lib.create_ledger(
      self.participation,
      self.noise,
      self.rounds,
      delta=self.delta,
      accountants=self.accountants,
      round_sum=create_round_sum(
        self.mechanism,
        self.participation.clients_per_round,
        self.num_parameters,
      ),
    )

  def with_value(self, name: str, value: float) -> "Plan":
    """Returns a plan with another number of users, cohort or noise.

    Args:
      name: 'noise_multiplier', 'num_users' or 'users_per_round'.
      value: Its value; the noise goes with the cohort, the separation with the
        number of users and the cohort.
    """
    claim = self.participation
    noise = value
    if name != "noise_multiplier":
      sizes: dict[str, Any] = {
        "num_users": claim.num_users,
        "users_per_round": claim.users_per_round,
        name: value,
      }
      growth = sizes["users_per_round"] / claim.users_per_round
      noise = self.noise_multiplier * growth
      claim = claim.resized(**sizes)
    mechanism = dataclasses.replace(
      self.mechanism, noise_multiplier=float(noise)
    )
    return dataclasses.replace(self, mechanism=mechanism, participation=claim)

  def to_json(self) -> dict[str, Any]:
    """Returns what is planned as a dictionary that JSON can hold."""
    return {
      "mechanism": self.name,
      "participation": participations.PARTICIPATIONS.to_json(
        self.participation
      ),
      "rounds": self.rounds,
      "noise_multiplier": self.noise_multiplier,
      "delta": self.delta,
      "workload": self.workload.to_json(),
      "strategy": self.strategy
      and {"name": self.strategy.name, **self.strategy.to_json()},
    }


def create_round_sum(
  mechanism: mechanism_lib.MechanismConfig,
  clients_per_round: float,
  num_parameters: int | None,
) -> composition.RoundSum | None:
  """Returns what a mechanism sums up in a round; None if it is not known.

  Args:
    mechanism: Configuration of the mechanism.
    clients_per_round: Expected number of virtual clients in a round.
    num_parameters: Numbers of an update; None if they are not known.
  """
  if num_parameters is None or not mechanism.clips:
    return None
  noise_multiplier = mechanism.noise_multiplier_of_sum(clients_per_round)
  return composition.RoundSum(
    mechanism.clip_norm, noise_multiplier, num_parameters
  )


def create_plan(
  mechanism: str,
  participation: participation_lib.Participation,
  rounds: int,
  noise_multiplier: float,
  delta: float,
  *,
  accountants: tuple[str, ...] | None = None,
  num_parameters: int | None = None,
  workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
  **options: Any,
) -> Plan:
  """Creates a plan of a mechanism by name.

  Args:
    mechanism: Configuration of one of `mechanisms.registry.AGGREGATORS`.
    participation: As `Plan`, like all that is not said here.
    rounds: Number of rounds.
    noise_multiplier: Over the clip norm, 0 or in [1e-6, 1e6].
    delta: In (0, 1).
    accountants: Names.
    num_parameters: Numbers of an update.
    workload: How models are made of the rounds' sums.
    **options: Other fields of the mechanism; None is as if it were not given.

  Raises:
    errors.FieldError: As `Plan`, or if an option is one of another mechanism.
  """
  return Plan(
    aggregators.AGGREGATORS.create(
      mechanism, noise_multiplier=noise_multiplier, **options
    ),
    participation,
    rounds,
    delta,
    accountants=accountants,
    num_parameters=num_parameters,
    workload=workload,
  )


def create_report(plan: Plan) -> report_lib.PrivacyReport:
  """Returns the whole account of a plan.

  Privacy:
    As `Plan`.

  Args:
    plan: The run.

  Raises:
    ValueError: If PLD alone is asked for where it would take minutes.
  """
  epsilon_lib.check_pld(plan.account)
  return report_lib.create_report(plan.account)


def epsilon(
  mechanism: mechanism_lib.MechanismConfig,
  participation: participation_lib.Participation,
  *,
  num_users: int,
  rounds: int,
  delta: float | None = None,
  num_parameters: int | None = None,
  workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
) -> float:
  """Returns what training costs one user.

  It is what `account epsilon` and the ledger of a run say.

    fe.epsilon(
      fe.Gaussian(noise_multiplier=1.0),
      fe.Poisson(users_per_round=500),
      num_users=1_000_000,
      rounds=1_000,
    )

  Privacy:
    As `Plan`.

  Args:
    mechanism: See `build_aggregator`.
    participation: Who takes part in a round, which whoever draws clients has to
      do.
    num_users: Size of the population.
    rounds: Rounds of the whole training.
    delta: Delta of the guarantee, in (0, 1) [num_users^-1.1].
    num_parameters: Trained numbers of the model, for mechanisms of independent
      noise: epsilon then includes what the arithmetic of the noise leaves.
    workload: See `build_aggregator`, whose matrix has to be the same one.

  Returns:
    The smallest of the epsilons of the accountants that are valid and take
    seconds at most.

  Raises:
    FieldError: If a value is out of its range, or the mechanism's noise is not
      one that the participation allows.

  Examples:
    >>> cost = fe.epsilon(
    ...   fe.Gaussian(noise_multiplier=1.0),
    ...   fe.Poisson(users_per_round=50),
    ...   num_users=10_000,
    ...   rounds=20,
    ...   delta=1e-5,
    ... )
    >>> round(cost, 2)
    0.21
  """
  claim = participation.for_users(num_users)
  plan = Plan(
    mechanism,
    claim,
    rounds,
    delta or default_delta(num_users),
    num_parameters=num_parameters,
    workload=workload,
  )
  return create_report(plan).epsilon


def options_of_bands(
  participation: str,
  mechanism: str,
  given: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns how far apart a participation has users: as a matrix has bands.

  Args:
    participation: Its name.
    mechanism: Its name.
    given: Options of both by name, None if not given.

  Returns:
    The option that says it; none where that follows from the rest.

  Raises:
    errors.FieldError: If neither it nor the bands were given.
  """
  claim = participations.PARTICIPATIONS[participation]
  name = claim.field_of_bands
  noise = aggregators.AGGREGATORS[mechanism]
  strategy = noise.strategy_class
  if name is None or not (strategy is None or strategy.is_banded):
    return {}  # Other noise is refused where it meets the participation.
  value = given.get(name)
  others = ""
  if strategy is not None:
    others = f", or {noise.size_field} in its place"
    value = given.get(noise.size_field) if value is None else value
  if value is None and strategy is None and not claim.is_for_bands:
    return {}
  if value is None:
    raise errors.FieldError(
      name, f"be given with participation {participation}{others}", "nothing"
    )
  return {name: value}
