"""Plans for a deployment: which server, and how large a cohort, suits it best.

A plan is a report goal, an over-selection, a deadline of rounds and a minimum
separation. All plans have the same rounds and the same noise on the mean, so
that their models are assumed to be as good; they differ in what they cost
(epsilon) and in how long they take (simulated days).
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import itertools
import math
from typing import Any

from experiments import deployment_plans_output
from experiments import output_files
from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data.participation import check_ins
from tff_fedemb.deployment import deployment as deployment_lib
from tff_fedemb.deployment import orders
from tff_fedemb.deployment import simulation as simulation_lib
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning

# Bytes of a number of an update.
_BYTES = 4
_MAX_VALUES = 6
# Half a gigabyte of devices, at most.
_MAX_REMEMBERED = 20_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlansConfig(config_lib.Config):
  """What is to be planned, and which plans to try.

  Attributes:
    deployment: ideal, phones, harsh, or a YAML file.
    deployment_seed: Of the devices and of all that happens to them.
    num_users: Users, each with a device.
    rounds: Rounds that training takes.
    noise_on_mean: Noise multiplier / clients_per_round, the same for all plans:
      what the model has to bear.
    clients_per_round: Report goals to try.
    over_selections: Devices selected / report goal to try.
    deadlines_minutes: Deadlines of a round to try.
    separation_shares: Shares of the users who may have to wait for their next
      participation, to try: min_separation x clients_per_round / num_users.
    days: Most simulated days; the plan with the smallest epsilon is sought.
    target_epsilon: Largest epsilon; the plan with the fewest days is sought.
    mechanism: How noise is made.
    delta: Delta of the guarantee [num_users ** -1.1].
    simulated_days: Days after which a plan that is not done is extrapolated;
      what is recommended is simulated to its last round.
    num_parameters: Numbers of an update, of 4 bytes each.
    examples: Examples of a client's training: steps x batch_size.
    output_json: File for all plans.
    output_png: File for a picture of them.
    overwrite: Whether to replace files that exist.
  """

  deployment: str = "phones"
  deployment_seed: int = config_lib.field(0, minimum=0)
  num_users: int = config_lib.field(minimum=2)
  rounds: int = config_lib.field(minimum=1, maximum=100_000)
  noise_on_mean: float = config_lib.field(above=0)
  clients_per_round: tuple[str, ...]
  over_selections: tuple[str, ...] = ("1.1", "1.3", "1.5")
  deadlines_minutes: tuple[str, ...] = ("3", "10")
  separation_shares: tuple[str, ...] = ("0.25", "0.5")
  days: float | None = config_lib.field(None, above=0)
  target_epsilon: float | None = config_lib.field(None, above=0)
  mechanism: str = config_lib.field("gaussian", choices=planning.MECHANISMS)
  delta: float | None = config_lib.field(None, above=0, below=1)
  simulated_days: float = config_lib.field(2.0, above=0)
  num_parameters: int = config_lib.field(100_000, minimum=1)
  examples: int = config_lib.field(32, minimum=1)
  output_json: str | None = None
  output_png: str | None = None
  overwrite: bool = False

  def __post_init__(self):
    super().__post_init__()
    if (self.days is None) == (self.target_epsilon is None):
      raise errors.FieldError(
        "days",
        "be given, or --target_epsilon, and not both",
        f"{self.days} and {self.target_epsilon}",
      )
    for clients in self.numbers("clients_per_round"):
      if not clients.is_integer() or clients > self.num_users:
        raise errors.FieldError(
          "clients_per_round",
          f"be integers up to num_users, {self.num_users:,}",
          f"{clients:g}",
        )
    if max(self.numbers("separation_shares")) > 1:
      raise errors.FieldError(
        "separation_shares", "be at most 1", ",".join(self.separation_shares)
      )
    self.numbers("over_selections")
    self.numbers("deadlines_minutes")

  def numbers(self, name: str) -> tuple[float, ...]:
    """Returns the numbers in a field of several, ascending.

    Raises:
      errors.FieldError: If they are not a few positive numbers.
    """
    return checks.check_numbers(name, getattr(self, name), most=_MAX_VALUES)

  @functools.cached_property
  def delta_or_default(self) -> float:
    """Of the guarantee."""
    if self.delta is None:
      return planning.default_delta(self.num_users)
    return self.delta

  @property
  def goal(self) -> tuple[str, float, str]:
    """What is limited, at what, and what is then to be small."""
    if self.days is not None:
      return "days", self.days, "epsilon"
    return "epsilon", float(self.target_epsilon or 0), "days"


@dataclasses.dataclass(frozen=True)
class _Plan:
  """One way to run the rounds, and what it costs.

  Privacy:
    As `planning.Plan`, of participation check_ins: a user is in at most one of
    any `min_separation` rounds that are released, which the server enforces.
  """

  clients_per_round: int
  min_separation: int
  noise_multiplier: float
  participations: int
  epsilon: float
  deployment: deployment_lib.Deployment


@dataclasses.dataclass(frozen=True)
class _Simulated:
  """What a simulation shows of a plan."""

  days: float
  rounds_a_day: float
  abandoned: float
  reported: float
  is_complete: bool


def _list_plans(config: PlansConfig) -> Iterator[_Plan]:
  """All plans, those of one epsilon together."""
  base = deployment_lib.load(config.deployment)
  servers = [
    dataclasses.replace(
      base.server, over_selection=selection, deadline_minutes=deadline
    )
    for selection, deadline in itertools.product(
      config.numbers("over_selections"), config.numbers("deadlines_minutes")
    )
  ]
  for clients in map(int, config.numbers("clients_per_round")):
    separations = {
      min(max(int(share * config.num_users / clients), 1), config.rounds)
      for share in config.numbers("separation_shares")
    }
    for separation in sorted(separations):
      plan = planning.Plan(
        config.mechanism,
        check_ins.CheckIns(
          config.num_users,
          clients,
          min_separation=separation,
          equal_work=base.compute.equal_work,
        ),
        config.rounds,
        config.noise_on_mean * clients,
        config.delta_or_default,
      )
      # Without PLD, which takes seconds to say about the same.
      names = epsilon_lib.accountants_of_run(plan.participation, 0.0)
      plan = dataclasses.replace(plan, accountants=names)
      _, epsilon = epsilon_lib.leading(plan.epsilons())
      for server in servers:
        yield _Plan(
          clients,
          separation,
          plan.noise_multiplier,
          plan.participation.participations(config.rounds),
          epsilon,
          dataclasses.replace(base, server=server),
        )


def _simulate(
  config: PlansConfig,
  plan: _Plan,
  remembered: orders.Remembered | None,
  max_days: float,
  tell: Callable[[float], object],
) -> _Simulated:
  """Plays a plan to its last round, or for so many days.

  Args:
    config: What is planned.
    plan: What to play.
    remembered: Of all plans.
    max_days: So many.
    tell: Takes the share of it that is done.
  """
  size = _BYTES * config.num_parameters
  simulation = simulation_lib.Simulation(
    plan.deployment,
    config.num_users,
    config.deployment_seed,
    simulation_lib.WorkOfRound(
      bytes_down=size, bytes_up=size, examples=config.examples
    ),
    report_goal=plan.clients_per_round,
    min_separation=plan.min_separation,
    remembered=remembered,
  )
  released = attempts = selected = reported = 0
  days = 0.0
  while released < config.rounds and days < max_days:
    try:
      outcome = simulation.next_round()
    except errors.DataError:
      # There will be no more rounds: nobody is left who may take part.
      return _Simulated(math.inf, 0.0, 1.0, 0.0, True)
    attempts += 1
    released += not outcome.abandoned
    selected += outcome.selected
    reported += len(outcome.reported)
    days = outcome.end_hours / 24
    tell(max(released / config.rounds, days / max_days))
  is_complete = released == config.rounds
  rounds_a_day = released / days
  return _Simulated(
    days=days if is_complete else config.rounds / max(rounds_a_day, 1e-9),
    rounds_a_day=rounds_a_day,
    abandoned=1 - released / attempts,
    reported=reported / max(selected, 1),
    is_complete=is_complete,
  )


def _row(plan: _Plan, simulated: _Simulated) -> dict[str, Any]:
  server = plan.deployment.server
  return {
    "clients_per_round": plan.clients_per_round,
    "min_separation": plan.min_separation,
    "over_selection": server.over_selection,
    "deadline_minutes": server.deadline_minutes,
    "noise_multiplier": plan.noise_multiplier,
    "participations": plan.participations,
    "epsilon": plan.epsilon,
    **vars(simulated),
  }


def _recommend(
  rows: Sequence[dict[str, Any]], config: PlansConfig
) -> int | None:
  """Index of the best row, None if none is good enough."""
  limited, limit, sought = config.goal
  fitting = [i for i, row in enumerate(rows) if row[limited] <= limit]
  # Of the same, that which takes less of what is limited, and asks fewer.
  return min(
    fitting,
    key=lambda i: (
      rows[i][sought],
      rows[i][limited],
      rows[i]["over_selection"],
    ),
    default=None,
  )


def _sweep(
  config: PlansConfig, plans: Sequence[_Plan]
) -> tuple[list[dict[str, Any]], int | None]:
  """Rows of all plans, and which one is recommended."""
  remembered = None
  if config.num_users <= _MAX_REMEMBERED:
    remembered = orders.Remembered(
      plans[0].deployment, config.num_users, config.deployment_seed
    )
  with progress_lib.create_bar(
    "Simulating", unit="plans", total=len(plans) + 1
  ) as progress:

    def simulate(number: int, plan: _Plan, max_days: float) -> dict[str, Any]:
      def tell(share: float) -> None:
        progress.update(number + min(share, 1.0) - progress.n)

      return _row(plan, _simulate(config, plan, remembered, max_days, tell))

    rows = [
      simulate(number, plan, config.simulated_days)
      for number, plan in enumerate(plans)
    ]
    while True:
      best = _recommend(rows, config)
      if best is None or rows[best]["is_complete"]:
        return rows, best
      # Towards the end more users have to wait than in the first days.
      progress.update(len(plans) - progress.n)
      rows[best] = simulate(len(plans), plans[best], math.inf)


def execute(config: PlansConfig) -> None:
  """Tries all plans, prints and writes them, and recommends one.

  Raises:
    errors.FieldError: If a value is out of its range, or a file cannot be
      written.
    errors.DataError: If there is no such deployment.
  """
  outputs = {
    name: getattr(config, name) for name in ("output_json", "output_png")
  }
  output_files.check(outputs, overwrite=config.overwrite)
  rows, best = _sweep(config, list(_list_plans(config)))
  limited, limit, sought = config.goal
  found = deployment_plans_output.Plans(
    rows=rows,
    best=best,
    limited=limited,
    limit=limit,
    sought=sought,
    delta=config.delta_or_default,
    caption=_caption(config),
  )
  print(*found.to_lines(), sep="\n")
  values = {"config": dataclasses.asdict(config)} | found.to_json()
  writers = {
    "output_json": output_files.json_writer(values),
    "output_png": found.draw,
  }
  output_files.write(
    {name: (path, writers[name]) for name, path in outputs.items() if path}
  )


def _caption(config: PlansConfig) -> str:
  return (
    f"{config.num_users:,} users, deployment {config.deployment} (simulated),"
    f" {config.rounds:,} rounds, mechanism {config.mechanism}, noise multiplier"
    f" {config.noise_on_mean:g} times the report goal: the noise on the mean is"
    " the same, and the model is assumed to be as good. A user is in at most"
    " one of any min_separation rounds, which the server enforces; nothing is"
    " claimed for who happens to be there. One point for each over-selection,"
    " deadline and separation."
  )
