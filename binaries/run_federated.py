r"""Trains an embedding model on users' data with user-level privacy.

For instance, on handwriting that was made up:

  python -m tasks.synthetic --task=emnist --output_dir=data --num_users=200
  python -m binaries.run_federated --task=emnist --data_dir=data \
    --algorithm=fedemb --aggregator=gaussian --noise_multiplier=0.3 \
    --run_dir=runs/first

The run directory gets summary.json (recall, epsilon and what it means),
release/ (what may be given away), plots/, metrics.csv, tensorboard/ and
checkpoints/. The same command resumes a run that was ended.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

from absl import flags
from etils import epy

from binaries import command_line
from binaries import config_flags
from binaries import smoke
from binaries import training_flags
from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism as mechanism_lib
from tff_fedemb.aggregators import registry as aggregators
from tff_fedemb.algorithms import algorithm as algorithm_lib
from tff_fedemb.algorithms import registry as algorithms
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import planning
from tff_fedemb.run import deployment as deployment_run
from tff_fedemb.run import experiment as experiment_lib

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.run import task as task_lib
  from tff_fedemb.training import train as training_run


_ALGORITHMS = [
  name for name, found in algorithms.ALGORITHMS.items() if found.is_private
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FederatedConfig(config_lib.Config):
  """Which algorithm, who takes part and with how much noise.

  Attributes:
    algorithm: Algorithm; with fedemb heads stay on clients, with fedavg there
      is one global head.
    aggregator: Aggregator.
    clip_norm: L2 norm to which a virtual client's update is clipped.
    noise_multiplier: Standard deviation of the noise on the sum of updates /
      clip norm.
    participation: How users are drawn.
    clients_per_round: (Expected) virtual clients in a round; of a deployment,
      the report goal.
    users_per_client: (Expected) users merged in a virtual client.
    delta: Delta of the guarantee [number of users ** -1.1].
    server_optimizer: Server optimizer; the adaptive ones, adam and yogi, are
      for runs without noise.
  """

  algorithm: str = config_lib.field("fedemb", choices=_ALGORITHMS)
  aggregator: str = config_lib.field(
    aggregators.DEFAULT, choices=aggregators.AGGREGATORS
  )
  clip_norm: float = config_lib.field(1.0, above=0)
  noise_multiplier: float = 0.0
  participation: str = config_lib.field(
    "fixed_size", choices=participations.PARTICIPATIONS
  )
  clients_per_round: int = config_lib.field(8, minimum=1)
  users_per_client: int = config_lib.field(1, minimum=1)
  delta: float | None = config_lib.field(None, above=0, below=1)
  server_optimizer: str = config_lib.field(
    "sgd", choices=server_optimizers.SERVER_OPTIMIZERS
  )

  def __post_init__(self):
    super().__post_init__()
    checks.check_noise_multiplier(self.noise_multiplier)


_FEDERATED = config_flags.ConfigFlags(_FederatedConfig)
_MECHANISM = config_flags.ChoiceFlags(
  "aggregator", aggregators.AGGREGATORS, skip=config_flags.PLANNED
)
_PARTICIPATION = config_flags.ChoiceFlags(
  "participation",
  participations.PARTICIPATIONS,
  skip=(
    *config_flags.PLANNED,
    *("max_participations", "known_schedule", "equal_work"),
  ),
)
_SERVER_OPTIMIZER = config_flags.ChoiceFlags(
  "server_optimizer", server_optimizers.SERVER_OPTIMIZERS
)
_EXTRAPOLATION = config_flags.ConfigFlags(experiment_lib.ExtrapolationConfig)
_DEPLOYMENT = config_flags.ConfigFlags(deployment_run.DeploymentConfig)
_OWN = (
  *(_FEDERATED, _MECHANISM, _PARTICIPATION),
  *(_SERVER_OPTIMIZER, _EXTRAPOLATION, _DEPLOYMENT),
)

flags.adopt_module_key_flags(training_flags)


def _create_algorithm(
  config: _FederatedConfig, settings: training_flags.Settings
) -> algorithm_lib.Algorithm:
  return algorithms.ALGORITHMS[config.algorithm](
    backbone=settings.backbone,
    head=settings.head,
    local=settings.local_training,
  )


def _create_participation(
  config: _FederatedConfig,
  task: task_lib.Task,
  rounds: int,
  deployed: deployment_run.Deployed | None,
) -> participation_lib.Participation:
  if (
    task.one_class_per_user
    and config.algorithm == "fedemb"
    and config.users_per_client < 2
  ):
    raise errors.FieldError(
      "users_per_client",
      f"be at least 2 for task {task.name}, where a user has one class and a"
      " head of one class learns nothing",
      config.users_per_client,
    )
  num_users = len(task.train_users)
  if deployed is not None:
    return deployment_run.create_participation(
      deployed.deployment,
      num_users=num_users,
      report_goal=config.clients_per_round,
      users_per_client=config.users_per_client,
      min_separation=flags.FLAGS.min_separation,
    )
  return _PARTICIPATION.create(
    config.participation,
    num_users=num_users,
    users_per_round=participation_lib.count_users(
      config.clients_per_round, config.users_per_client, num_users=num_users
    ),
    users_per_client=config.users_per_client,
    **planning.options_of_bands(
      config.participation,
      config.aggregator,
      flags.FLAGS.flag_values_dict(),
    ),
  ).for_rounds(rounds)


def _create_mechanism(
  config: _FederatedConfig,
  participation: participation_lib.Participation,
  rounds: int,
) -> mechanism_lib.Mechanism:
  return _MECHANISM.create(
    config.aggregator,
    clients_per_round=config.clients_per_round,
    clip_norm=config.clip_norm,
    noise_multiplier=config.noise_multiplier,
  ).create(composition.schedule_of(participation, rounds))


def _build_process(
  algorithm: algorithm_lib.Algorithm,
  settings: training_flags.Settings,
  task: task_lib.Task,
  create_backbone: Callable[[], tf.keras.Model],
  **parts: Any,
) -> tff.learning.templates.LearningProcess:
  return algorithm.build(
    create_backbone,
    num_classes=settings.count_classes(task),
    local=settings.create_local_training(task.decode_images),
    example_type=task.example_type,
    seed=settings.run.seed,
    **parts,
  )


def read_settings(**run: Any) -> training_flags.Settings:
  """Reads the flags, but for those of the experiment itself.

  Args:
    **run: Fields of the run's configuration in place of their flags.
  """
  deployment = _DEPLOYMENT.create()
  if deployment.deployment is not None:
    training_flags.set_defaults({"participation": check_ins.CheckIns.name})
  settings = training_flags.read("run_federated", *_OWN, **run)
  # Refused now, not after the data have been read.
  config = _FEDERATED.create()
  deployment_run.check_participation(config.participation, deployment)
  deployment.load()
  _MECHANISM.check(config.aggregator)
  _PARTICIPATION.check(config.participation)
  server_optimizer = _SERVER_OPTIMIZER.create(config.server_optimizer)
  settings.record.update(config_flags.values_by_flag(server_optimizer))
  _create_algorithm(config, settings)
  _EXTRAPOLATION.create()
  return settings


def create_experiment(
  settings: training_flags.Settings, task: task_lib.Task, **parts: Any
) -> experiment_lib.Experiment:
  """Creates the experiment that the flags describe.

  Args:
    settings: What both training programs are set by.
    task: On which data.
    **parts: Of the learning process, beside those that the flags describe.
  """
  config = _FEDERATED.create()
  server_optimizer = _SERVER_OPTIMIZER.create(config.server_optimizer).build()
  extrapolation = _EXTRAPOLATION.create()
  create_backbone = training_run.create_backbone_fn(settings, task)
  rounds = settings.training.rounds
  deployed = _DEPLOYMENT.create().load()
  participation = _create_participation(config, task, rounds, deployed)
  mechanism = _create_mechanism(config, participation, rounds)
  delta = config.delta
  if delta is None:
    delta = planning.default_delta(len(task.train_users))
  return experiment_lib.Experiment(
    name=config.algorithm,
    task=task,
    create_backbone=create_backbone,
    build_process=lambda: _build_process(
      _create_algorithm(config, settings),
      settings,
      task,
      create_backbone,
      aggregator=mechanism.factory,
      server_optimizer=server_optimizer,
      **parts,
    ),
    participation=participation,
    mechanism=mechanism,
    delta=delta,
    extrapolation=extrapolation,
    deployed=deployed,
  )


def main() -> None:
  """Builds the experiment that the flags describe, and runs it."""
  settings, task = training_flags.open_task(read_settings, federated=True)
  training_run.execute(create_experiment(settings, task), settings)


if __name__ == "__main__":
  command_line.run(main, expand=smoke.expand)
