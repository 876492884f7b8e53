"""What a run would cost, before there is one.

A plan names the mechanism, who takes part and how much noise there is. Its
cost is computed by what accounts for the run itself, so the two cannot differ.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import arithmetic
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import registry as strategies
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree


def default_delta(num_users: int) -> float:
  """N^-1.1 rounded to one digit, and always below 1 / N."""
  rounded = float(f"{num_users**-1.1:.0e}")
  return rounded if rounded < 1.0 / num_users else 0.5 / num_users


@dataclasses.dataclass(frozen=True)
class Plan:
  """A run that might be made.

  Privacy:
    Unit, neighbouring relation, sensitivity: those of `participation`.
    DpEvent: `composition.composed_events` of `rounds` times `event`.

  Attributes:
    mechanism: Key of `MECHANISMS`.
    participation: Who takes part.
    rounds: Number of rounds, in [1, `checks.MAX_ROUNDS`].
    noise_multiplier: Standard deviation of the noise on a round's sum over the
      clip norm, 0 or in [1e-6, 1e6]; of correlated noise, of a row of Z (see
      `strategies.strategy`).
    delta: In (0, 1).
    accountants: Names of those to ask; all that the participation supports if
      None.
    restart_every: Rounds of a tree; None for one tree.
    num_buffers: Buffers of BLT; None for 2.
    num_bands: Bands of banded Toeplitz; None for as many as can be.
    num_parameters: Numbers of an update, for what the arithmetic of independent
      noise leaves (`arithmetic`); None leaves that out.

  Raises:
    errors.FieldError: If a value is out of its range, or is an option of
      another mechanism.
  """

  mechanism: str
  participation: participation_lib.Participation
  rounds: int
  noise_multiplier: float
  delta: float
  accountants: tuple[str, ...] | None = None
  restart_every: int | None = None
  num_buffers: int | None = None
  num_bands: int | None = None
  num_parameters: int | None = None

  def __post_init__(self):
    checks.check_choice("mechanism", self.mechanism, MECHANISMS)
    own, _ = MECHANISMS[self.mechanism]
    for name in ("restart_every", "num_buffers", "num_bands"):
      value = getattr(self, name)
      if value is not None and name != own:
        raise errors.FieldError(
          name,
          f"not be given with mechanism {self.mechanism}, which has no use for"
          " it",
          repr(value),
        )
    if own is not None:
      composition.check_correlated(
        strategies.STRATEGIES[self.mechanism], self.participation
      )
    if self.num_parameters is not None:
      checks.check_integer("num_parameters", self.num_parameters, minimum=1)
      if own is not None:
        raise errors.FieldError(
          "num_parameters",
          f"not be given with mechanism {self.mechanism}: what its arithmetic"
          " leaves is not bounded",
          self.num_parameters,
        )
    checks.check_rounds(self.rounds, minimum=1)
    checks.check_noise_multiplier(self.noise_multiplier)
    checks.check_delta(self.delta)
    accountants = self.participation.select_accountants(self.accountants)
    object.__setattr__(self, "accountants", accountants)

  @functools.cached_property
  def strategy(self) -> strategy_lib.Strategy | None:
    """How noise is correlated over the rounds; None if it is not."""
    return create_strategy(
      self.mechanism, self.participation, self.rounds, vars(self)
    )

  @property
  def event(self) -> dp_accounting.DpEvent:
    """What one round releases, at a sensitivity of one clip norm."""
    return strategy_lib.round_event(self.noise_multiplier, self.strategy)

  @property
  def round_sum(self) -> arithmetic.RoundSum | None:
    """What has noise in every round; None without a number of parameters."""
    if self.num_parameters is None:
      return None
    # The bound is the same for every clip norm.
    return arithmetic.RoundSum(1.0, self.noise_multiplier, self.num_parameters)

  def composed_events(
    self, sensitivity_in_clip_norms: float | None = None
  ) -> list[tuple[dp_accounting.DpEvent, int]]:
    """As `composition.composed_events` of all rounds."""
    return composition.composed_events(
      [(self.event, self.rounds)],
      self.participation,
      sensitivity_in_clip_norms=sensitivity_in_clip_norms,
    )

  def epsilons(
    self, sensitivity_in_clip_norms: float | None = None
  ) -> dict[str, float]:
    """As `epsilon.epsilon_by_accountant` of all rounds."""
    return epsilon_lib.epsilon_by_accountant(
      [(self.event, self.rounds)],
      self.participation,
      self.delta,
      accountants=self.accountants,
      sensitivity_in_clip_norms=sensitivity_in_clip_norms,
    )

  def with_value(self, name: str, value: float) -> "Plan":
    """Returns a plan with another number of users, cohort or noise.

    Args:
      name: 'noise_multiplier', 'num_users' or 'users_per_round'.
      value: Of that; the noise goes with the cohort, the separation with the
        number of users and the cohort.
    """
    if name == "noise_multiplier":
      return dataclasses.replace(self, noise_multiplier=float(value))
    claim = self.participation
    sizes: dict[str, Any] = {
      "num_users": claim.num_users,
      "users_per_round": claim.users_per_round,
      name: value,
    }
    growth = sizes["users_per_round"] / claim.users_per_round
    return dataclasses.replace(
      self,
      noise_multiplier=self.noise_multiplier * growth,
      participation=claim.resized(**sizes),
    )

  def to_json(self) -> dict[str, Any]:
    """Returns what is planned as a dictionary that JSON can hold."""
    return {
      "mechanism": self.mechanism,
      "participation": participations.to_json(self.participation),
      "rounds": self.rounds,
      "noise_multiplier": self.noise_multiplier,
      "delta": self.delta,
      "strategy": (
        None if self.strategy is None else strategies.to_json(self.strategy)
      ),
    }


def create_report(plan: Plan) -> report_lib.PrivacyReport:
  """Returns the whole account of a plan.

  Privacy:
    As `Plan`.

  Args:
    plan: The run.

  Raises:
    ValueError: If PLD alone is asked for where it would take minutes.
  """
  counts = [(plan.event, plan.rounds)]
  epsilon_lib.check_pld(
    counts, plan.participation, plan.delta, accountants=plan.accountants
  )
  return report_lib.create_report(
    counts,
    plan.participation,
    plan.delta,
    accountants=plan.accountants,
    round_sum=plan.round_sum,
  )


def options_of_bands(
  participation: str,
  given: Mapping[str, Any],
  *,
  mechanism: str,
  num_bands: int | None = None,
) -> dict[str, Any]:
  """Returns how far apart a participation has users: as a matrix has bands.

  Args:
    participation: Its name.
    given: Options of the participation by name, None if not given.
    mechanism: Its name.
    num_bands: Of a banded matrix; None if it was not given.

  Returns:
    The option that says it; none where that follows from the rest.

  Raises:
    errors.FieldError: If neither it nor the bands were given.
  """
  name = participations.PARTICIPATIONS[participation].field_of_bands
  own, _ = MECHANISMS.get(mechanism, (None, None))
  if name is None or own not in (None, "num_bands"):
    return {}  # Other noise is refused where it meets the participation.
  value = num_bands if given.get(name) is None else given[name]
  if value is None:
    raise errors.FieldError(
      name,
      f"be given with participation {participation}, or num_bands in its place",
      "nothing",
    )
  return {name: value}


def create_strategy(
  mechanism: str,
  participation: participation_lib.Participation,
  rounds: int,
  options: Mapping[str, Any],
) -> strategy_lib.Strategy | None:
  """Creates a mechanism's strategy; None if its noise is independent.

  Args:
    mechanism: Key of `MECHANISMS`.
    participation: Who takes part.
    rounds: Number of rounds.
    options: Has what the mechanism needs, if it is to be no default, by name.
  """
  option, create = MECHANISMS[mechanism]
  value = option and options.get(option)
  return create(
    composition.schedule_of(participation, rounds),
    **({} if value is None else {option: value}),
  )


# By mechanism, the attribute of a plan that is for it alone, and what makes its
# strategy. A new mechanism is one more entry here.
MECHANISMS: dict[
  str, tuple[str | None, Callable[..., strategy_lib.Strategy | None]]
] = {
  "gaussian": (None, lambda schedule: None),
  "tree": (
    "restart_every",
    lambda schedule, restart_every=None: tree.TreeStrategy(restart_every),
  ),
  "blt": ("num_buffers", blt.optimize_blt),
  "banded": ("num_bands", banded.optimize_banded),
}
