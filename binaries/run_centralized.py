r"""Trains an embedding model on pooled data, without privacy: the baseline.

  python -m binaries.run_centralized --task=emnist --data_dir=data \
    --run_dir=runs/centralized

A round is a pass over the pooled data of --users_per_round users. With
--export_backbone it pretrains: on public data, for private training to start
from.
"""

from experiments import command_line  # isort: skip

from absl import flags

from experiments import smoke
from experiments import training_flags
from experiments import training_run
from tff_fedemb import checks
from tff_fedemb.aggregators import none
from tff_fedemb.algorithms import centralized
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.privacy import planning

_USERS_PER_ROUND = flags.DEFINE_integer(
  "users_per_round", 256, "Users whose examples make up a round."
)
_EXPORT_BACKBONE = flags.DEFINE_string(
  "export_backbone",
  None,
  "Where to write the trained backbone, beside the run's saved_model/: for"
  " --pretrained_backbone of another run. It remembers its users.",
)


flags.adopt_module_key_flags(training_flags)


def main() -> None:
  """Builds the experiment that the flags describe, and runs it."""
  check = command_line.call_with_flags
  head = check(training_flags.create_head)
  check(training_flags.create_local_training_config)
  task = training_run.create_task()
  config = training_flags.create_local_training_config(task.decode_images)
  create_backbone = training_run.create_backbone_fn(task)
  if not 1 <= _USERS_PER_ROUND.value <= len(task.train_users):
    raise command_line.UsageError(
      f"--users_per_round must be between 1 and {len(task.train_users)}, the"
      f" number of users, found {_USERS_PER_ROUND.value}."
    )
  check(checks.check_integer, "seed", training_flags.SEED.value, minimum=0)
  training_run.execute(
    training_run.Experiment(
      name="centralized",
      task=task,
      create_backbone=create_backbone,
      build_process=lambda: centralized.build_centralized(
        create_backbone,
        head,
        num_classes=task.num_train_classes,
        example_type=task.example_type,
        config=config,
        seed=training_flags.SEED.value,
      ),
      participation=fixed_size.FixedSize(
        len(task.train_users),
        _USERS_PER_ROUND.value,
        users_per_client=_USERS_PER_ROUND.value,
      ),
      mechanism=none.NoneConfig(clients_per_round=1).create(),
      delta=planning.default_delta(len(task.train_users)),
      export_backbone=_EXPORT_BACKBONE.value,
    ),
    {
      "program": "run_centralized",
      **training_flags.settings(_USERS_PER_ROUND.name),
    },
  )


if __name__ == "__main__":
  command_line.run(main, expand=smoke.expand)
