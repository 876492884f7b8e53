"""Fixtures of the tests of photos of one's own."""

import os

import pandas as pd
import pytest

from tasks import photos
from tasks import task_config
from tests.tasks import clients
from tests.tasks import trees


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
  """Leaves out what only a power cut would show."""
  monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(name="root")
def _root(tmp_path):
  """Photos of four users and eight classes."""
  trees.write_all(tmp_path / "data")
  return tmp_path / "data"


@pytest.fixture(name="create")
def _create(tmp_path):
  return clients.creator(
    photos.create_photos_task,
    tmp_path,
    task_config.PhotosConfig,
    image_size=trees.SIDE,
  )


@pytest.fixture(name="create_from_table")
def _create_from_table(root, create):
  """Makes a task of a table: rows, or the bytes of a file."""

  def create_from_table(table, name="table.csv", **options):
    path = root / name
    if isinstance(table, bytes):
      path.write_bytes(table)
    elif name.endswith("parquet"):
      pd.DataFrame(table).to_parquet(path)
    else:
      pd.DataFrame(table).to_csv(path, index=False)
    return create(data_dir=None, table=os.fspath(path), **options)

  return create_from_table
