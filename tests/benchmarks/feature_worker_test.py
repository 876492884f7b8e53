"""Tests of what the processes of the benchmark of features fit."""

import numpy as np
import pytest

from benchmarks import feature_cases
from benchmarks import feature_worker


@pytest.mark.parametrize("name", feature_cases.METHODS)
def test_fits_case(tmp_path, name):
  case = f"{name}_300x8x5"
  path = str(tmp_path / "features.npz")
  feature_cases.write(path, feature_cases.Examples(300, 8, 5))
  reports = []
  for round_num in range(2):
    private = feature_worker.fit(case, path, round_num)
    assert private.coef_.shape == (5, 8)
    assert 0.9 < private.report_.epsilon <= feature_worker.EPSILON
    reports.append(private.report_)
  # Calibrated each time.
  assert reports[0].delta != reports[1].delta
  bare = feature_worker.fit_bare(case, path)
  assert bare.shape == (5, 8)
  assert np.isfinite(bare).all()
