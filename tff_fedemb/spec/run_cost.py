"""A spec settled for a number of users: who takes part, and what it costs.

`resolve_cost` needs no data: it settles the participation, the mechanism and
delta of a `RunSpec`. `experiment.Experiment` adds the data of a task.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
from typing import Any

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.algorithms import centralized
from tff_fedemb.deployment import deployment
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import none
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import budget
from tff_fedemb.planning import planning
from tff_fedemb.spec import spec as spec_lib

# By default, a user may take part again after a quarter of a pass. (A pass is
# the number of rounds in which the report goal uses up all users.) A whole pass
# would need more users than are available by day.
_PARTS_OF_PASS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCost:
  """Who takes part in a run, how noise is added, and what that costs.

  Attributes:
    spec: Spec of the run.
    participation: Draws the virtual clients of a round.
    mechanism: Aggregator and what it costs.
    delta: Delta of the guarantee.
  """

  spec: spec_lib.RunSpec
  participation: participation_lib.Participation
  mechanism: mechanism_lib.Mechanism
  delta: float

  @property
  def num_parameters(self) -> int | None:
    """Number of parameters of an update; None if unknown, or without noise.

    Without a task nobody knows the size of the model, and noise is taken for
    a true Gaussian.
    """
    return None

  @property
  def users_digest(self) -> str | None:
    """Digest of who the users are; None if only their number is known."""
    return None

  def plan_ledger(self, num_parameters: int | None = None) -> ledger_lib.Ledger:
    """Creates the ledger of all rounds to come.

    The size of an update matters for the bound on the rounding of the noise.

    Args:
      num_parameters: Number of parameters of an update [num_parameters].

    Returns:
      The ledger, for the delta of the run.

    Raises:
      errors.FieldError: If the mechanism cannot be accounted for.
    """
    if num_parameters is None:
      num_parameters = self.num_parameters
    round_sum = planning.create_round_sum(
      self.mechanism.config, self.mechanism.clients_per_round, num_parameters
    )
    return ledger_lib.create_ledger(
      self.participation,
      composition.noise_of(self.mechanism),
      self.spec.rounds,
      delta=self.delta,
      round_sum=round_sum,
    )

  def predict_ledger(self) -> ledger_lib.Ledger:
    """Returns the ledger of all rounds to come, as the trace will confirm it.

    Under a `sampling_seed` anyone can draw all rounds, and so count those that
    a user is in.

    Returns:
      The ledger. Under a `sampling_seed` sampling amplifies nothing, and the
      participations of the drawn rounds count.

    Raises:
      errors.FieldError: As `plan_ledger`.
    """
    ledger, users = self.plan_ledger(), self.participation.num_slots
    if self.spec.sampling_seed is None:
      return ledger
    rounds = self._draw_rounds(self.spec.sampling_seed)
    observed = participation_check.observe(users, rounds)
    return ledger.as_seen(observed.max_participations)

  def _draw_rounds(
    self, key: int
  ) -> Iterator[participation_trace.RecordedRound]:
    """Draws all rounds, one after the other, as a trace has them.

    Args:
      key: Key of the participation's draws: the run's `sampling_seed`.

    Yields:
      The rounds from number 0 on.
    """
    for number in range(self.spec.rounds):
      clients = self.participation.sample(number, key=key)
      yield participation_trace.RecordedRound.of(number, clients)

  def check_budget(self) -> None:
    """Refuses a new run for which its budget has too little left.

    Does nothing without a `privacy_budget`. It charges nothing either.

    Raises:
      errors.FieldError: As `budget.check`.
    """
    if self.spec.privacy_budget is not None:
      budget.check(
        self.spec.privacy_budget, self.plan_ledger(), users=self.users_digest
      )


def resolve_cost(spec: spec_lib.RunSpec, num_users: int) -> RunCost:
  """Settles what a spec leaves to the number of users, without their data.

  Use it to plan: it neither reads data nor builds a model.

  Args:
    spec: Spec of the run.
    num_users: Number of users who train.

  Returns:
    Who takes part, and the cost. The size of the model is not known.

  Raises:
    errors.FieldError: If the spec does not fit so many users.
  """
  delta = spec.delta
  if delta is None:
    delta = planning.default_delta(num_users)
  algorithm = spec.algorithm
  if not isinstance(algorithm, centralized.Centralized):
    private = spec.check_private()
    if private.mechanism.noise_multiplier:
      checks.check_not_alone("users", num_users)
    participation = _create_participation(spec, private, num_users)
    mechanism = private.mechanism.create(
      participation.clients_per_round,
      composition.schedule_of(participation, spec.rounds),
      spec.workload,
    )
  else:
    users = algorithm.count_users(num_users)
    participation = fixed_size.FixedSize(
      num_users, users, users_per_client=users
    )
    mechanism = none.NoneConfig().create(clients_per_round=1)
  if spec.sampling_seed is not None:
    participation = participation.with_known_schedule()
  return RunCost(
    spec=spec,
    participation=participation,
    mechanism=mechanism,
    delta=delta,
  )


def _create_participation(
  spec: spec_lib.RunSpec, private: spec_lib.PrivateParts, num_users: int
) -> participation_lib.Participation:
  """The participation that is asked for, settled for so many users.

  Args:
    spec: Spec of the run.
    private: Its parts, as `spec.check_private` returns them.
    num_users: Number of users who train.

  Returns:
    Check-ins of devices if there is a deployment. Else the participation that
    was asked for, with its number of users and rounds, and a period that suits
    the bands of the noise.

  Raises:
    errors.FieldError: If a round needs more users than there are, or limits are
      given that only a deployment enforces.
  """
  asked, goal = private.participation, private.participation.clients_per_round
  if asked.users_are != "expected":
    checks.check_integer("users_per_round", asked.users_per_round, minimum=1)
  if spec.deployment.deployment is not None:
    deployed = deployment.load(spec.deployment.deployment)
    server = deployed.server
    min_separation = asked.min_separation or server.min_separation
    part_of_pass = max(num_users // (_PARTS_OF_PASS * goal), 1)
    enforced: dict[str, Any] = {
      "min_separation": min_separation or part_of_pass,
      "max_participations": min(
        filter(None, [asked.max_participations, server.max_participations]),
        default=None,
      ),
      "equal_work": deployed.compute.equal_work,
    }
    # A class of one's own, derived from check-ins, keeps its claims.
    return dataclasses.replace(
      asked, num_users=num_users, users_per_round=goal, **enforced
    )
  if asked.max_participations is not None:
    raise errors.FieldError(
      "max_participations",
      "not be given without a deployment, whose server enforces it",
      asked.max_participations,
    )
  users = goal * asked.users_per_client
  if users > num_users:
    raise errors.FieldError(
      "users_per_round (clients_per_round x users_per_client)",
      f"be at most the number of users, {num_users:,}",
      f"{goal} x {asked.users_per_client} = {users}",
    )
  fields = {**vars(private.mechanism), **vars(asked)}
  bands = planning.options_of_bands(
    participations.PARTICIPATIONS.name_of(asked),
    aggregators.AGGREGATORS.name_of(private.mechanism),
    fields,
  )
  asked = dataclasses.replace(asked, **bands)
  return asked.for_users(num_users).for_rounds(spec.rounds)
