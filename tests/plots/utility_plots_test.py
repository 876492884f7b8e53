"""Tests of the picture of utility against epsilon."""

import math

import numpy as np
import pytest

from tests.plots import drawn
from tff_fedemb.plots import figures
from tff_fedemb.plots import utility_plots

NOISELESS = figures.Measurement((0.6, 0.8), math.inf)


def curve(name="fedemb, tree", noiseless=None, factors=(10.0, 100.0)):
  measurements = (
    utility_plots.UtilityMeasurement(
      (0.5, 0.6), 1e6, {f: 20 / f for f in factors}
    ),
    utility_plots.UtilityMeasurement(
      (0.2, 0.4), 1e4, {f: 2 / f for f in factors}
    ),
  )
  algorithm = name.split(",")[0]
  return utility_plots.UtilityCurve(name, algorithm, measurements, noiseless)


def figure_of(curves, **kwargs):
  return drawn.figure_of(
    utility_plots.plot_utility_by_epsilon,
    curves,
    false_accept_rate=1e-3,
    caption="Task omniglot.",
    **kwargs,
  )


def test_a_line_for_each_factor_and_the_runs_themselves():
  figure = figure_of([curve()], untrained=0.1)
  extrapolated, as_run = figure.axes
  assert extrapolated.get_title(loc="left").startswith("Extrapolated")
  lines = [c.lines[0] for c in extrapolated.containers]
  # By ascending epsilon; the noisier runs have the smaller one.
  np.testing.assert_allclose(drawn.values(lines[0], "x"), (0.2, 2.0))
  np.testing.assert_allclose(drawn.values(lines[1], "x"), (0.02, 0.2))
  for line in lines:
    np.testing.assert_allclose(drawn.values(line, "y"), (0.3, 0.55))
  assert lines[0].get_linestyle() != lines[1].get_linestyle()
  (points,) = (c.lines[0] for c in as_run.containers)
  np.testing.assert_allclose(drawn.values(points, "x"), (1e4, 1e6))
  assert points.get_linestyle() == "None"
  assert drawn.legend_of(figure) == [
    "runs",
    "fedemb, tree\n(2 seeds)",
    " ",
    "cohort and noise",
    "10 times",
    "100 times",
    " ",
    "recall",
    "untrained",
  ]
  drawn.assert_nothing_overlaps(figure)


def test_drop_below_the_run_without_noise():
  curves = [curve(noiseless=NOISELESS), curve("fedavg, blt")]
  figure = figure_of(curves, untrained=0.1)
  assert len(figure.axes) == 4
  # Levels without an epsilon leave the axis to the points.
  low, high = figure.axes[0].get_xlim()
  assert 0.005 < low < 0.02 and 2.0 < high < 8.0
  drop = figure.axes[2]
  # fedavg was not run without noise.
  assert len(drop.containers) == 2
  line = drop.containers[0].lines[0]
  np.testing.assert_allclose(drawn.values(line, "y"), (40.0, 15.0))
  bars = drop.containers[0].lines[2][0].get_segments()
  # Variances 2 x 0.1^2 of both, in percentage points.
  assert bars[0][:, 1] == pytest.approx([40 - 20, 40 + 20])
  assert "fedemb,\nwithout noise" in drawn.legend_of(figure)
  drawn.assert_nothing_overlaps(figure)


def test_six_curves_of_six_factors():
  curves = [
    curve(f"fedemb, blt\nclip_norm=0.{i}", factors=tuple(range(10, 16)))
    for i in range(6)
  ]
  drawn.assert_nothing_overlaps(figure_of(curves))


def test_number_of_curves_and_factors(tmp_path):
  for curves, message in (
    ([], "curves must be 1 to 6, found 0"),
    ([curve(factors=range(1, 8))], "cohort factors must be 1 to 6, found 7"),
  ):
    with pytest.raises(ValueError, match=message):
      utility_plots.plot_utility_by_epsilon(
        tmp_path / "a.png", curves, false_accept_rate=1e-3, caption=""
      )
  assert not list(tmp_path.iterdir())
