"""The flags of a `RunSpec`, and what programs that train do with it."""

from __future__ import annotations

import dataclasses

from etils import epy

from binaries import config_flags
from binaries import smoke
from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb import registry
from tff_fedemb.algorithms import registry as algorithms
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import fixed_size
from tff_fedemb.records import chain
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import suggestions
from tff_fedemb.spec import task as task_lib
from tff_fedemb.training import plan

with epy.lazy_imports():
  from tff_fedemb.training import train

# These have no flag: the task, the cohort and the run settle them.
_SETTLED: tuple[str, ...] = (
  *("participation__num_users", "participation__users_per_round"),
  *("max_participations", "known_schedule", "equal_work"),
  "noise_seed",
)
_PRIVATE_PARTS = (
  *("participation", "mechanism", "server_optimizer"),
  *("delta", "deployment", "extrapolation"),
)
# Parts of private training where the user chooses none.
_DEFAULTS = {
  "participation": fixed_size.FixedSize.name,
  "mechanism": aggregators.DEFAULT,
  "server_optimizer": server_optimizers.DEFAULT,
}
_PRIVATE_ALGORITHMS = registry.Registry(
  algorithms.ALGORITHMS.base,
  {name: x for name, x in algorithms.ALGORITHMS.items() if x.is_private},
  kind="algorithm",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(config_lib.Config):
  """Directory of a run, and outputs beside the model.

  Attributes:
    run_dir: Directory of the run: new, or of the run to go on with; not needed
      for a dry_run.
    dry_run: Whether to tell users, classes and images, what a round takes in
      time and memory, measured on images that are made up, and what the run
      would cost, without training or writing anything.
    smoke: Whether to run small: two minutes on synthetic data in the format of
      the real ones. Give it with a --flagfile of binaries/flagfiles; other
      flags behind that one override it.
    report: Whether to write report.html into run_dir at the end, also of a run
      that is complete. It shows no images that may be of users who train;
      binaries.report can.
    export: Whether to convert the model for phones at the end, also of a run
      that is complete, into tflite/ of run_dir.
    export_backbone: Path that the trained backbone is written to, beside the
      run's release/saved_model: for --pretrained_backbone of another run. It
      remembers its users.
  """

  run_dir: str | None = None
  dry_run: bool = False
  smoke: bool = False
  report: bool = False
  export: str | None = config_lib.field(None, choices=("tflite",))
  export_backbone: str | None = None

  def __post_init__(self):
    super().__post_init__()
    if not self.run_dir and not self.dry_run:
      raise errors.FieldError("run_dir", "be given", "nothing")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cohort(config_lib.Config):
  """Number of virtual clients of a round.

  Attributes:
    clients_per_round: (Expected) number of virtual clients in a round; under a
      deployment, the report goal.
  """

  clients_per_round: int = config_lib.field(8, minimum=1)


class SpecFlags:
  """The flags of a `RunSpec`, with private algorithms or on pooled data."""

  def __init__(
    self,
    parser: config_flags.Parser,
    objectives: registry.Registry | None = None,
  ):
    """Defines the flags.

    Args:
      parser: The program's.
      objectives: Algorithms of training on pooled data, by the names of flag
        objective, the default first; `None` for private training.
    """
    task_lib.load_tasks()
    self.parser = parser
    self._is_private = objectives is None
    if objectives is None:
      skip, choices, defaults = _SETTLED, _PRIVATE_ALGORITHMS, _DEFAULTS
    else:
      skip, choices = (*_SETTLED, *_PRIVATE_PARTS), objectives
      defaults = {"algorithm": next(iter(objectives))}
    self._spec = parser.add(
      spec_lib.RunSpec,
      skip=skip,
      choices={"algorithm": choices},
      defaults=defaults,
    )
    if self._is_private:
      self._cohort = parser.add(Cohort)

  def create(self) -> spec_lib.RunSpec:
    """Creates the spec that the flags describe."""
    if not self._is_private:
      return self._spec.create()
    parser = self.parser
    if parser.value("deployment") and not parser.value("participation"):
      parser.set({"participation": check_ins.CheckIns.name})
    users_per_client = parser.value("users_per_client") or 1
    clients_per_round = self._cohort.create().clients_per_round
    return self._spec.create(
      participation__users_per_round=clients_per_round * users_per_client
    )


def open_spec(
  flags: SpecFlags, *, is_smoke: bool = False
) -> tuple[spec_lib.RunSpec, task_lib.Task]:
  """Reads the spec, some of which may be chosen by the size of the data.

  The task is created here, before anything is imported that takes seconds.

  Args:
    flags: Flags of the spec.
    is_smoke: Whether the task has data that are made up.

  Returns:
    The spec, and its task.
  """
  parser = flags.parser
  if is_smoke:
    if parser.value("data_dir") is not None:
      raise errors.FieldError(
        "data_dir",
        "not be given with --smoke, which makes its own",
        parser.value("data_dir"),
      )
    data_dir = smoke.prepare_data(
      parser.value("task"), parser.value("cache_dir")
    )
    parser.set({"data_dir": data_dir})
  spec = flags.create().with_absolute_paths()
  task = spec.task.create()
  if not spec.task.chooses_settings:
    return spec, task
  chosen = suggestions.choose(
    task, parser.given(), federated=spec.algorithm.is_private
  )
  progress.say(suggestions.tell(task, chosen, parser.given()))
  values = {name: choice.value for name, choice in chosen.items()}
  return suggestions.apply(spec, values), task


def execute(options: RunOptions, flags: SpecFlags) -> None:
  """Plans or trains what the flags describe.

  Args:
    options: Directory and outputs of the run.
    flags: Flags of the spec.
  """
  spec, task = open_spec(flags, is_smoke=options.smoke)
  if options.dry_run:
    if options.run_dir and chain.Chain(options.run_dir).found:
      # The run has been charged already.
      spec = dataclasses.replace(spec, privacy_budget=None)
    print(plan.plan(spec, task=task))
    print("\nA dry run: nothing was trained and nothing written.")
    return
  train.train(
    spec,
    run_dir=checks.check_given("run_dir", options.run_dir),
    task=task,
    report=options.report,
    lite=options.export is not None,
    export_backbone=options.export_backbone,
  )
