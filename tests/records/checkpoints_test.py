"""Tests of checkpoints: round trip, order, and damage."""

import resource
import stat

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb.records import checkpoints

_STRUCTURE = {"weights": (np.zeros(2), np.int32(0)), "ledger": ""}


def _state(number):
  return {
    "weights": (np.array([number, -1.5]), np.int32(number)),
    "ledger": f"round {number}",
  }


def _check(found, number):
  state, rounds_done = found
  assert rounds_done == number
  np.testing.assert_array_equal(state["weights"][0], [number, -1.5])
  assert state["weights"][1] == number
  assert state["ledger"] in (f"round {number}", f"round {number}".encode())


@pytest.fixture(name="saved", scope="module")
def _saved(tmp_path_factory):
  directory = tmp_path_factory.mktemp("checkpoints")
  manager = checkpoints.Checkpoints(directory)
  assert manager.load_latest(_STRUCTURE) is None
  # Saving twice does no harm.
  for number in (0, 2, 10, 11, 11):
    manager.save(_state(number), number)
  return directory


def _damage(directory, version):
  variables = directory / f"round_{version}" / "variables"
  for path in variables.iterdir():
    path.write_bytes(b"damaged")


def test_newest_is_loaded_old_ones_are_dropped(saved):
  _check(checkpoints.Checkpoints(saved).load_latest(_STRUCTURE), 11)
  assert {path.name for path in saved.iterdir()} == {
    "round_2",
    "round_10",
    "round_11",
  }


def test_damaged_ones_are_skipped_with_a_warning_and_kept(saved):
  (saved / "round_12_temp1234").mkdir()
  _damage(saved, 11)
  (saved / "round_10" / "saved_model.pb").unlink()
  lines = []
  manager = checkpoints.Checkpoints(saved, warn=lines.append)
  assert not (saved / "round_12_temp1234").exists()
  _check(manager.load_latest(_STRUCTURE), 2)
  assert len(lines) == 2
  assert "round_11 cannot be read" in lines[0]
  assert "round_10 cannot be read" in lines[1]
  assert (saved / "unreadable_round_11").is_dir()
  # Their numbers are free again.
  manager.save(_state(10), 10)
  _check(manager.load_latest(_STRUCTURE), 10)


def test_run_is_not_started_again_when_none_can_be_read(tmp_path):
  manager = checkpoints.Checkpoints(tmp_path)
  manager.save(_state(0), 0)
  manager.save(_state(5), 5)
  for version in (0, 5):
    (tmp_path / f"round_{version}" / "saved_model.pb").unlink()
  with pytest.raises(errors.FieldError, match="found none among 2"):
    manager.load_latest(_STRUCTURE)
  assert sorted(p.name for p in tmp_path.iterdir()) == ["round_0", "round_5"]


@pytest.mark.parametrize(
  ("shape", "is_read"),
  [
    ((1, 5), True),
    # The buffers of a tree that has grown.
    ((4, 5), True),
    # The noise was made in another way.
    ((4, 6), False),
    ((5,), False),
  ],
)
def test_an_array_may_have_grown_since_the_run_began(tmp_path, shape, is_read):
  manager = checkpoints.Checkpoints(tmp_path)
  manager.save({"buffers": np.ones(shape), "round": np.int32(3)}, 3)
  structure = {"buffers": np.zeros((1, 5)), "round": np.int32(0)}
  if is_read:
    found, _ = manager.load_latest(structure)
    assert found["buffers"].shape == shape
  else:
    with pytest.raises(
      errors.FieldError, match=r"can read, found none .* shape \(.*\) where"
    ):
      manager.load_latest(structure)


def test_a_file_that_may_not_grow_is_one_line(tmp_path):
  manager = checkpoints.Checkpoints(tmp_path)
  manager.save(_state(0), 0)
  unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (50, unlimited[1]))
  try:
    with pytest.raises(
      errors.StorageError, match=r"cannot be written to: [\d,]+ bytes are free"
    ) as error:
      manager.save(_state(1), 1)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
  assert str(error.value).startswith(str(tmp_path))
  assert "\n" not in str(error.value)
  manager = checkpoints.Checkpoints(tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ["round_0"]
  manager.save(_state(1), 1)
  _check(manager.load_latest(_STRUCTURE), 1)


@pytest.mark.parametrize(
  ("num_that_fit", "kept"), [(3, {8, 9, 10}), (2, {9, 10}), (1, {2})]
)
def test_an_old_one_makes_room_on_a_full_disk(
  tmp_path, monkeypatch, num_that_fit, kept
):
  manager = checkpoints.Checkpoints(tmp_path)
  save = tff.program.FileProgramStateManager.save

  async def save_if_it_fits(self, *arguments):
    if len(list(tmp_path.iterdir())) >= num_that_fit:
      (tmp_path / "round_99_temp1").mkdir()
      raise tf.errors.ResourceExhaustedError(None, None, "No space left")
    await save(self, *arguments)

  manager.save(_state(2), 2)
  monkeypatch.setattr(
    tff.program.FileProgramStateManager, "save", save_if_it_fits
  )
  for number in (8, 9, 10):
    if num_that_fit > 1:
      manager.save(_state(number), number)
    else:
      # The last one stays, whatever happens.
      with pytest.raises(errors.StorageError):
        manager.save(_state(number), number)
  assert {path.name for path in tmp_path.iterdir()} == {
    f"round_{number}" for number in kept
  }


@pytest.mark.parametrize(
  "error",
  [
    PermissionError(13, "Permission denied"),
    tf.errors.PermissionDeniedError(None, None, "Permission denied"),
  ],
)
def test_old_ones_stay_where_room_is_not_what_is_missing(
  tmp_path, monkeypatch, error
):
  manager = checkpoints.Checkpoints(tmp_path)
  for number in (1, 2, 3):
    manager.save(_state(number), number)

  async def fail(self, *arguments):
    raise error

  monkeypatch.setattr(tff.program.FileProgramStateManager, "save", fail)
  with pytest.raises(
    errors.DataError, match=r"to: .*Permission denied"
  ) as found:
    manager.save(_state(4), 4)
  assert not isinstance(found.value, errors.StorageError)
  assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("is_there", [False, True])
def test_old_ones_make_room_for_what_comes_first(tmp_path, is_there):
  manager = checkpoints.Checkpoints(tmp_path)
  for number in (2, 8, 9):
    manager.save(_state(number), number)
  last = 9 if is_there else 10
  tried = []

  def write_if_it_fits():
    tried.append(sorted(path.name for path in tmp_path.iterdir()))
    if len(tried[-1]) > 2:
      raise errors.StorageError("No space left")

  manager.save(_state(last), last, first=write_if_it_fits)
  assert tried == [["round_2", "round_8", "round_9"], ["round_8", "round_9"]]
  _check(manager.load_latest(_STRUCTURE), last)

  def fail():
    raise errors.StorageError("No space left")

  with pytest.raises(errors.StorageError):
    manager.save(_state(11), 11, first=fail)
  # The newest one stays, whatever happens.
  assert [path.name for path in tmp_path.iterdir()] == [f"round_{last}"]


def test_a_directory_that_others_could_read_is_made_private(tmp_path):
  (tmp_path / "checkpoints").mkdir(mode=0o755)
  checkpoints.Checkpoints(tmp_path / "checkpoints")
  mode = (tmp_path / "checkpoints").stat().st_mode
  assert stat.S_IMODE(mode) == 0o700
