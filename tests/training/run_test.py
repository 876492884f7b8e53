"""Tests of what a run checks first."""

import pytest

from tests.training import tiny_specs
import tff_fedemb as fe
from tff_fedemb.records import sampling_key


def test_a_run_that_could_not_begin_holds_no_lock(tmp_path, monkeypatch):
  """Whoever keeps the error, such as a notebook, may try again."""
  monkeypatch.setattr(sampling_key, "read_or_create", lambda *_, is_new: 1 / 0)
  kept = []
  for _ in range(2):
    with pytest.raises(ZeroDivisionError) as error:
      fe.train(tiny_specs.create(), run_dir=tmp_path / "run")
    kept.append(error)
