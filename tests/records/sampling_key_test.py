"""Tests of the key that decides who takes part."""

import stat

import pytest

from tff_fedemb import errors
from tff_fedemb.records import sampling_key


def test_a_key_is_drawn_once_and_its_owners_alone(tmp_path):
  directory = tmp_path / "checkpoints"
  assert sampling_key.read(directory) is None
  key = sampling_key.read_or_create(directory, is_new=True)
  path = directory / sampling_key.NAME
  assert stat.S_IMODE(path.stat().st_mode) == 0o600
  assert stat.S_IMODE(directory.stat().st_mode) == 0o700
  assert [entry.name for entry in directory.iterdir()] == [sampling_key.NAME]
  assert int(path.read_text(), 16) == key
  for is_new in (True, False):
    assert sampling_key.read_or_create(directory, is_new=is_new) == key
  assert sampling_key.read(directory) == key


def test_keys_are_different_and_of_128_bits(tmp_path):
  keys = set()
  for run in range(20):
    directory = tmp_path / str(run)
    keys.add(sampling_key.read_or_create(directory, is_new=True))
  assert len(keys) == 20
  # With a chance of 1e-6 none of the keys has the highest bit.
  assert 2**127 < max(keys) < 2**128


def test_a_small_key_is_read_as_it_was_written(tmp_path, monkeypatch):
  monkeypatch.setattr(sampling_key.secrets, "randbits", lambda bits: bits)
  assert sampling_key.read_or_create(tmp_path, is_new=True) == 128
  assert sampling_key.read(tmp_path) == 128


def test_rounds_without_their_key_are_refused(tmp_path):
  with pytest.raises(errors.FieldError, match="run_dir must hold the key"):
    sampling_key.read_or_create(tmp_path, is_new=False)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "abc", "5" * 33, "g" * 32, "é" * 16])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path, text):
  (tmp_path / sampling_key.NAME).write_text(text)
  with pytest.raises(
    errors.FieldError, match="32 hexadecimal digits"
  ) as caught:
    sampling_key.read_or_create(tmp_path, is_new=True)
  assert not text or text not in str(caught.value)
