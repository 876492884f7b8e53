r"""Trains an embedding model on users' data with user-level privacy.

For instance, on handwriting that was made up:

  python -m tasks.synthetic --task=emnist --output_dir=data --num_users=200
  python -m binaries.run_federated --task=emnist --data_dir=data \
    --algorithm=fedemb --aggregator=gaussian --noise_multiplier=0.3 \
    --run_dir=runs/first

The run directory gets summary.json (recall, epsilon and what it means),
saved_model/, plots/, metrics.csv, tensorboard/ and checkpoints/. The same
command resumes a run that was ended.
"""

from experiments import command_line  # isort: skip

from absl import flags

from experiments import config_flags
from experiments import smoke
from experiments import training_flags
from experiments import training_run
from tff_fedemb import checks
from tff_fedemb.aggregators import mechanism as mechanism_lib
from tff_fedemb.aggregators import registry as aggregators
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.data.participation import min_separation
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import planning

_ALGORITHMS = ("fedemb", "fedavg")

_ALGORITHM = flags.DEFINE_string(
  "algorithm",
  "fedemb",
  "fedemb: heads stay on clients; fedavg: one global head.",
)
_AGGREGATOR = flags.DEFINE_string(
  "aggregator",
  "gaussian",
  f"Aggregator: {', '.join(sorted(aggregators.AGGREGATORS))}.",
)
_CLIP_NORM = flags.DEFINE_float(
  "clip_norm", 1.0, "L2 norm to which a virtual client's update is clipped."
)
_NOISE_MULTIPLIER = flags.DEFINE_float(
  "noise_multiplier",
  0.0,
  "Standard deviation of the noise on the sum of updates / clip norm.",
)
_PARTICIPATION = flags.DEFINE_string(
  "participation",
  "fixed_size",
  f"How users are drawn: {', '.join(sorted(participations.PARTICIPATIONS))}.",
)
_MIN_SEPARATION = flags.DEFINE_integer(
  "min_separation",
  None,
  "Rounds from one participation of a user to the next, of participation"
  " min_separation [those of a pass over all users].",
)
_REGROUP_CLIENTS = flags.DEFINE_bool(
  "regroup_clients",
  True,
  "Whether users meet other ones in a virtual client in every pass, of"
  " participation min_separation.",
)
_RESTART_EVERY_PASSES = flags.DEFINE_integer(
  "restart_every_passes",
  None,
  "The same in passes over all users, of participation min_separation.",
)
_MECHANISM = config_flags.ChoiceFlags(
  "aggregator",
  aggregators.AGGREGATORS,
  skip=("clients_per_round", "clip_norm", "noise_multiplier", "noise_seed"),
)
_CLIENTS_PER_ROUND = flags.DEFINE_integer(
  "clients_per_round", 8, "(Expected) virtual clients in a round."
)
_USERS_PER_CLIENT = flags.DEFINE_integer(
  "users_per_client", 1, "(Expected) users merged in a virtual client."
)
_DELTA = flags.DEFINE_float(
  "delta", None, "Delta of the guarantee [number of users ** -1.1]."
)
_SERVER_OPTIMIZER = config_flags.ConfigFlags(
  server_optimizers.ServerOptimizerConfig
)
_EXTRAPOLATED_NUM_USERS = flags.DEFINE_integer(
  "extrapolated_num_users",
  10_000_000,
  "Population for which the cost of the same noise on the mean is worked out"
  " beside the run's own; 0 for none.",
)
_EXTRAPOLATED_COHORT_FACTOR = flags.DEFINE_float(
  "extrapolated_cohort_factor",
  64.0,
  "Users of a round and noise multiplier of the extrapolation / of the run.",
)


flags.adopt_module_key_flags(training_flags)


def _own_flags() -> tuple[str, ...]:
  return (
    tuple(
      flag.name
      for flag in (
        _ALGORITHM,
        _AGGREGATOR,
        _CLIP_NORM,
        _NOISE_MULTIPLIER,
        _PARTICIPATION,
        _MIN_SEPARATION,
        _REGROUP_CLIENTS,
        _RESTART_EVERY_PASSES,
        _CLIENTS_PER_ROUND,
        _USERS_PER_CLIENT,
        _DELTA,
        _EXTRAPOLATED_NUM_USERS,
        _EXTRAPOLATED_COHORT_FACTOR,
      )
    )
    + _MECHANISM.names
    + _SERVER_OPTIMIZER.names
  )


def _restart_options(
  participation: participation_lib.Participation,
) -> dict[str, int]:
  passes = _RESTART_EVERY_PASSES.value
  if passes is None:
    return {}
  if flags.FLAGS.restart_every is not None:
    raise command_line.UsageError(
      "--restart_every_passes must not be given beside --restart_every, found"
      f" {passes} and {flags.FLAGS.restart_every}."
    )
  if passes < 1:
    raise command_line.UsageError(
      f"--restart_every_passes must be at least 1, found {passes}."
    )
  if not isinstance(participation, min_separation.MinSeparation):
    raise command_line.UsageError(
      "--restart_every_passes must be given with --participation="
      f"min_separation alone, found {_PARTICIPATION.value}, which has no"
      " passes."
    )
  return {"restart_every": passes * participation.rounds_per_pass}


def main() -> None:
  """Builds the experiment that the flags describe, and runs it."""
  check = command_line.call_with_flags
  if _ALGORITHM.value not in _ALGORITHMS:
    raise command_line.UsageError(
      f"--algorithm must be one of {list(_ALGORITHMS)}, found"
      f" {_ALGORITHM.value!r}."
    )
  if _EXTRAPOLATED_NUM_USERS.value < 0:
    raise command_line.UsageError(
      "--extrapolated_num_users must be at least 0, found"
      f" {_EXTRAPOLATED_NUM_USERS.value}."
    )
  server_optimizer = check(_SERVER_OPTIMIZER.create).build()
  head = check(training_flags.create_head)
  check(training_flags.create_local_training_config)
  task = training_run.create_task()
  config = training_flags.create_local_training_config(task.decode_images)
  if (
    task.one_class_per_user
    and _ALGORITHM.value == "fedemb"
    and _USERS_PER_CLIENT.value < 2
  ):
    raise command_line.UsageError(
      f"--users_per_client must be at least 2 for task {task.name}, where a"
      " user has one class and a head of one class learns nothing, found"
      f" {_USERS_PER_CLIENT.value}."
    )
  create_backbone = training_run.create_backbone_fn(task)
  check(checks.check_integer, "seed", training_flags.SEED.value, minimum=0)
  participation = check(
    participations.create_participation,
    _PARTICIPATION.value,
    num_users=len(task.train_users),
    users_per_round=check(
      participation_lib.count_users,
      _CLIENTS_PER_ROUND.value,
      _USERS_PER_CLIENT.value,
      num_users=len(task.train_users),
    ),
    users_per_client=_USERS_PER_CLIENT.value,
    min_separation=_MIN_SEPARATION.value,
    # True is what the others do, which have no such option.
    regroup_clients=None if _REGROUP_CLIENTS.value else False,
  ).for_rounds(max(training_flags.ROUNDS.value, 1))
  mechanism = check(
    _MECHANISM.create,
    _AGGREGATOR.value,
    clients_per_round=_CLIENTS_PER_ROUND.value,
    clip_norm=_CLIP_NORM.value,
    noise_multiplier=_NOISE_MULTIPLIER.value,
    **_restart_options(participation),
  )
  mechanism = check(
    mechanism.create,
    mechanism_lib.Schedule(
      training_flags.ROUNDS.value,
      participation.min_separation or 1,
      participation.max_participations,
    ),
  )

  def build_process():
    parts = {
      "example_type": task.example_type,
      "aggregator": mechanism.factory,
      "server_optimizer": server_optimizer,
      "config": config,
      "seed": training_flags.SEED.value,
    }
    if _ALGORITHM.value == "fedavg":
      return fedavg.build_fedavg(
        create_backbone, head, num_classes=task.num_train_classes, **parts
      )
    return fedemb.build_fedemb(create_backbone, head, **parts)

  training_run.execute(
    training_run.Experiment(
      name=_ALGORITHM.value,
      task=task,
      create_backbone=create_backbone,
      build_process=build_process,
      participation=participation,
      mechanism=mechanism,
      delta=(
        planning.default_delta(len(task.train_users))
        if _DELTA.value is None
        else _DELTA.value
      ),
      extrapolated_num_users=_EXTRAPOLATED_NUM_USERS.value,
      extrapolated_cohort_factor=_EXTRAPOLATED_COHORT_FACTOR.value,
    ),
    {"program": "run_federated", **training_flags.settings(*_own_flags())},
  )


if __name__ == "__main__":
  command_line.run(main, expand=smoke.expand)
