"""Tests of what all pictures have in common."""

import math
import subprocess
import sys

import matplotlib
import pytest

from tff_fedemb.plots import figures
from tff_fedemb.plots import utility_plots


def test_mean_and_deviation_over_seeds():
  measured = figures.Measurement((0.2, 0.4), 1.0)
  assert measured.mean == pytest.approx(0.3)
  # Both are 0.1 from the mean: the variance is 0.02 / (2 - 1).
  assert measured.stdev == pytest.approx(math.sqrt(0.02))
  assert figures.Measurement((0.2,), 1.0).stdev == 0


@pytest.mark.parametrize(
  "counts,words", [((1, 1), "1 fit"), ((2, 2), "2 fits"), ((3, 1), "1-3 fits")]
)
def test_seeds_in_words(counts, words):
  measured = [figures.Measurement((0.5,) * count, 1.0) for count in counts]
  assert figures.count_seeds(measured, "fit") == words


@pytest.mark.slow
def test_same_data_same_file_and_settings_and_backend_left_alone(tmp_path):
  before = dict(matplotlib.rcParams)
  paths = [tmp_path / name for name in ("a.png", "b.png")]
  for path in paths:
    changed = figures.Measurement((0.2, 0.4), 1.0)
    utility_plots.plot_changes(
      path, changed, {"a": changed}, utility="recall", caption="costs $1"
    )
  content = paths[0].read_bytes()
  assert content == paths[1].read_bytes()
  assert content.startswith(b"\x89PNG")
  assert dict(matplotlib.rcParams) == before
  code = (
    "import sys; from tff_fedemb.plots import training_plots, "
    "utility_plots; sys.exit('matplotlib.pyplot' in sys.modules)"
  )
  subprocess.run([sys.executable, "-c", code], check=True)
