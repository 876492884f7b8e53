"""Tests of the registry of tasks, and of what every task must be."""

import pathlib

import pytest

from tasks import registry
from tasks import task as task_lib
from tasks.synthetic import registry as synthetic


def test_every_task_file_is_registered():
  """A file of a task is one that has a function to create it."""
  files = pathlib.Path(registry.__file__).parent.glob("[!_]*.py")
  names = {
    path.stem
    for path in files
    if f"\ndef create_{path.stem}_task(" in path.read_text()
  }
  assert names == set(registry.TASKS)


def test_unknown_task_is_refused():
  with pytest.raises(ValueError, match=r"task must be one of .* found 'mnist'"):
    registry.create_task("mnist", task_lib.TaskConfig())


# Handwriting has no files.
@pytest.mark.parametrize("name", sorted({*registry.TASKS} - {"handwriting"}))
def test_missing_data_are_said_in_one_line(name, tmp_path):
  config = task_lib.TaskConfig(str(tmp_path / "missing"), str(tmp_path / "c"))
  with pytest.raises(ValueError, match="data_dir") as error:
    registry.create_task(name, config)
  generator = name if name in synthetic.WRITERS else "emnist"
  assert f"python -m tasks.synthetic --task={generator}" in str(error.value)
  assert str(tmp_path / "missing") in str(error.value)
  assert "\n" not in str(error.value)
  assert not list(tmp_path.iterdir())
