"""What is to be prepared: a split, and where its images may be."""

from collections.abc import Sequence
import dataclasses
import pathlib

from tasks.prepare import downloads
from tasks.prepare import split_tables
from tff_fedemb.data import tfrecord_layout


@dataclasses.dataclass(frozen=True)
class Job:
  """One data set to prepare.

  Attributes:
    task: Name of the task.
    variant: Which of the task's data sets; the name of its folder.
    source_dir: Folder of all that was downloaded.
    tables: The split.
    archives: Where images may be, beside folders of unpacked ones.
    notes: Lines to tell the user about what was found and what is missing.
    bytes_per_image: Average size of an image, for those in compressed archives,
      whose sizes are not known in advance.
  """

  task: str
  variant: str
  source_dir: pathlib.Path
  tables: split_tables.SplitTables
  archives: Sequence[downloads.Archive]
  notes: Sequence[str] = ()
  bytes_per_image: int = 0

  def __post_init__(self):
    needs_size = any(archive.is_compressed for archive in self.archives)
    if needs_size and self.bytes_per_image < 1:
      raise ValueError(
        "bytes_per_image must be 1 or more where archives are compressed,"
        f" found {self.bytes_per_image}."
      )

  @property
  def identity(self) -> dict[str, object]:
    """What must be the same for a preparation to be taken up again."""
    return {
      "task": self.task,
      "variant": self.variant,
      "tables": dict(sorted(self.tables.md5.items())),
    }

  @property
  def files(self) -> list[tuple[str, Sequence[split_tables.Row]]]:
    """Files of the result, by name, and what is to be in each."""
    return [
      (f"{tfrecord_layout.TRAIN_FOLDER}/{user_id}", rows)
      for user_id, rows in self.tables.users.items()
    ] + [(tfrecord_layout.TEST_FILE_NAME, self.tables.test)]


def describe_tables(identity: dict[str, object]) -> str:
  """For instance "test.csv (MD5 0123...)", of each table of an identity."""
  return " and ".join(
    f"{name} (MD5 {md5})" for name, md5 in identity["tables"].items()
  )
