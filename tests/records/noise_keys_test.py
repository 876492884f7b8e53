"""Tests of the keys that correlated noise goes on with."""

import stat

import pytest

from tff_fedemb import errors
from tff_fedemb.records import noise_keys


def test_rounds_that_ran_have_their_keys_and_others_new_ones(tmp_path):
  keys = noise_keys.NoiseKeys(tmp_path)
  assert keys.for_round(1, has_run=True) is None
  first = keys.for_round(3, has_run=False)
  # The first attempt may have released its model.
  second = keys.for_round(3, has_run=False)
  assert first != second
  # The key is in the state now.
  assert keys.for_round(4, has_run=False) is None
  again = noise_keys.NoiseKeys(tmp_path)
  assert again.for_round(3, has_run=True) == second
  assert again.for_round(4, has_run=True) is None
  third = again.for_round(5, has_run=False)
  # In a copy, round 3 has not run.
  copy = noise_keys.NoiseKeys(tmp_path)
  assert copy.for_round(3, has_run=False) not in (first, second, third, None)
  assert noise_keys.NoiseKeys(tmp_path).for_round(5, has_run=True) is None
  (path,) = tmp_path.iterdir()
  assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "[]", '{"1": [3]}', '{"1": "ab"}', "{1"])
def test_a_damaged_file_is_refused_and_not_shown(tmp_path, text):
  path = tmp_path / noise_keys.NAME
  path.write_text(text)
  with pytest.raises(
    errors.FieldError, match=r"run_dir must hold the keys .* cannot be read"
  ) as error:
    noise_keys.NoiseKeys(tmp_path)
  assert "\n" not in str(error.value)
