"""Tests of the pictures of utility against epsilon."""

import math

import numpy as np
import pytest

from tests.plots import drawn
from tff_fedemb.plots import figures
from tff_fedemb.plots import utility_plots


def curve(name="sgd", epsilons=(8.0, 0.5, math.inf), accuracies=(0.2, 0.4)):
  return {name: [figures.Measurement(accuracies, e) for e in epsilons]}


def figure_of(curves, **kwargs):
  options = {"delta": 1e-5, "caption": "Fitted to 100 examples."}
  options |= {"utility": "test accuracy"} | kwargs
  return drawn.figure_of(
    utility_plots.plot_measured_by_epsilon, {"Accuracy": curves}, **options
  )


def ticks_of(axes):
  return [label.get_text() for label in axes.get_xticklabels()]


def test_a_line_with_bars_and_no_noise_apart():
  figure = figure_of(curve(), level=("guessing", 0.1))
  (axes,) = figure.axes
  assert axes.get_xscale() == "log"
  assert axes.get_xlabel() == "ε (δ = 1e-5)"
  assert axes.get_title(loc="left") == "Accuracy"
  assert ticks_of(axes) == ["0.5", "8", "no noise"]
  container, noiseless = axes.containers
  # By ascending epsilon; a single curve stands where it belongs.
  np.testing.assert_allclose(drawn.values(container.lines[0], "x"), (0.5, 8.0))
  np.testing.assert_allclose(drawn.values(container.lines[0], "y"), (0.3, 0.3))
  bar = container.lines[2][0].get_segments()[0][:, 1]
  deviation = math.sqrt(0.02)
  np.testing.assert_allclose(bar, (0.3 - deviation, 0.3 + deviation))
  boundary, *_, level = (
    line for line in axes.lines if line.get_marker() in ("None", "")
  )
  assert (level.get_linestyle(), set(level.get_ydata())) == (":", {0.1})
  (place,) = drawn.values(noiseless.lines[0], "x")
  assert 8 < boundary.get_xdata()[0] < place
  assert drawn.legend_of(figure) == [
    *("method (2 seeds)", "sgd", " ", "for comparison", "guessing")
  ]
  drawn.assert_nothing_overlaps(figure)


def test_the_legend_counts_the_seeds_of_all_panels():
  panels = {"a": curve(accuracies=(0.2,)), "b": curve(accuracies=(0.2, 0.4))}
  figure = drawn.figure_of(
    utility_plots.plot_measured_by_epsilon,
    panels,
    delta=1e-5,
    caption="Fitted.",
    utility="test accuracy",
  )
  assert drawn.legend_of(figure)[0] == "method (1-2 seeds)"


def test_six_curves_stand_side_by_side():
  name = "least_squares:\ncovariance=per_class:\nbackground_weight="
  (points,) = curve().values()
  figure = figure_of({f"{name}{i}": points for i in range(6)})
  (axes,) = figure.axes
  first = [drawn.values(c.lines[0], "x")[0] for c in axes.containers]
  finite, noiseless = first[::2], first[1::2]
  for places in (finite, noiseless):
    assert places == sorted(set(places)) and len(places) == 6
  # All of them nearer to their own epsilon than a tenth of it.
  np.testing.assert_allclose(finite, 0.5, rtol=0.1)
  assert "for comparison" not in drawn.legend_of(figure)
  drawn.assert_nothing_overlaps(figure)


@pytest.mark.parametrize(
  "epsilons,ticks",
  [
    ((math.inf,), ["no noise"]),
    ((0.01, 1.0, 1.01, 1.02, 100.0), ["0.01", "1", "100"]),
  ],
)
def test_one_panel_and_ticks_that_fit(epsilons, ticks):
  curves = curve(epsilons=epsilons, accuracies=(0.5,))
  figure = figure_of(curves, repetition="fit")
  (axes,) = figure.axes
  assert ticks_of(axes) == ticks
  assert drawn.legend_of(figure)[0] == "method (1 fit)"
  drawn.assert_nothing_overlaps(figure)


def test_methods_of_other_epsilons_and_seeds():
  figure = figure_of(
    curve(epsilons=(1.0,)) | curve("b", (math.inf,), (0.1, 0.2, 0.3))
  )
  (axes,) = figure.axes
  assert len(axes.containers) == 2
  assert drawn.legend_of(figure)[0] == "method (2-3 seeds)"
  ends = figure_of(curve(accuracies=(0.0, 1.0))).axes[0].get_ylim()
  assert ends == pytest.approx((-0.05, 1.05))


NOISELESS = figures.Measurement((0.6, 0.8), math.inf)


def runs(name="fedemb, tree", factors=(10.0, 100.0)):
  points = [
    figures.Measurement((0.5, 0.6), 1e6, {f: 20 / f for f in factors}),
    figures.Measurement((0.2, 0.4), 1e4, {f: 2 / f for f in factors}),
  ]
  # A point without noise has no place on the axis.
  return {name: [*points, NOISELESS]}


def figure_of_runs(curves, untrained=0.1):
  return drawn.figure_of(
    utility_plots.plot_extrapolated_by_epsilon,
    curves,
    false_accept_rate=1e-3,
    caption="Task omniglot.",
    untrained=untrained,
  )


def test_a_line_for_each_factor_and_the_runs_themselves():
  figure = figure_of_runs(runs())
  extrapolated, as_run = figure.axes
  assert extrapolated.get_title(loc="left").startswith("Extrapolated")
  lines = [c.lines[0] for c in extrapolated.containers]
  # By ascending epsilon; the noisier runs have the smaller one.
  np.testing.assert_allclose(drawn.values(lines[0], "x"), (0.2, 2.0))
  np.testing.assert_allclose(drawn.values(lines[1], "x"), (0.02, 0.2))
  for line in lines:
    np.testing.assert_allclose(drawn.values(line, "y"), (0.3, 0.55))
  assert lines[0].get_linestyle() != lines[1].get_linestyle()
  points, noiseless = (c.lines[0] for c in as_run.containers)
  np.testing.assert_allclose(drawn.values(points, "x"), (1e4, 1e6))
  assert drawn.values(noiseless, "y") == pytest.approx(0.7)
  assert ticks_of(as_run)[-1] == "no noise"
  assert drawn.legend_of(figure) == [
    *("runs", "fedemb, tree\n(2 seeds)", " "),
    *("cohort and noise", "10 times", "100 times", " "),
    *("recall", "untrained"),
  ]
  # Levels leave the axis to the points.
  low, high = extrapolated.get_xlim()
  assert 0.005 < low < 0.02 and 2.0 < high < 8.0
  drawn.assert_nothing_overlaps(figure)


def test_six_curves_of_six_factors():
  (points,) = runs(factors=tuple(range(10, 16))).values()
  curves = {f"fedemb, blt\nclip_norm=0.{i}": points for i in range(6)}
  drawn.assert_nothing_overlaps(figure_of_runs(curves))


@pytest.mark.parametrize("recalls", [(0.004, 0.012, 0.02), (0.0,), (1.0, 1.0)])
def test_small_flat_and_single_utilities_can_be_read(recalls):
  """`drawn` checks it: labels differ, no point is cut off."""
  points = [
    figures.Measurement((recall,), 9.0 + i, {64.0: 0.1 + i})
    for i, recall in enumerate(recalls)
  ]
  curves = {"fedemb": points}
  for figure in (
    figure_of(curves, level=("untrained", recalls[0])),
    figure_of_runs(curves, recalls[0]),
  ):
    for label in drawn.ticks_of(figure.axes[0].yaxis):
      assert 0 <= float(label.get_text().rstrip("%")) <= 100


def test_epsilons_that_lie_close_keep_their_labels_apart():
  epsilons = (20.0, 100.0, 900.0)
  points = [figures.Measurement((0.5,), e, {64.0: e}) for e in epsilons]
  figure = figure_of_runs({"fedemb": points})
  assert len(drawn.ticks_of(figure.axes[1].xaxis)) > 1
  figure_of(curve(epsilons=(1.25, 1.47, 50.0), accuracies=(0.5,)))


def test_changes_beside_what_was_changed():
  better, worse = (
    figures.Measurement(values, math.inf) for values in ((0.75,), (0.0, 0.25))
  )
  long = "clip_norm=1, client_learning_rate=0.05, server_learning_rate=2"
  figure = drawn.figure_of(
    utility_plots.plot_changes,
    figures.Measurement((0.25, 0.5), math.inf),
    {"rounds=8": better, long: worse},
    utility="recall",
    caption="caption",
  )
  (axes,) = figure.axes
  labels = [label.get_text() for label in axes.get_yticklabels()]
  assert [label.replace("\n", " ") for label in labels] == ["rounds=8", long]
  # There is room for what came of it.
  assert axes.bbox.width > 0.5 * figure.bbox.width
  # The first one is on top.
  assert axes.yaxis_inverted()
  line, *_ = axes.lines
  assert list(line.get_xdata()) == [0.375, 0.375]
  points = [bar.lines[0] for bar in axes.containers]
  assert [list(point.get_xdata()) for point in points] == [[0.75], [0.125]]
  assert [list(point.get_ydata()) for point in points] == [[0], [1]]
  assert points[0].get_color() != points[1].get_color()
