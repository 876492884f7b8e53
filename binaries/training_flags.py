"""What federated and centralized training are set by, and its flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import os
import shlex
from typing import Any

from absl import flags
from etils import epy
import tqdm

from binaries import config_flags
from binaries import smoke
from tasks import registry as task_registry
from tasks import task_config
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import local_training as local_training_lib
from tff_fedemb.models import backbones
from tff_fedemb.models import heads
from tff_fedemb.program import training
from tff_fedemb.run import task as task_lib
from tff_fedemb.training import photo_choices as plan

with epy.lazy_imports():
  from tff_fedemb.data import encoded_images

# Flags that may differ between the programs that run parts of one run.
# A run that a client has ended may go on without that client: the rounds done
# so far are the same either way, and metrics.csv tells which left some out. The
# same goes for examples; a run whose users have changed is refused.
_NOT_SETTINGS = (
  "run_dir",
  "cache_dir",
  "concurrent_clients",
  "dry_run",
  "export",
  "export_backbone",
  "on_bad_example",
  "on_client_error",
  "ray_address",
  "ray_runtime_env",
  "ray_worker_cores",
  "ray_worker_gpus",
  "ray_workers",
  "report",
  "require_gpu",
  "secure_sum_threshold",
)
# Minutes for small images, and 200 million pairs.
_MAX_HELD_OUT_IMAGES = 20_000
# They mean the same wherever the program is started.
_PATHS = ("data_dir", "pretrained_backbone", "table")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(config_lib.Config):
  """What a run is of, where it is kept and what it starts from.

  Attributes:
    task: Benchmark.
    run_dir: Directory of the run: new, or to resume the run in it; not needed
      for a dry_run.
    dry_run: Tells users, classes and images, what a round takes in time and
      memory, measured on images made up, and what the run would cost; trains
      and writes nothing.
    smoke: Small: two minutes on synthetic data in the format of the real ones.
      To be given with a --flagfile of binaries/flagfiles; other flags behind
      that one override it.
    report: Whether to write report.html into run_dir at the end, of a run that
      is complete, too. It shows no images that may be of users who train;
      binaries.report can.
    export: Whether to convert the model for phones at the end, of a run that is
      complete, too, into tflite/ of run_dir.
    head: Head.
    pretrained_backbone: Where the backbone's weights start: a SavedModel or a
      Keras weights file, made from public data. Nothing is accounted for it.
    max_evaluation_images: Validation images of an evaluation during training.
      0: all.
    max_held_out_images: Images of each held-out split on which the model is
      evaluated before training and after it; of more a random sample is drawn,
      always the same, and what it leaves open is told. 0: all [20,000].
    seed: Seed of initial weights and client work, less than 2**32. Neither who
      takes part nor differentially private noise comes from it.
    sampling_seed: For experiments alone: who takes part is drawn from this
      number, which everyone who has flags.json knows, so that sampling
      amplifies nothing and epsilon is many times as large [a secret key, drawn
      anew for each run and kept with its checkpoints].
  """

  task: str = config_lib.field(choices=task_registry.TASKS)
  run_dir: str
  dry_run: bool = False
  smoke: bool | None = None
  report: bool = False
  export: str | None = config_lib.field(None, choices=("tflite",))
  head: str = config_lib.field("linear", choices=heads.HEADS)
  pretrained_backbone: str | None = None
  max_evaluation_images: int = config_lib.field(2000, minimum=0)
  # A default would tell a run of an earlier version from this one.
  max_held_out_images: int | None = config_lib.field(None, minimum=0)
  seed: int = config_lib.field(0, minimum=0, maximum=2**32 - 1)
  sampling_seed: int | None = config_lib.field(
    None, minimum=0, maximum=2**63 - 1
  )

  @property
  def num_held_out_images(self) -> int:
    """`max_held_out_images`, or its default."""
    if self.max_held_out_images is None:
      return _MAX_HELD_OUT_IMAGES
    return self.max_held_out_images


_RUN = config_flags.ConfigFlags(RunConfig)
_DATA = config_flags.ConfigFlags(task_config.TaskConfig)
_BACKBONE = config_flags.ConfigFlags(backbones.BackboneConfig)
_HEAD = config_flags.ChoiceFlags("head", heads.HEADS)
_LOCAL_TRAINING = config_flags.ConfigFlags(
  local_training_lib.LocalTraining,
  skip=("skip_unreadable", "two_views", "rounds"),
)
_TRAINING = config_flags.ConfigFlags(training.TrainingConfig)
_RUNTIME = config_flags.ConfigFlags(runtimes.RuntimeConfig)
_ALL: tuple[config_flags.ConfigFlags | config_flags.ChoiceFlags, ...] = (
  *(_RUN, _DATA, _BACKBONE, _HEAD),
  *(_LOCAL_TRAINING, _TRAINING, _RUNTIME),
)


@dataclasses.dataclass(frozen=True)
class Settings:
  """What the flags of both programs say, each part checked by itself.

  Attributes:
    run: What is run and where.
    data: Where the data are.
    backbone: Which backbone.
    head: The head.
    local_training: What clients do.
    training: How long, and how often to look up from it.
    runtime: What executes the rounds.
    record: What decides the run's result, JSON values by flag.
  """

  run: RunConfig
  data: task_config.TaskConfig
  backbone: backbones.BackboneConfig
  head: heads.Head
  local_training: local_training_lib.LocalTraining
  training: training.TrainingConfig
  runtime: runtimes.RuntimeConfig
  record: dict[str, Any]

  def show_command(self) -> str:
    """What a user types for this run, all flags spelled out.

    Of places only the last part: a model that is given away does not tell of
    the machine it is from.
    """
    words = ["python", "-m", f"binaries.{self.record['program']}"]
    for name, value in self.record.items():
      if name == "program" or flags.FLAGS[name].value is None:
        continue
      if isinstance(value, bool):
        words.append(f"--{name}" if value else f"--no{name}")
        continue
      text = ",".join(value) if isinstance(value, list) else str(value)
      if name in _PATHS:
        text = os.path.basename(text)
      words.append(f"--{name}={text}")
    return shlex.join(words)

  def count_classes(self, task: task_lib.Task) -> int:
    """How many classes training tells apart, over all users of a task."""
    return task.num_train_classes * self.local_training.classes_per_label

  def create_local_training(
    self, decode_images: encoded_images.ImageDecoder | None
  ) -> local_training_lib.LocalTraining:
    """What clients do with the data of the task whose decoder this is."""
    return dataclasses.replace(self.local_training, decode_images=decode_images)


def given() -> dict[str, Any]:
  """Returns the values of the flags that the user has given."""
  return {
    name: flags.FLAGS[name].value
    for name in flags.FLAGS
    if flags.FLAGS[name].present
  }


def set_defaults(values: Mapping[str, Any]) -> None:
  """Sets flags that the user has not given, from then on."""
  for name, value in values.items():
    flags.FLAGS.set_default(name, value)


def read(
  program: str,
  *own: config_flags.ConfigFlags | config_flags.ChoiceFlags,
  **fields: Any,
) -> Settings:
  """Reads the flags that both programs have.

  Args:
    program: The program's name.
    *own: Flags of the program itself, which decide its result as well.
    **fields: Of the run, in place of their flags.

  Raises:
    errors.FieldError: If one of them is out of its range.
  """
  if flags.FLAGS["dry_run"].value and flags.FLAGS["run_dir"].value is None:
    # Nothing is written there.
    fields = {"run_dir": os.devnull} | fields
  run, rounds = _RUN.create(**fields), _TRAINING.create()
  data = _DATA.create()
  data.check_options(run.task)
  record: dict[str, object] = {"program": program}
  for some in (*_ALL, *own):
    record |= {name: flags.FLAGS[name].value for name in some.names}
  head = _HEAD.create(run.head)
  record |= config_flags.values_by_flag(head)
  for name in _PATHS:
    if record[name] is not None:
      record[name] = os.path.abspath(str(record[name]))
  return Settings(
    run=run,
    data=data,
    backbone=_BACKBONE.create(),
    head=head,
    local_training=_LOCAL_TRAINING.create(
      skip_unreadable=data.on_bad_example == "skip",
      rounds=rounds.rounds,
    ),
    training=rounds,
    runtime=_RUNTIME.create(),
    record={k: v for k, v in record.items() if k not in _NOT_SETTINGS},
  )


def create_task(settings: Settings) -> task_lib.Task:
  """Creates the task, of data that are made up if they are to be."""
  name, config = settings.run.task, settings.data
  if settings.run.smoke:
    if config.data_dir is not None:
      raise errors.FieldError(
        "data_dir",
        "not be given with --smoke, which makes its own",
        config.data_dir,
      )
    data_dir = smoke.prepare_data(name, config.cache_dir)
    config = dataclasses.replace(config, data_dir=data_dir)
  return task_registry.create_task(name, config)


def open_task(
  read_settings: Callable[[], Settings], *, federated: bool
) -> tuple[Settings, task_lib.Task]:
  """Reads the flags and creates the task, whose size may decide on others.

  Args:
    read_settings: Reads the flags.
    federated: Whether the training is.

  Returns:
    The settings, with what was chosen for the task, and the task.
  """
  settings = read_settings()
  task = create_task(settings)
  if settings.run.task not in plan.TASKS:
    return settings, task
  chosen = plan.choose(task, given(), federated=federated)
  tqdm.tqdm.write(plan.tell(task, chosen))
  set_defaults({name: choice.value for name, choice in chosen.items()})
  return read_settings(), task
