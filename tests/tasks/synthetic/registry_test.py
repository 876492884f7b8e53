"""Tests of what all generators do alike: files kept and refused."""

import pytest

from tasks.synthetic import registry
from tests.tasks.prepare import made_up
from tff_fedemb import errors

_NAMES = {
  "digiface": ["0"],
  "emnist": ["emnist_all.sqlite"],
  "emnist_compact": ["emnist_all.sqlite"],
  "gld": ["gld160k", "gld23k"],
  "inaturalist": ["user_120k"],
  "omniglot": ["omniglot_background_28.npz"],
  "photos": ["person_0000"],
  "photos_match": ["gallery", "query"],
  "photos_shared": ["user_0000"],
  "photos_start": ["person_00000"],
}


def _contents(folder):
  """Contents of the files that hold data, by their names."""
  files = made_up.read_files(folder)
  return {name: files[name] for name in files if "generator" not in name}


def _write(task, directory, **changes):
  arguments = dict(num_users=1, seed=3) | changes
  return registry.WRITERS[task](directory, **arguments)


def test_every_generator_is_tested():
  assert set(_NAMES) == set(registry.WRITERS)


# Task emnist draws what emnist_compact draws.
@pytest.mark.parametrize("task", sorted(_NAMES.keys() - {"emnist"}))
def test_the_seed_makes_the_bytes(task, tmp_path):
  directory = tmp_path / "first"
  _write(task, directory)
  names = [path.name for path in directory.iterdir()]
  assert sorted(names) == [".generator.json", *_NAMES[task]]
  _write(task, tmp_path / "same")
  assert _contents(tmp_path / "same") == _contents(directory)
  _write(task, tmp_path / "other", seed=4)
  other = _contents(tmp_path / "other")
  assert not set(other.values()) & set(_contents(directory).values())


@pytest.mark.parametrize(
  ("task", "arguments"),
  [
    ("omniglot", {"seed": -1}),
    ("emnist", {"examples_per_user": 15}),
    ("digiface", {"num_users": 100_001}),
  ],
)
def test_arguments_out_of_range_are_refused(task, arguments, tmp_path):
  (name,) = arguments
  with pytest.raises(
    errors.FieldError, match=rf"{name} must be a.*\d, found -?\d"
  ):
    _write(task, tmp_path / "new", **arguments)
  assert not list(tmp_path.iterdir())
