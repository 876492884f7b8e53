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
reveals, and which ones may be given away. budget: which runs were charged to a
--privacy_budget, and what is left of it. table: the authors' published costs,
recomputed. One user is protected; beside that comes the reading in which a user
moves a sum by one clip norm only.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import math
from typing import Any

from binaries import command_line
from binaries import config_flags
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb.aggregators import registry as aggregators
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import budget
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import extrapolation
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import mechanism_choice
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import published
from tff_fedemb.program import release
from tff_fedemb.report import account_output
from tff_fedemb.report import mechanism_choices
from tff_fedemb.run import account as account_run


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
    accountants: Accountants to use; pld is tighter, but not for fixed_size;
      gaussian is exact, for min_separation; random_allocation, balls_in_bins
      and b_min_sep have one of their own [rdp, or their own; with --run_dir the
      run's own].
    run_dir: Directory of a run, finished or not, in place of a plan.
    target_epsilon: Epsilon to stay within (calibrate, optimize).
    solve_for: Quantity to minimise; users_per_round at the noise on the
      mean that the flags give (calibrate).
    extrapolated_num_users: Users to extrapolate to.
    cohort_factor: Users of a round and noise multiplier, extrapolated / given.
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
  delta: float | None = None
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
# Each search refuses some flags, with a reason, and needs others.
_FINDS = "which finds it"
_CHANGES = "which changes the rounds of a pass"
_CHANGES_NOTHING = "with which the number of users changes nothing"
_SEARCHES: dict[str, tuple[dict[str, str], set[str]]] = {
  "noise_multiplier": ({"noise_multiplier": _FINDS}, set()),
  # The default of delta is that of the number of users.
  "num_users": (
    {
      "num_users": _FINDS,
      "min_separation": _CHANGES,
      "known_schedule": _CHANGES_NOTHING,
    },
    {"delta"},
  ),
  # The cohort is one thing to know where it is sought, too: the noise is its.
  "users_per_round": ({"min_separation": _CHANGES}, set()),
}

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
    of_parts = {*self._participation.values(), *self._mechanism.values()}
    plan = {*_NEEDED, *of_parts}
    account = {*plan, "delta", "accountant"}
    self._of_plan = plan
    # Each command has a function that answers it, and its flags.
    self._commands: dict[
      str, tuple[Callable[[AccountConfig], _Answer], set[str]]
    ] = {
      "epsilon": (self._epsilon, {*account, "num_parameters", "run_dir"}),
      "calibrate": (self._calibrate, {*account, "target_epsilon", "solve_for"}),
      # It finds all else, for users who are drawn in secret.
      "optimize": (
        self._optimize,
        {
          *("mechanism", "participation", "rounds", "delta", "target_epsilon"),
          *(*self._participation.values(), "output_png"),
        }
        - {"known_schedule"},
      ),
      # Users are drawn in secret there, whatever was known of the simulation's.
      "extrapolate": (
        self._extrapolate,
        {*account, "run_dir", "extrapolated_num_users", "cohort_factor"}
        - {"known_schedule"},
      ),
      "release": (self._release, {"run_dir"}),
      "budget": (self._budget, set()),
      "table": (self._table, set()),
    }

  def execute(self) -> None:
    """Computes, prints and writes what the command is for."""
    command, *self._files = self._parser.parse(
      tuple(self._commands), takes_arguments=True
    )
    if len(self._files) != (command == "budget"):
      raise errors.FieldError(
        "arguments",
        "be a command and flags (--name=value); with budget, its file as well",
        repr(" ".join([command, *self._files])),
      )
    config = self._config.create()
    answer, flags = self._commands[command]
    every = set().union(*(known for _, known in self._commands.values()))
    self._refuse(every - flags, f"with {command}", "which has no use for it")
    if config.run_dir is not None:
      of_run = self._of_plan | {"num_parameters", "delta"}
      if command == "extrapolate":
        of_run.remove("delta")
      self._refuse(of_run, "with --run_dir", "whose ledger says it")
    account_output.check_output(config.output_json)
    values, text = answer(config)
    account_output.write(config.output_json, values)
    print(text)

  def _refuse(self, unwanted: Iterable[str], where: str, why: str) -> None:
    for name in sorted(unwanted):
      value = self._parser.value(name)
      if value is not None:
        raise errors.FieldError(
          f"--{name}", f"not be given {where}, {why}", repr(value)
        )

  def _require(self, needed: Iterable[str], where: str) -> None:
    for name in needed:
      if self._parser.value(name) is None:
        raise errors.FieldError(f"--{name}", f"be given {where}", "nothing")

  def _create_plan(self, config: AccountConfig, **others: Any) -> planning.Plan:
    """The plan that the flags describe; others are fields to be set."""
    participation = participations.create_participation(
      config.participation,
      **self._parser.given(self._participation)
      | others
      | self._of_bands(config),
    )
    return planning.create_plan(
      config.mechanism,
      participation,
      config.rounds,
      config.noise_multiplier,
      self._delta(config, participation.num_users),
      accountants=config.accountants or participation.accountants[:1],
      num_parameters=config.num_parameters,
      **self._parser.given(self._mechanism),
    )

  def _of_bands(self, config: AccountConfig) -> dict[str, Any]:
    return planning.options_of_bands(
      config.participation, config.mechanism, self._parser.given()
    )

  def _delta(self, config: AccountConfig, num_users: int) -> float:
    if config.delta is None:
      return planning.default_delta(num_users)
    return config.delta

  def _notes(
    self, config: AccountConfig, participation: participation_lib.Participation
  ) -> tuple[str, ...]:
    """Says what the flags left open, and how it was decided."""
    if config.delta is not None:
      return ()
    delta = self._delta(config, participation.num_users)
    return (f"delta {delta:g} is num_users ** -1.1 to one digit",)

  def _epsilon(self, config: AccountConfig) -> _Answer:
    if config.run_dir is not None:
      run = account_run.recompute(config.run_dir, config.accountants)
      return account_output.tell_epsilon(
        run.report, run.mechanism, run.ledger, run.notes
      )
    self._require(_NEEDED, "with epsilon, or --run_dir in its place")
    plan = self._create_plan(config)
    return account_output.tell_epsilon(
      planning.create_report(plan),
      plan.name,
      plan.account,
      self._notes(config, plan.participation),
    )

  def _calibrate(self, config: AccountConfig) -> _Answer:
    self._require(("target_epsilon",), "with calibrate")
    solve_for = config.solve_for
    where = f"with --solve_for={solve_for}"
    unwanted, needed = _SEARCHES[solve_for]
    for name, why in unwanted.items():
      self._refuse([name], where, why)
    known = [name for name in _NEEDED if unwanted.get(name) != _FINDS]
    self._require([*known, *needed], where)
    others = {}
    if solve_for == "num_users":
      users = self._parser.value("users_per_round")
      # The first guess has enough users for all blocks to be drawn from.
      blocks = max([1, *self._of_bands(config).values()])
      others["num_users"] = (
        10 * blocks * math.ceil(users) if 0 < users < math.inf else 1
      )
    if solve_for == "noise_multiplier":
      config = dataclasses.replace(config, noise_multiplier=1.0)
    plan = self._create_plan(config, **others)
    found = calibration.calibrate(
      plan, target_epsilon=config.target_epsilon, solve_for=solve_for
    )
    # The result tells what the search has changed.
    notes = (
      self._notes(config, plan.participation)
      if solve_for == "noise_multiplier"
      else ()
    )
    return account_output.tell_calibration(found, plan, notes)

  def _extrapolate(self, config: AccountConfig) -> _Answer:
    num_users = config.extrapolated_num_users
    delta = self._delta(config, num_users)
    simulated: planning.Plan | ledger_lib.Ledger
    if config.run_dir is None:
      self._require(_NEEDED, "with extrapolate, or --run_dir in its place")
      simulated = self._create_plan(dataclasses.replace(config, delta=delta))
      noise = composition.noise_of(simulated.event)
    else:
      _, simulated = account_run.read_ledger(config.run_dir, config.accountants)
      noise = simulated.noise
    found = extrapolation.extrapolate(
      rounds=simulated.rounds,
      noise_multiplier=noise.multiplier,
      participation=simulated.participation,
      strategy=noise.strategy,
      num_users=num_users,
      cohort_factor=config.cohort_factor,
      delta=delta,
      accountants=(
        # Those of a known schedule are not those of a secret one.
        simulated.accountants
        if simulated.participation.with_secret_schedule()
        == simulated.participation
        else None
      ),
    )
    return account_output.tell_extrapolation(found)

  def _optimize(self, config: AccountConfig) -> _Answer:
    self._require(
      ("target_epsilon", "num_users", "users_per_round", "rounds"),
      "with optimize",
    )
    if config.participation is None:
      self._refuse(
        set(self._participation.values()) - {*_NEEDED, "users_per_client"},
        "with optimize unless --participation says for which one",
        "as they differ",
      )
      known = participations.PARTICIPATIONS.items()
      names = [name for name, each in known if each.is_servers_choice]
    else:
      names = [config.participation]
      of_bands = participations.PARTICIPATIONS[names[0]].field_of_bands
      self._refuse(filter(None, [of_bands]), "with optimize", _FINDS)
    output_files.check({"output_png": config.output_png}, overwrite=True)
    claims = [
      participations.create_participation(
        name, **self._parser.given(self._participation)
      )
      for name in names
    ]
    plans = mechanism_choice.list_plans(
      claims,
      rounds=config.rounds,
      delta=self._delta(config, claims[-1].num_users),
      mechanisms=config.mechanism and (config.mechanism,),
    )
    found = mechanism_choices.choose(
      plans,
      config.target_epsilon,
      with_picture=config.output_png is not None,
      notes=self._notes(config, claims[-1]),
    )
    if config.output_png is not None:
      output_files.write({"output_png": (config.output_png, found.draw)})
    return found.to_json(), found.to_text()

  def _release(self, config: AccountConfig) -> _Answer:
    self._require(("run_dir",), "with release")
    return release.tell(config.run_dir)

  def _budget(self, unused_config: AccountConfig) -> _Answer:
    found = budget.read(self._files[0])
    return found.to_json(), found.to_text()

  def _table(self, unused_config: AccountConfig) -> _Answer:
    return account_output.tell_table(published.compute_table())


def main(argv: Sequence[str]) -> None:
  """Answers what the command asks."""
  with config_flags.Parser(argv, __doc__) as parser:
    _Account(parser).execute()


if __name__ == "__main__":
  command_line.run(main)
