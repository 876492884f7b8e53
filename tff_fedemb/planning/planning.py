"""The privacy cost of a run that is only planned.

A plan has the mechanism, the participation, the amount of noise and, for
independent noise, the size of an update. The same function makes its account
and that of a run (`ledger.create_ledger`).
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
  """Returns N^-1.1 rounded to one digit, and always below 1 / N.

  Args:
    num_users: Size N of the population, at least 1.
  """
  rounded = float(f"{num_users**-1.1:.0e}")
  return rounded if rounded < 1.0 / num_users else 0.5 / num_users


@dataclasses.dataclass(frozen=True)
class Plan(config.Config):
  """A run that is planned.

  Privacy:
    Unit, neighbouring relation, sensitivity: those of `participation`.
    DpEvent: `composition.composed_events` of `rounds` of `noise`.

  Attributes:
    mechanism: The mechanism, with its noise multiplier.
    participation: Who takes part.
    rounds: Number of rounds, in [1, `checks.MAX_ROUNDS`].
    delta: Delta of the guarantee, in (0, 1).
    accountants: Names of the accountants [`epsilon.default_accountants`].
    num_parameters: How many numbers an update has, for the cost of the
      arithmetic of independent noise (`arithmetic`); None leaves it out.
    workload: How the run makes its models, for which correlated noise is made.

  Raises:
    errors.FieldError: If a value is out of its range, or the participation does
      not allow the mechanism's noise.
  """

  mechanism: mechanism_lib.MechanismConfig
  participation: participation_lib.Participation
  rounds: int = config.field(minimum=1, maximum=checks.MAX_ROUNDS)
  delta: float = config.field(**checks.DELTA_RANGE)
  _: dataclasses.KW_ONLY
  accountants: tuple[str, ...] = ()
  num_parameters: int | None = config.field(None, minimum=1)
  workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS

  def __post_init__(self):
    super().__post_init__()
    self.mechanism.check_clients(self.participation.clients_per_round)
    self.participation.check_rounds(self.rounds)
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
    accountants = self.participation.select_accountants(
      self.accountants
      or epsilon_lib.default_accountants(
        self.participation, self.noise_multiplier
      )
    )
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
    """Name of the noise in tables, for example "independent" or "BLT"."""
    return self.mechanism.noise_in_words or self.name

  @property
  def noise_multiplier(self) -> float:
    """Standard deviation of the noise on a round's sum over the clip norm.

    For correlated noise it is that of a row of Z (see `mechanisms.strategy`).
    """
    return self.mechanism.noise_multiplier

  @functools.cached_property
  def strategy(self) -> strategy_lib.Strategy | None:
    """The matrix of correlated noise; None for independent noise.

    It is optimised on the first use, for the rounds, the participation and the
    workload of the plan.
    """
    return self.mechanism.create_strategy(
      composition.schedule_of(self.participation, self.rounds), self.workload
    )

  @property
  def noise(self) -> composition.Noise:
    """The noise that every round adds to its sum.

    Its multiplier is 0 if the noise has a known seed, which protects nobody.
    """
    multiplier = self.mechanism.secret_noise_multiplier
    return composition.Noise(multiplier, self.strategy)

  @property
  def family(self) -> tuple[str, str]:
    """Names of mechanism and participation: such plans differ in size alone."""
    return self.name, self.participation.name

  @property
  def size(self) -> int | None:
    """The value of the mechanism's `size_field`; None without one."""
    field = self.mechanism.size_field
    return None if field is None else getattr(self.mechanism, field)

  @property
  def model_copies(self) -> int:
    """Most arrays of the model's size that the noise needs beside the model.

    It is 0 for independent noise.
    """
    return self.strategy.model_copies(self.rounds) if self.strategy else 0

  @functools.cached_property
  def model_stddevs(self) -> np.ndarray:
    """Noise of the model after each round, in clip norms.

    Float64 `[rounds]`: the noise of the rounds' sums, divided by the expected
    number of virtual clients in a round, at a server learning rate of 1.
    """
    scale = self.noise_multiplier / self.participation.clients_per_round
    if self.strategy is None:
      weights = self.workload.first_column(self.rounds)
      return scale * np.sqrt(np.cumsum(np.square(weights)))
    return scale * self.strategy.model_stddevs(self.rounds, self.workload)

  @property
  def error(self) -> float:
    """The noise, in clip norms, that the workload's objective makes small."""
    return self.workload.error(self.model_stddevs)

  @property
  def rmse(self) -> float:
    """Root mean square of `model_stddevs` over the rounds, in clip norms."""
    return math.sqrt(np.mean(np.square(self.model_stddevs)))

  @property
  def max_error(self) -> float:
    """Largest of `model_stddevs`, in clip norms."""
    return float(np.max(self.model_stddevs))

  @property
  def account(self) -> ledger_lib.Ledger:
    """The account of all rounds, as a run of the plan would have it.

    Raises:
      ValueError: As `ledger.create_ledger`.
    """
    round_sum = create_round_sum(
      self.mechanism, self.participation.clients_per_round, self.num_parameters
    )
    return ledger_lib.create_ledger(
      self.participation,
      self.noise,
      self.rounds,
      delta=self.delta,
      accountants=self.accountants,
      round_sum=round_sum,
    )

  def with_value(self, name: str, value: float) -> "Plan":
    """Returns a plan with another number of users, cohort or noise.

    Args:
      name: 'noise_multiplier', 'num_users' or 'users_per_round'.
      value: Its value. If it is the cohort, the noise multiplier changes in
        proportion; the separation follows from the number of users and the
        cohort.

    Returns:
      The plan; its strategy is optimised anew for the schedule.

    Raises:
      errors.FieldError: If the value is out of its range, or a cohort larger
        than the population.
    """
    claim, noise = self.participation, value
    if name != "noise_multiplier":
      sizes: dict[str, Any] = {
        "num_users": claim.num_users,
        "users_per_round": claim.users_per_round,
        name: value,
      }
      claim = claim.resized(**sizes)
      noise = self.noise_multiplier
      if name == "users_per_round":
        # The sum is divided by the number of virtual clients.
        clients = self.participation.clients_per_round
        noise *= claim.clients_per_round / clients
    mechanism = dataclasses.replace(
      self.mechanism, noise_multiplier=float(noise)
    )
    return dataclasses.replace(self, mechanism=mechanism, participation=claim)

  def to_json(self) -> dict[str, Any]:
    """Returns the plan as a dictionary that JSON can hold.

    It has the matrix of correlated noise too, but neither the accountants nor
    the number of parameters: `account` has these.
    """
    participation = participations.PARTICIPATIONS.to_json(self.participation)
    strategy = None
    if self.strategy is not None:
      strategy = {"name": self.strategy.name} | self.strategy.to_json()
    return {
      "mechanism": self.name,
      "participation": participation,
      "rounds": self.rounds,
      "noise_multiplier": self.noise_multiplier,
      "delta": self.delta,
      "workload": self.workload.to_json(),
      "strategy": strategy,
    }


def create_round_sum(
  mechanism: mechanism_lib.MechanismConfig,
  clients_per_round: float,
  num_parameters: int | None,
) -> composition.RoundSum | None:
  """Returns the sum that a mechanism makes in a round; None if it is not known.

  Args:
    mechanism: Configuration of the mechanism; one that does not clip has no
      such sum.
    clients_per_round: Expected number of virtual clients in a round, positive.
    num_parameters: How many numbers an update has; None if it is not known.
  """
  if num_parameters is None or not mechanism.clips:
    return None
  noise_multiplier = mechanism.noise_multiplier_of_sum(clients_per_round)
  return composition.RoundSum(
    mechanism.clip_norm,
    noise_multiplier,
    num_parameters,
    mechanism.noise_multiplier_of_count(clients_per_round),
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
    mechanism: Name of one of `mechanisms.registry.AGGREGATORS`.
    participation: Who takes part, for a known number of users.
    rounds: Number of rounds, in [1, `checks.MAX_ROUNDS`].
    noise_multiplier: Standard deviation of the noise over the clip norm, 0 or
      in [1e-6, 1e6].
    delta: Delta of the guarantee.
    accountants: Names of the accountants.
    num_parameters: How many numbers an update has.
    workload: How the run makes its models.
    **options: Other fields of the mechanism; None is the default.

  Raises:
    errors.FieldError: As `Plan`, or if an option belongs to another mechanism.
  """
  config = aggregators.AGGREGATORS.create(
    mechanism, noise_multiplier=noise_multiplier, **options
  )
  if accountants is not None:
    accountants = participation.select_accountants(accountants)
  return Plan(
    config,
    participation,
    rounds,
    delta,
    accountants=accountants or (),
    num_parameters=num_parameters,
    workload=workload,
  )


def create_report(plan: Plan) -> report_lib.PrivacyReport:
  """Returns the whole account of a plan.

  Privacy:
    As `Plan`.

  Args:
    plan: The planned run.

  Returns:
    The report, which says that no trace was checked.

  Raises:
    errors.FieldError: If PLD is the only accountant and would take minutes.
    ValueError: As `report.create_report`.
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
  """Returns the epsilon of one user for a whole training.

  Command `account epsilon` and the ledger of a run compute the same, with two
  exceptions. `Banded` and `Blt` are made for the server's optimizer, and a run
  has momentum by default: give `workload=spec.workload`, or the cost is that of
  another matrix. With a `min_separation` below the rounds of a pass, a run also
  counts its passes, which may be fewer rounds of a user than the separation
  allows.

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
    participation: Who takes part in a round. You must draw the clients in this
      way.
    num_users: Size of the population.
    rounds: Rounds of the whole training.
    delta: Delta of the guarantee, in (0, 1) [num_users^-1.1].
    num_parameters: How many trained numbers the model has, for mechanisms of
      independent noise: epsilon then includes the cost of the noise's
      arithmetic.
    workload: See `build_aggregator`; give both the same one.

  Returns:
    The smallest epsilon of the valid accountants that take seconds at most.

  Raises:
    FieldError: If a value is out of its range, or the participation does not
      allow the mechanism's noise.

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
  checks.check_type("mechanism", mechanism, mechanism_lib.MechanismConfig)
  kind = participation_lib.Participation
  checks.check_type("participation", participation, kind)
  claim = participation.for_users(num_users)
  plan = Plan(
    mechanism,
    claim,
    rounds,
    default_delta(num_users) if delta is None else delta,
    num_parameters=num_parameters,
    workload=workload,
  )
  return create_report(plan).epsilon


def options_of_bands(
  participation: str,
  mechanism: str,
  given: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the option that says how far apart a user's rounds are.

  Some participations have such a field. By default it is the number of bands of
  the mechanism's matrix.

  Args:
    participation: Name of the participation.
    mechanism: Name of the mechanism.
    given: Options of both by name, None if not given.

  Returns:
    The value of the field by its name; empty if there is no such field, or if
    its default is right.

  Raises:
    errors.FieldError: If neither the field nor the number of bands was given.
  """
  claim = participations.PARTICIPATIONS[participation]
  noise = aggregators.AGGREGATORS[mechanism]
  name = claim.field_of_bands
  if name is None:
    return {}
  value = given.get(name)
  others = ""
  if noise.strategy_class is None:
    if value is None and not claim.is_for_bands:
      return {}
  elif not noise.strategy_class.is_banded:
    return {}  # The plan refuses other noise with this participation.
  elif noise.size_field is not None:
    others = f", or {noise.size_field} in its place"
    if value is None:
      value = given.get(noise.size_field)
  if value is None:
    raise errors.FieldError(
      name, f"be given with participation {participation}{others}", "nothing"
    )
  return {name: value}
