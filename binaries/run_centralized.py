r"""Trains an embedding model on pooled data, without privacy: the baseline.

  python -m binaries.run_centralized --task=emnist --data_dir=data \
    --run_dir=runs/centralized

A round is a pass over the pooled data of --users_per_round users. With
--export_backbone it pretrains: on public data, for private training to start
from; with --objective=contrastive no labels are looked at.
"""

import dataclasses

from absl import flags
from etils import epy

from binaries import command_line
from binaries import config_flags
from binaries import smoke
from binaries import training_flags
from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb.privacy import planning
from tff_fedemb.run import experiment as experiment_lib

with epy.lazy_imports():
  from tff_fedemb.aggregators import none
  from tff_fedemb.algorithms import centralized
  from tff_fedemb.algorithms import contrastive
  from tff_fedemb.participation import fixed_size
  from tff_fedemb.training import train as training_run

_OBJECTIVES = ("classification", "contrastive")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CentralizedConfig(config_lib.Config):
  """Whose data a round is of, and what is made of the backbone.

  Attributes:
    users_per_round: Users whose examples make up a round.
    objective: What is learned: to tell classes, by a head, or without labels to
      tell from all others which two views are of one image (contrastive; needs
      an augmentation).
    export_backbone: Where to write the trained backbone, beside the run's
      release/saved_model: for --pretrained_backbone of another run. It
      remembers its users.
  """

  users_per_round: int = config_lib.field(256, minimum=1)
  objective: str = config_lib.field("classification", choices=_OBJECTIVES)
  export_backbone: str | None = None


_CENTRALIZED = config_flags.ConfigFlags(_CentralizedConfig)

flags.adopt_module_key_flags(training_flags)


def _create_algorithm(
  settings: training_flags.Settings,
) -> centralized.Centralized:
  """Creates what is trained; refuses now what the data need not be read for."""
  config = _CENTRALIZED.create()
  pooled = centralized.Centralized
  if config.objective == "contrastive":
    pooled = contrastive.Contrastive
  return pooled(
    users_per_round=config.users_per_round,
    backbone=settings.backbone,
    head=settings.head,
    local=settings.local_training,
  )


def _read_settings() -> training_flags.Settings:
  settings = training_flags.read("run_centralized", _CENTRALIZED)
  _create_algorithm(settings)
  return settings


def main() -> None:
  """Builds the experiment that the flags describe, and runs it."""
  settings, task = training_flags.open_task(_read_settings, federated=False)
  algorithm = _create_algorithm(settings)
  create_backbone = training_run.create_backbone_fn(settings, task)
  num_users, users_per_round = len(task.train_users), algorithm.users_per_round
  checks.check_integer(
    "users_per_round", users_per_round, minimum=1, maximum=num_users
  )
  training_run.execute(
    experiment_lib.Experiment(
      name="centralized",
      task=task,
      create_backbone=create_backbone,
      build_process=lambda: algorithm.build(
        create_backbone,
        num_classes=settings.count_classes(task),
        local=settings.create_local_training(task.decode_images),
        example_type=task.example_type,
        seed=settings.run.seed,
      ),
      participation=fixed_size.FixedSize(
        num_users, users_per_round, users_per_client=users_per_round
      ),
      mechanism=none.NoneConfig(clients_per_round=1).create(),
      delta=planning.default_delta(num_users),
      export_backbone=_CENTRALIZED.create().export_backbone,
    ),
    settings,
  )


if __name__ == "__main__":
  command_line.run(main, expand=smoke.expand)
