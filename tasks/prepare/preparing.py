"""Prepares a task's data from what a user has downloaded."""

import dataclasses
import pathlib

from tasks.prepare import digiface
from tasks.prepare import gld
from tasks.prepare import inaturalist
from tasks.prepare import output
from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.data import bad_examples

_PUBLISHERS = {"digiface": digiface, "gld": gld, "inaturalist": inaturalist}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparationConfig(config_lib.Config):
  """What to prepare, and where.

  Attributes:
    task: Benchmark.
    source_dir: Folder of your downloads; it is only read.
    output_dir: Folder of the result, the data_dir of the task.
    variant: Variant of the task's data; gld has gld23k and gld160k; inaturalist
      has user_120k, geo_100, geo_300, geo_1k, geo_3k, geo_10k and geo_30k;
      digiface has 72_images, 5_images and all [gld: each whose tables are
      there; digiface: each of its two parts that is there; inaturalist:
      user_120k].
    dry_run: Whether to say only what was found, what is missing and how much
      disk it takes, and write nothing.
    on_bad_example: Treatment of images that are missing or damaged.

  Raises:
    FieldError: If the source is no folder, the output is a file, or the task
      has no such variant.
  """

  task: str = config_lib.field(choices=_PUBLISHERS)
  source_dir: str
  output_dir: str
  variant: str | None = None
  dry_run: bool = False
  on_bad_example: str = config_lib.field("fail", choices=bad_examples.POLICIES)

  def __post_init__(self):
    super().__post_init__()
    if not pathlib.Path(self.source_dir).is_dir():
      raise errors.FieldError(
        "source_dir",
        "be the folder of your downloads",
        repr(self.source_dir),
      )
    if pathlib.Path(self.output_dir).is_file():
      raise errors.FieldError(
        "output_dir", "be a folder", f"the file {self.output_dir}"
      )
    if self.variant is not None:
      checks.check_choice(
        "variant", self.variant, _PUBLISHERS[self.task].VARIANTS
      )


def execute(config: PreparationConfig) -> None:
  """Prepares the data; killed at any time and started again, it goes on.

  Args:
    config: What to prepare, and where.

  Raises:
    DataError: If something is missing or damaged.
    FieldError: If a folder holds no data, or the disk is too small.
  """
  source_dir = pathlib.Path(config.source_dir).resolve()
  output_dir = pathlib.Path(config.output_dir)
  create_jobs = _PUBLISHERS[config.task].create_jobs
  try:
    for job in create_jobs(source_dir, config.variant):
      preparation = output.Preparation(job, output_dir, config.on_bad_example)
      preparation.run(dry_run=config.dry_run)
  except OSError as error:
    raise errors.DataError(
      "source_dir must be readable and output_dir writable, found"
      f" {error.strerror}: {error.filename or 'no file named'}. Finished files"
      " are kept; start again once this is mended."
    ) from error
