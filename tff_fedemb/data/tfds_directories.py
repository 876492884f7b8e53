"""Finds data sets that TensorFlow Datasets has prepared; none is downloaded.

Each prepared version is a directory below the one that is named after the data
set, and holds `dataset_info.json`.
"""

from __future__ import annotations

import os
import pathlib

from etils import epy

from tff_fedemb import errors
from tff_fedemb import progress

with epy.lazy_imports():
  import tensorflow_datasets as tfds

# TFDS itself uses this property, and warns of it.
progress.leave_out("`FeatureConnector.dtype` is deprecated")


def find(name: str, data_dir: str | None, *, field: str) -> pathlib.Path:
  """Finds where the latest version of a data set has been prepared.

  Args:
    name: Name of the data set, with its configuration's name if it has one.
    data_dir: Directory of the data sets; `None` for TensorFlow Datasets' own.
    field: Name of the user's field, for errors.

  Returns:
    A directory for `tfds.builder_from_directory`, which only reads from the
    disk and cannot download.

  Raises:
    errors.FieldError: If the data set is not there.
  """
  root = pathlib.Path(data_dir or os.fspath(tfds.core.constants.DATA_DIR))
  found = []
  for path in (root / name).glob("*/dataset_info.json"):
    if tfds.core.Version.is_valid(path.parent.name):
      found.append(path.parent)
  if not found:
    raise errors.FieldError(
      field,
      "be a data set that is on disk, as tensorflow_datasets has prepared it in"
      " data_dir; nothing is downloaded",
      f"no {root / name}/VERSION/dataset_info.json",
    )
  return max(found, key=lambda path: tfds.core.Version(path.name))
