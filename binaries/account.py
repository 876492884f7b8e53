r"""Says what a run costs in privacy, before, without or after running it.

  python -m binaries.account epsilon --mechanism=tree --num_users=10000000 \
    --users_per_round=131072 --users_per_client=32 --rounds=800 \
    --noise_multiplier=16.64 --participation=min_separation --delta=1e-7
  python -m binaries.account epsilon --run_dir=runs/first
  python -m binaries.account calibrate --target_epsilon=2 \
    --solve_for=num_users ...
  python -m binaries.account optimize --target_epsilon=4 \
    --num_users=10000000 --users_per_round=20000 --rounds=2000 \
    --output_png=optimize.png
  python -m binaries.account extrapolate --run_dir=runs/first
  python -m binaries.account release --run_dir=runs/first
  python -m binaries.account budget FILE
  python -m binaries.account table

epsilon: the cost of a plan, or of a run from what it left in its directory,
finished or not. calibrate: the least noise, users or cohort for a target.
optimize: which mechanism, bands or buffers, participation and noise multiplier
leave the least noise in a model at a target, of all that a server can do who
draws users, or of --participation or --mechanism alone. extrapolate: the cost
of the same noise on the mean with more users. release: what each file of a run
reveals, which ones may be given away, and whether those are what the run left
and say what it cost. budget: which runs were charged to a
--privacy_budget, and what is left of it. table: the authors' published costs,
recomputed. One user is protected; beside that comes the reading in which a user
moves a sum by one clip norm only.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import fractions
import functools
import math
from typing import Any

from binaries import command_line
from binaries import config_flags
from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import budget
from tff_fedemb.planning import calibration
from tff_fedemb.planning import extrapolation
from tff_fedemb.planning import mechanism_choice
from tff_fedemb.planning import planning
from tff_fedemb.planning import published
from tff_fedemb.records import output_files
from tff_fedemb.records import release
from tff_fedemb.report import account as account_run
from tff_fedemb.report import account_output


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountConfig(config_lib.Config):
  """Rounds to account for, beside who takes part.

  Attributes:
    mechanism: Mechanism that makes the noise.
    num_parameters: Numbers of an update: epsilon then includes what the
      arithmetic of independent noise leaves [epsilon of exact noise].
    participation: Choice of the users of a round.
    rounds: Rounds.
    noise_multiplier: Standard deviation of the noise on the sum of updates /
      clip norm.
    delta: Delta of the guarantee [number of users ** -1.1].
    accountants: Accountants to use [all that the participation allows and that
      take seconds, as a run does; calibrate asks the tightest of them,
      extrapolate those of the published figures].
    run_dir: Directory of a run, finished or not, in place of a plan.
    target_epsilon: Epsilon to stay within (calibrate, optimize).
    solve_for: Quantity to minimise; users_per_round at the noise on the
      mean that the flags give (calibrate).
    extrapolated_num_users: Users to extrapolate to.
    cohort_factor: Users of a round and noise multiplier, extrapolated / given.
    explain: Whether to tell all that a figure rests on, in place of eight lines
      (epsilon, calibrate, extrapolate).
    workload: How models are made, for which correlated noise is made.
    output_json: File for all figures and the statement.
    output_png: File for a picture: the noise of every mechanism over epsilon
      (optimize).
  """

  mechanism: str | None = config_lib.field(
    None, choices=aggregators.AGGREGATORS
  )
  num_parameters: int | None = None
  participation: str | None = config_lib.field(
    None, choices=participations.PARTICIPATIONS
  )
  rounds: int | None = None
  noise_multiplier: float | None = None
  delta: float | None = config_lib.field(None, **checks.DELTA_RANGE)
  accountants: tuple[str, ...] | None = config_lib.field(
    None,
    choices=("rdp", "pld", "gaussian", "monte_carlo", "allocation"),
    flag="accountant",
  )
  run_dir: str | None = None
  target_epsilon: float | None = None
  solve_for: str = config_lib.field(
    "noise_multiplier", choices=calibration.SOLVE_FOR
  )
  extrapolated_num_users: int = config_lib.field(10_000_000, minimum=1)
  cohort_factor: float = config_lib.field(64.0, above=0)
  explain: bool = False
  workload: strategy_lib.Workload = config_lib.part(strategy_lib.Workload())
  output_json: str | None = None
  output_png: str | None = None


_NEEDED = (
  "mechanism",
  "participation",
  "num_users",
  "users_per_round",
  "rounds",
  "noise_multiplier",
)
_WORKLOAD = ("server_momentum", "noise_objective")
# Values for a file, and text for the terminal.
_Answer = tuple[dict[str, Any], str]


class _Account:
  """The flags, and what each command answers."""

  def __init__(self, parser: config_flags.Parser):
    self._parser = parser
    self._config = parser.add(AccountConfig)
    self._mechanism = parser.add_choice(
      "mechanism", aggregators.AGGREGATORS, skip=config_flags.PLANNED
    )
    self._participation = parser.add_choice(
      "participation", participations.PARTICIPATIONS
    )
    self._of_plan = {
      *(*_NEEDED, *_WORKLOAD, "delta", "accountant"),
      *(*self._participation.values(), *self._mechanism.values()),
    }

  def execute(self) -> None:
    """Computes, prints and writes what the command is for."""
    commands: dict[str, Callable[..., _Answer]] = {
      "epsilon": self._epsilon,
      "calibrate": self._calibrate,
      "optimize": self._optimize,
      "extrapolate": self._extrapolate,
      "release": self._release,
      "budget": self._budget,
      "table": self._table,
    }
    command, *files = self._parser.parse(tuple(commands), takes_arguments=True)
    if len(files) != (command == "budget"):
      raise errors.FieldError(
        "arguments",
        "be a command and flags (--name=value); with budget, its file as well",
        repr(" ".join([command, *files])),
      )
    config = self._config.create()
    output_files.check({"output_json": config.output_json}, overwrite=True)
    values, text = commands[command](config, *files)
    output_files.write_json(config.output_json, values)
    print(text)

  def _check(
    self, where: str, known: Iterable[str], needed: Iterable[str] = ()
  ) -> None:
    """Refuses flags that are of no use here, and the lack of others."""
    for name in sorted(self._parser.given().keys() - {*known, "output_json"}):
      raise errors.FieldError(
        f"--{name}",
        f"not be given {where}, which has no use for it",
        repr(self._parser.value(name)),
      )
    for name in needed:
      if self._parser.value(name) is None:
        raise errors.FieldError(f"--{name}", f"be given {where}", "nothing")

  def _create_plan(
    self, config: AccountConfig, of_bands: dict[str, Any], **others: Any
  ) -> planning.Plan:
    """Creates the plan that the flags describe.

    Args:
      config: The flags.
      of_bands: As `_of_bands` returns them.
      **others: Further fields of the participation.

    Returns:
      The plan; its account is that of a run with these settings.
    """
    participation = participations.create_participation(
      checks.check_given("participation", config.participation),
      **self._parser.given(self._participation) | others | of_bands,
    )
    return planning.create_plan(
      checks.check_given("mechanism", config.mechanism),
      participation,
      checks.check_given("rounds", config.rounds),
      checks.check_given("noise_multiplier", config.noise_multiplier),
      config.delta or planning.default_delta(participation.num_slots),
      accountants=config.accountants,
      num_parameters=config.num_parameters,
      workload=config.workload,
      **self._parser.given(self._mechanism),
    )

  def _of_bands(self, config: AccountConfig) -> dict[str, Any]:
    """Fields of the participation that follow from the bands of a matrix."""
    return planning.options_of_bands(
      checks.check_given("participation", config.participation),
      checks.check_given("mechanism", config.mechanism),
      self._parser.given(),
    )

  def _notes(
    self, config: AccountConfig, participation: participation_lib.Participation
  ) -> tuple[str, ...]:
    """Says what the flags left open, and how it was decided."""
    if config.delta is not None:
      return ()
    delta = planning.default_delta(participation.num_slots)
    return (f"delta {delta:g} is num_users ** -1.1 to one digit",)

  def _notes_on(
    self, config: AccountConfig, plan: planning.Plan
  ) -> tuple[str, ...]:
    """The same of a plan, and what its noise is made for."""
    notes = self._notes(config, plan.participation)
    is_of_sums = plan.workload == strategy_lib.PREFIX_SUMS
    if not is_of_sums or not plan.mechanism.follows_workload:
      return notes
    objective = strategy_lib.OF_PREFIX_SUMS
    momentum = server_optimizers.SgdMomentum().momentum
    made_for = (
      f"made for prefix sums: --noise_objective={objective} of run_federated;"
      f" for its default, give --server_momentum={momentum:g} here"
    )
    return made_for, *notes

  def _epsilon(self, config: AccountConfig) -> _Answer:
    """Tells the cost of a run or of a plan."""
    if config.run_dir is not None:
      self._check("with --run_dir", {"run_dir", "accountant", "explain"})
      run = account_run.recompute(config.run_dir, config.accountants)
      return account_output.tell_epsilon(
        run.report,
        run.mechanism,
        run.ledger,
        run.notes,
        planned=run.chain.planned.rounds,
        explain=config.explain,
      )
    self._check(
      "with epsilon, or --run_dir in its place",
      {*self._of_plan, "num_parameters", "explain"},
      _NEEDED,
    )
    plan = self._create_plan(config, self._of_bands(config))
    return account_output.tell_epsilon(
      planning.create_report(plan),
      plan.name,
      plan.account,
      self._notes_on(config, plan),
      explain=config.explain,
    )

  def _calibrate(self, config: AccountConfig) -> _Answer:
    """Finds the least noise, users or cohort for a target."""
    solve_for = config.solve_for
    # A cohort may be given where it is sought, too: the noise is that of it.
    found = {solve_for} - {"users_per_round"}
    if solve_for != "noise_multiplier":
      found.add("min_separation")  # It changes with the rounds of a pass.
    # The default of delta is that of the number of users.
    needed = {"delta"} if solve_for == "num_users" else set()
    self._check(
      f"with --solve_for={solve_for}",
      (self._of_plan - found)
      | {"target_epsilon", "solve_for", "num_parameters", "explain"},
      [n for n in ("target_epsilon", *_NEEDED, *needed) if n not in found],
    )
    of_bands, others = self._of_bands(config), {}
    if solve_for == "num_users":
      users = self._parser.value("users_per_round")
      # The first guess has enough users for all blocks to be drawn from, in
      # passes of rounds that have as many users as they are asked to have.
      blocks = max([1, *of_bands.values()])
      others["num_users"] = 1
      if 0 < users < math.inf:
        cohort = fractions.Fraction(users).limit_denominator(10_000)
        others["num_users"] = 10 * blocks * cohort.numerator
    if solve_for == "noise_multiplier":
      config = dataclasses.replace(config, noise_multiplier=1.0)
    plan = self._create_plan(config, of_bands, **others)
    target = checks.check_given("target_epsilon", config.target_epsilon)
    if config.accountants is None:
      plan = calibration.by_tightest(plan, target)
    value = calibration.calibrate(plan, solve_for, target)
    # The result itself says what a search for users or a cohort has changed.
    is_noise = solve_for == "noise_multiplier"
    notes = self._notes_on(config, plan) if is_noise else ()
    return account_output.tell_calibration(
      plan,
      solve_for,
      target,
      value,
      notes,
      explain=config.explain,
    )

  def _optimize(self, config: AccountConfig) -> _Answer:
    """Ranks mechanisms and participations by their noise at a target."""
    needed = ("target_epsilon", "num_users", "users_per_round", "rounds")
    where, of_claim = "with optimize without --participation", set()
    known = participations.PARTICIPATIONS.items()
    names = [name for name, each in known if each.is_servers_choice]
    if config.participation is not None:
      where, names = "with optimize", [config.participation]
      # It finds the bands, for users who are drawn in secret.
      found = participations.PARTICIPATIONS[names[0]].field_of_bands
      of_claim = {*self._participation.values()} - {found, "known_schedule"}
    self._check(
      where,
      {*needed, *("mechanism", "participation", "users_per_client", "delta")}
      | {"output_png", *of_claim, *_WORKLOAD},
      needed,
    )
    output_files.check({"output_png": config.output_png}, overwrite=True)
    given = self._parser.given(self._participation)
    of_client = given.get("users_per_client") or 1
    if given["users_per_round"] % of_client:
      raise errors.FieldError(
        "--users_per_round",
        f"be a multiple of users_per_client, {of_client}: a run draws whole"
        " virtual clients",
        given["users_per_round"],
      )
    claims = []
    for name in names:
      claims.append(participations.create_participation(name, **given))
    plans = mechanism_choice.list_plans(
      claims,
      rounds=checks.check_given("rounds", config.rounds),
      delta=config.delta or planning.default_delta(claims[-1].num_slots),
      mechanisms=config.mechanism and (config.mechanism,),
      workload=config.workload,
    )
    target = checks.check_given("target_epsilon", config.target_epsilon)
    ranked = mechanism_choice.rank(plans, target)
    if config.output_png is not None:
      draw = functools.partial(
        account_output.draw_choices, plans, ranked, target
      )
      output_files.write({"output_png": (config.output_png, draw)})
    notes = self._notes(config, claims[-1])
    return account_output.tell_choices(ranked, target, notes)

  def _extrapolate(self, config: AccountConfig) -> _Answer:
    """Tells the cost of the same noise on the mean with more users."""
    known = {"extrapolated_num_users", "cohort_factor", "delta", "explain"}
    if config.run_dir is not None:
      self._check("with --run_dir", {"run_dir", "accountant", *known})
      _, simulated = account_run.read_ledger(config.run_dir)
    else:
      # Users are drawn in secret there, whatever is known of the simulation's.
      self._check(
        "with extrapolate, or --run_dir in its place",
        (self._of_plan | known) - {"known_schedule"},
        _NEEDED,
      )
      plan = self._create_plan(config, self._of_bands(config))
      simulated = plan.account
    num_users = config.extrapolated_num_users
    found = extrapolation.extrapolate_ledger(
      simulated,
      num_users=num_users,
      cohort_factor=config.cohort_factor,
      delta=config.delta or planning.default_delta(num_users),
      accountants=config.accountants,
    )
    return account_output.tell_extrapolation(found, explain=config.explain)

  def _release(self, config: AccountConfig) -> _Answer:
    """Tells what each file of a run reveals, once the released are checked."""
    self._check("with release", ("run_dir",), ("run_dir",))
    run_dir = checks.check_given("run_dir", config.run_dir)
    return release.tell(run_dir, account_run.check_release(run_dir))

  def _budget(self, unused_config: AccountConfig, path: str) -> _Answer:
    """Tells which runs were charged to a budget."""
    self._check("with budget", ())
    found = budget.read(path)
    return found.to_json(), found.to_text()

  def _table(self, unused_config: AccountConfig) -> _Answer:
    """Recomputes the published costs."""
    self._check("with table", ())
    return account_output.tell_table(published.compute_table())


def main(argv: Sequence[str]) -> None:
  """Answers what the command asks."""
  with config_flags.Parser(argv, __doc__) as parser:
    _Account(parser).execute()


if __name__ == "__main__":
  command_line.run(main)
