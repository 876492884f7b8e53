"""Configurations of tasks: places of data, and options."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import importlib
import os
import pathlib
from typing import ClassVar

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.data import bad_examples as bad_examples_lib
from tff_fedemb.data import photo_index
from tff_fedemb.spec import task as task_lib


@dataclasses.dataclass(frozen=True)
class TaskConfig(task_lib.TaskSource):
  """Place of a task's data, and options that all tasks share.

  A class of your own that is derived from one of these makes the same task, or
  another one by a `creator` of its own.

  Attributes:
    creator: Function that makes the task from a configuration, as
      `module:function`; it is imported when the task is made.
    data_dir: Directory of the task's data.
    cache_dir: Directory of converted copies of data [~/.cache/tff_fedemb].
    task_variant: Variant of the task's data, for instance gld23k [its own
      choice].
    image_size: Side of the images in pixels [the task's].
    on_bad_example: Treatment of images, users and files that cannot be used;
      skip leaves them out and counts them.
    selection_users: Number of users who do not train; they are drawn at random,
      always the same ones, and their images are for validation. No guarantee
      covers them. With 0, where the task's own validation images may be of
      users who train, no epsilon covers settings chosen by these images.
  """

  creator: ClassVar[str]

  data_dir: str | None = config_lib.field(None, path=True)
  cache_dir: str | None = config_lib.field(None, path=True, decides=False)
  task_variant: str | None = None
  image_size: int | None = config_lib.field(None, minimum=1)
  on_bad_example: str = config_lib.field(
    "fail", choices=bad_examples_lib.POLICIES, decides=False
  )
  selection_users: int = config_lib.field(0, minimum=0)

  @property
  def skips_bad_examples(self) -> bool:
    """Whether bad examples are left out, rather than refused."""
    return self.on_bad_example == "skip"

  def build(self) -> task_lib.Task:
    """Creates the task with all its users.

    Returns:
      What the function called `creator` returns.

    Raises:
      FieldError: If data are missing, or an option is not for this task.
      DataError: If data are damaged, and are not to be skipped.
    """
    module, _, function = self.creator.partition(":")
    return getattr(importlib.import_module(module), function)(self)

  def create(self) -> task_lib.Task:
    """Creates the task without the users who are left out for validation.

    Returns:
      The task of the other users.

    Raises:
      FieldError: As `build`, or if nobody would be left to train.
      DataError: As `build`.
    """
    task = self.build()
    if self.selection_users:
      task = task.leave_out(self.selection_users)
    return task

  @property
  def cache(self) -> pathlib.Path:
    """Directory of converted copies, which need not exist.

    Without `cache_dir` it is `tff_fedemb` in $XDG_CACHE_HOME or in ~/.cache.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(self.cache_dir or os.path.join(base, "tff_fedemb"))

  def require_data_dir(self, task: str, advice: str) -> pathlib.Path:
    """Returns the directory of the data, for a task that needs one.

    Args:
      task: Name of the task.
      advice: Sentences on how to get the data, for the error.

    Returns:
      The path, which may not exist.

    Raises:
      FieldError: If no directory is given.
    """
    if self.data_dir is None:
      raise errors.FieldError(
        "data_dir", f"be given for task {task}", "none", advice
      )
    return pathlib.Path(self.data_dir)

  def choose_variant(self, task: str, variants: Sequence[str]) -> str:
    """Returns the variant asked for, or the first.

    Args:
      task: Name of the task.
      variants: Its variants, the default first.

    Returns:
      One of `variants`.

    Raises:
      FieldError: If the variant asked for is none of these.
    """
    if self.task_variant is None:
      return variants[0]
    if self.task_variant not in variants:
      raise errors.FieldError(
        "task_variant",
        f"be one of {', '.join(variants)} for task {task}",
        repr(self.task_variant),
      )
    return self.task_variant

  def check_no_photo_options(self, task: str, side: int) -> None:
    """Refuses options that only tasks of photos have.

    Args:
      task: Name of the task.
      side: Side of its images in pixels.

    Raises:
      FieldError: If another side is asked for, or bad examples are to be left
        out.
    """
    for name, found, allowed in (
      ("on_bad_example", self.on_bad_example, "fail"),
      ("image_size", self.image_size or side, side),
    ):
      if found != allowed:
        raise errors.FieldError(name, f"be {allowed} for task {task}", found)


@dataclasses.dataclass(frozen=True)
class UnseenConfig(TaskConfig):
  """Options of tasks on your own images, which come in no published form.

  Attributes:
    hold_out: Held-out part for evaluation [split_column if a table has one,
      else classes].
    color_mode: Whether images are used in colour or in grey [rgb].
  """

  chooses_settings = True

  hold_out: str | None = config_lib.field(None, choices=photo_index.HOLD_OUT)
  color_mode: str | None = config_lib.field(None, choices=("grayscale", "rgb"))


@dataclasses.dataclass(frozen=True)
class PhotosConfig(UnseenConfig):
  """Place of photos of your own users.

  Attributes:
    table: CSV or Parquet file in place of data_dir, with columns image (a path
      relative to the file), user and label, and optionally split (train,
      validation or test).
  """

  creator = "tasks.photos:create_photos_task"

  table: str | None = config_lib.field(None, path=True)


@dataclasses.dataclass(frozen=True)
class TfdsConfig(UnseenConfig):
  """Data set of TensorFlow Datasets, and its features.

  Attributes:
    tfds_name: Data set that TensorFlow Datasets has prepared in data_dir, for
      instance lfw; with a configuration NAME/CONFIGURATION.
    tfds_user: Feature that names the user of an image, for instance
      objects/writer [one user a class].
    tfds_label: Feature that names the class of an image.
  """

  creator = "tasks.tfds:create_tfds_task"

  tfds_name: str | None = None
  tfds_user: str | None = None
  tfds_label: str = "label"


@dataclasses.dataclass(frozen=True)
class PopulationConfig(TaskConfig):
  """Population of made-up users.

  Attributes:
    num_users: Number of users.
    population_seed: Seed that decides which users there are.
    max_images_per_user: Maximum number of training images per user.
  """

  num_users: int = config_lib.field(20_000, minimum=1)
  population_seed: int = config_lib.field(0, minimum=0, maximum=2**63 - 1)
  max_images_per_user: int = config_lib.field(32, minimum=1)

  def __post_init__(self):
    super().__post_init__()
    task_lib.check_somebody_trains(self.selection_users, self.num_users)

  @property
  def num_train_users(self) -> int:
    """Number of users who train, known without data: all but those left out."""
    return self.num_users - self.selection_users


def show_command(module: str, **options: object) -> str:
  """Writes the command that starts a program, for advice in errors.

  Args:
    module: The program, as `python -m` takes it.
    **options: Values of its flags by name.

  Returns:
    A line for a shell; values are not quoted.
  """
  typed = (f"--{name}={value}" for name, value in options.items())
  return " ".join(("python -m", module, *typed))


def advise_preparation(name: str) -> str:
  """Says in a sentence how to prepare a task's data from the publisher's.

  Args:
    name: Name of the task.

  Returns:
    The sentence, for an error.
  """
  return f"To get the data: {show_command('binaries.prepare_data', task=name)}."


def advise_synthetic(name: str, **options: object) -> str:
  """Says in a sentence how to make synthetic data for a task.

  Args:
    name: Name of the task.
    **options: Values of further flags of `tasks.synthetic`.

  Returns:
    The sentence, for an error.
  """
  command = show_command(
    "tasks.synthetic", task=name, output_dir="DIR", **options
  )
  return f"To make synthetic data: {command}, then use DIR as data_dir."
