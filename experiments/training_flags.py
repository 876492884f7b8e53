"""Flags that federated and centralized training share."""

import os

from absl import flags

from experiments import config_flags
from tasks import registry as tasks
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import local_training
from tff_fedemb.algorithms import schedules
from tff_fedemb.data import augmentation
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.models import backbones
from tff_fedemb.models import heads

# Flags that may differ between the programs that run parts of one run.
# A run that a client has ended may go on without that client: the rounds done
# so far are the same either way, and metrics.csv tells which left some out. The
# same goes for examples; a run whose users have changed is refused.
NOT_SETTINGS = (
  "run_dir",
  "cache_dir",
  "concurrent_clients",
  "on_bad_example",
  "on_client_error",
)

TASK = flags.DEFINE_string(
  "task",
  None,
  f"Benchmark: {', '.join(sorted(tasks.TASKS))}.",
  required=True,
)
RUN_DIR = flags.DEFINE_string(
  "run_dir",
  None,
  "Directory of the run: new, or to resume the run in it.",
  required=True,
)
DATA_DIR = flags.DEFINE_string(
  "data_dir",
  None,
  "Directory of the task's data; without it, where the task's publisher keeps"
  " it, if that can be fetched.",
)
CACHE_DIR = flags.DEFINE_string(
  "cache_dir",
  None,
  "Directory of converted copies of data [~/.cache/tff_fedemb].",
)
TASK_VARIANT = flags.DEFINE_string(
  "task_variant",
  None,
  "Which of the task's data sets, for instance gld23k [its own choice].",
)
IMAGE_SIZE = flags.DEFINE_integer(
  "image_size", None, "Side of the images in pixels [the task's]."
)
ON_BAD_EXAMPLE = flags.DEFINE_string(
  "on_bad_example",
  "fail",
  "What to do about images, users and files that cannot be used:"
  f" {', '.join(bad_examples.POLICIES)} (left out and counted).",
)
SMOKE = flags.DEFINE_bool(
  "smoke",
  None,
  "Small: two minutes on synthetic data in the format of the real ones. To be"
  " given on the command line with a --flagfile of binaries/flagfiles; other"
  " flags behind that one override it.",
)
BACKBONE = config_flags.ConfigFlags(backbones.BackboneConfig)
PRETRAINED_BACKBONE = flags.DEFINE_string(
  "pretrained_backbone",
  None,
  "Where the backbone's weights start: a SavedModel or a Keras weights file,"
  " made from public data. Nothing is accounted for it.",
)
HEAD = flags.DEFINE_string(
  "head", "linear", f"Head: {', '.join(sorted(heads.HEADS))}."
)
_HEAD_OPTIONS = config_flags.ChoiceFlags(
  "head",
  heads.HEADS,
  rename={
    "initial_scale": "head_initial_scale",
    "scale": "head_scale",
    "learned_scale": "head_learned_scale",
    "margin": "head_margin",
  },
)
ROUNDS = flags.DEFINE_integer("rounds", 100, "Rounds of training.")
_LOCAL_TRAINING = config_flags.ConfigFlags(
  local_training.LocalTrainingConfig, skip=("skip_unreadable",)
)
_SCHEDULE = config_flags.ConfigFlags(schedules.ScheduleConfig)
AUGMENTATION = flags.DEFINE_string(
  "augmentation",
  "none",
  "Random changes of training images:"
  f" {', '.join(sorted(augmentation.AUGMENTATIONS))}.",
)
EVALUATE_EVERY = flags.DEFINE_integer(
  "evaluate_every", 10, "Rounds between evaluations; 0: last round only."
)
CHECKPOINT_EVERY = flags.DEFINE_integer(
  "checkpoint_every", 10, "Rounds between checkpoints."
)
MAX_EVALUATION_IMAGES = flags.DEFINE_integer(
  "max_evaluation_images",
  2000,
  "Validation images of an evaluation during training; at the end all are"
  " used. 0: all.",
)
SEED = flags.DEFINE_integer(
  "seed",
  0,
  "Seed of initial weights, participation and client work. Differentially"
  " private noise is never seeded.",
  lower_bound=0,
  upper_bound=2**32 - 1,
)
RUNTIME = config_flags.ConfigFlags(runtimes.RuntimeConfig)


def settings(*names: str) -> dict[str, object]:
  """Values of all flags that decide a run's result.

  Args:
    *names: Flags of the program itself, beside those of this module.
  """
  shared = (flag.name for flag in flags.FLAGS.flags_by_module_dict()[__name__])
  values = {
    name: flags.FLAGS[name].value
    for name in (*shared, *names)
    if name not in NOT_SETTINGS
  }
  for path in (DATA_DIR, PRETRAINED_BACKBONE):
    if path.value is not None:
      values[path.name] = os.path.abspath(path.value)
  return values


def create_head() -> heads.Head:
  """Creates the head that the flags describe."""
  return _HEAD_OPTIONS.create(HEAD.value)


def create_local_training_config(
  decode_images: encoded_images.ImageDecoder | None = None,
) -> local_training.LocalTrainingConfig:
  """Creates the local training that the flags describe.

  Args:
    decode_images: The task's.
  """
  return _LOCAL_TRAINING.create(
    augmentation=augmentation.get_augmentation(AUGMENTATION.value),
    decode_images=decode_images,
    skip_unreadable=ON_BAD_EXAMPLE.value == "skip",
    learning_rate_schedule=_SCHEDULE.create().build(ROUNDS.value),
  )
