"""Prepares a task's data from what a user has downloaded."""

from collections.abc import Callable
import dataclasses
import errno
import pathlib
import shutil

from experiments import command_line
from tasks.prepare import conversion
from tasks.prepare import digiface
from tasks.prepare import gld
from tasks.prepare import inaturalist
from tff_fedemb import errors
from tff_fedemb.data import bad_examples

# The variants of each task; those of DigiFace are all read from its zips.
VARIANTS = {
  "digiface": (),
  "gld": tuple(gld.VARIANTS),
  "inaturalist": inaturalist.VARIANTS,
}
_CREATE_JOBS = {
  "gld": gld.create_jobs,
  "inaturalist": inaturalist.create_jobs,
}


@dataclasses.dataclass(frozen=True)
class PreparationConfig:
  """What to prepare.

  Attributes:
    task: One of `VARIANTS`.
    source_dir: Folder of what was downloaded.
    output_dir: Folder of the result. Must be given unless the task needs no
      conversion.
    variant: Which of the task's data sets; None: for "gld" all whose tables are
      there, for "inaturalist" "user_120k".
    on_bad_example: "fail" or "skip".
    dry_run: Whether to stop after telling what there is.
  """

  task: str
  source_dir: str
  output_dir: str | None = None
  variant: str | None = None
  on_bad_example: str = "fail"
  dry_run: bool = False

  def __post_init__(self):
    if self.task not in VARIANTS:
      raise ValueError(
        f"task must be one of {', '.join(sorted(VARIANTS))}, found"
        f" {self.task!r}."
      )
    if not self.source_dir or not pathlib.Path(self.source_dir).is_dir():
      raise ValueError(
        "source_dir must be the folder of what was downloaded, found"
        f" {self.source_dir!r}."
      )
    if not self.output_dir and self.task in _CREATE_JOBS:
      raise ValueError(
        f"output_dir must be given for task {self.task}, found"
        f" {self.output_dir!r}."
      )
    if self.output_dir and pathlib.Path(self.output_dir).is_file():
      raise ValueError(
        f"output_dir must be a folder, found the file {self.output_dir}."
      )
    known = VARIANTS[self.task]
    if self.variant is not None and self.variant not in known:
      raise ValueError(
        f"variant must be one of {', '.join(known)} for task {self.task},"
        f" found {self.variant!r}."
        if known
        else f"variant must not be given for task {self.task}, whose variants"
        f" are all in its zips, found {self.variant!r}."
      )
    bad_examples.BadExamples(self.on_bad_example)  # Validates the policy.


def _prepare(
  config: PreparationConfig,
  disk_usage: Callable[[pathlib.Path], object],
) -> None:
  source_dir = pathlib.Path(config.source_dir).resolve()
  output_dir = config.output_dir and pathlib.Path(config.output_dir)
  if config.task == "digiface":
    digiface.verify(
      source_dir,
      output_dir,
      on_bad_example=config.on_bad_example,
      dry_run=config.dry_run,
    )
    return
  verified = set()
  for job in _CREATE_JOBS[config.task](source_dir, config.variant):
    conversion.Preparation(
      job,
      output_dir,
      on_bad_example=config.on_bad_example,
      disk_usage=disk_usage,
    ).run(dry_run=config.dry_run, verified=verified)


def execute(
  config: PreparationConfig,
  *,
  disk_usage: Callable[[pathlib.Path], object] = shutil.disk_usage,
) -> None:
  """Prepares the data; killed at any time and started again, it goes on.

  Args:
    config: What to prepare.
    disk_usage: From a folder to an object whose `free` is a number of bytes.

  Raises:
    UsageError: If something is missing or damaged, or the disk is too small.
  """
  try:
    _prepare(config, disk_usage)
  except errors.DataError as error:
    raise command_line.UsageError(str(error)) from error
  except OSError as error:
    if error.errno not in (
      errno.ENOSPC,
      errno.EDQUOT,
      errno.EACCES,
      errno.EROFS,
      errno.EPERM,
      errno.EIO,
      errno.ENAMETOOLONG,
      errno.ENOENT,
      errno.ENOTDIR,
    ):
      raise
    raise command_line.UsageError(
      "--source_dir must be readable and --output_dir writable, found"
      f" {error.strerror}: {error.filename or 'no file named'}. What is"
      " finished is kept; start again when that is mended."
    ) from error
