"""Tests of the configuration, and of failures as users see them."""

import errno
import os

import pytest

from tasks.prepare import preparing
from tests.tasks.prepare import made_up
from tff_fedemb.data import tfrecord_files


def _config(tmp_path, **options):
  return preparing.PreparationConfig(
    **{
      "task": "gld",
      "source_dir": os.fspath(tmp_path),
      "output_dir": os.fspath(tmp_path / "output"),
      **options,
    }
  )


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"task": "emnist"}, "^task must be one of .* found 'emnist'"),
    ({"source_dir": "/absent"}, "^source_dir must be .* found '/absent'"),
    ({"output_dir": __file__}, "^output_dir must be a folder"),
    ({"variant": "gld1k"}, "^variant must be one of gld160k, gld23k, found"),
  ],
)
def test_bad_option(tmp_path, options, message):
  with pytest.raises(ValueError, match=message):
    _config(tmp_path, **options)


def test_nothing_there(tmp_path):
  with pytest.raises(ValueError, match=r"iNaturalist_train\.csv"):
    preparing.execute(_config(tmp_path, task="inaturalist"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_disk_that_fails(tmp_path, monkeypatch, code):
  made_up.write_gld(tmp_path)

  def fail(path, records):
    del records  # Unused.
    raise OSError(code, os.strerror(code), os.fspath(path))

  with monkeypatch.context() as patch:
    patch.setattr(tfrecord_files, "write_records", fail)
    with pytest.raises(ValueError, match=f"{os.strerror(code)}.*train/17"):
      preparing.execute(_config(tmp_path))
    # A bug keeps its stack trace.
    patch.setattr(tfrecord_files, "write_records", None)
    with pytest.raises(TypeError):
      preparing.execute(_config(tmp_path))
  preparing.execute(_config(tmp_path))
  assert (tmp_path / "output" / "gld160k" / "test.tfRecord").exists()
