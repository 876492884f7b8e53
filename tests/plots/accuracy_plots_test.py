"""Tests of the picture of accuracy against epsilon."""

import math

import numpy as np
from PIL import Image
import pytest

from tests.evaluation import privacy_plots_test
from tests.evaluation import utility_plots_test
from tff_fedemb.plots import accuracy_plots

values = utility_plots_test.values


def curve(name="sgd", epsilons=(8.0, 0.5, math.inf), accuracies=(0.2, 0.4)):
  return accuracy_plots.AccuracyCurve(
    name,
    tuple(accuracy_plots.AccuracyPoint(e, accuracies) for e in epsilons),
  )


def figure_of(curves, **kwargs):
  options = {"delta": 1e-5, "caption": "Fitted to 100 examples."}
  return privacy_plots_test.figure_of(
    accuracy_plots.plot_accuracy_by_epsilon, curves, **(options | kwargs)
  )


def ticks_of(axes):
  return [label.get_text() for label in axes.get_xticklabels()]


def test_mean_and_deviation_over_seeds():
  point = accuracy_plots.AccuracyPoint(1.0, (0.2, 0.4))
  assert point.mean == pytest.approx(0.3)
  # Both are 0.1 from the mean: the variance is 0.02 / (2 - 1).
  assert point.stdev == pytest.approx(math.sqrt(0.02))
  assert accuracy_plots.AccuracyPoint(1.0, (0.2,)).stdev == 0
  with pytest.raises(ValueError, match="at least one seed, found none"):
    accuracy_plots.AccuracyPoint(1.0, ())
  for epsilon in (0.0, -1.0, math.nan):
    with pytest.raises(ValueError, match="epsilon must be positive, found"):
      accuracy_plots.AccuracyPoint(epsilon, (0.5,))
  for accuracy in (-0.1, 1.1, math.nan):
    with pytest.raises(ValueError, match=r"accuracies must be in \[0, 1\]"):
      accuracy_plots.AccuracyPoint(1.0, (0.5, accuracy))


def test_a_curve_has_points():
  with pytest.raises(ValueError, match="at least one, found none of 'sgd'"):
    curve(epsilons=())


@pytest.mark.parametrize(
  "accuracies,words", [((0.5,), "1 fit"), ((0.5, 0.25), "2 fits")]
)
def test_the_legend_counts_what_the_caller_says(accuracies, words):
  figure = figure_of([curve(accuracies=accuracies)], repetition="fit")
  assert privacy_plots_test.legend_of(figure)[0] == f"method ({words})"


def test_a_line_with_bars_and_no_noise_apart():
  figure = figure_of([curve()], chance=0.1)
  finite, noiseless = figure.axes
  assert finite.get_xscale() == "log"
  assert finite.get_xlabel() == "ε (δ = 1e-5)"
  assert finite.get_title(loc="left") == "Accuracy against epsilon"
  assert ticks_of(finite) == ["0.5", "8"]
  assert ticks_of(noiseless) == ["no noise"]
  (container,) = finite.containers
  # By ascending epsilon; a single curve stands where it belongs.
  np.testing.assert_allclose(values(container.lines[0], "x"), (0.5, 8.0))
  np.testing.assert_allclose(values(container.lines[0], "y"), (0.3, 0.3))
  bar = container.lines[2][0].get_segments()[0][:, 1]
  deviation = math.sqrt(0.02)
  np.testing.assert_allclose(bar, (0.3 - deviation, 0.3 + deviation))
  assert len(noiseless.containers) == 1
  for axes in figure.axes:
    assert any(
      line.get_linestyle() == ":" and set(line.get_ydata()) == {0.1}
      for line in axes.lines
    )
  assert privacy_plots_test.legend_of(figure) == [
    "method (2 seeds)",
    "sgd",
    " ",
    "for comparison",
    "guessing",
  ]
  privacy_plots_test.assert_nothing_overlaps(figure)


def test_six_curves_stand_side_by_side():
  name = "least_squares:\ncovariance=per_class:\nbackground_weight="
  figure = figure_of([curve(f"{name}{i}") for i in range(6)])
  finite, noiseless = figure.axes
  for axes in (finite, noiseless):
    first = [values(c.lines[0], "x")[0] for c in axes.containers]
    assert first == sorted(set(first)) and len(first) == 6
  # All of them nearer to their own epsilon than a tenth of it.
  np.testing.assert_allclose(
    [values(c.lines[0], "x")[0] for c in finite.containers], 0.5, rtol=0.1
  )
  assert "for comparison" not in privacy_plots_test.legend_of(figure)
  privacy_plots_test.assert_nothing_overlaps(figure)


@pytest.mark.parametrize(
  "epsilons,ticks",
  [
    ((1.0,), ["1"]),
    ((math.inf,), ["no noise"]),
    ((0.01, 1.0, 1.01, 1.02, 100.0), ["0.01", "1", "100"]),
  ],
)
def test_one_panel_and_ticks_that_fit(epsilons, ticks):
  figure = figure_of([curve(epsilons=epsilons, accuracies=(0.5,))])
  (axes,) = figure.axes
  assert ticks_of(axes) == ticks
  assert privacy_plots_test.legend_of(figure)[0] == "method (1 seed)"
  privacy_plots_test.assert_nothing_overlaps(figure)


def test_methods_of_other_epsilons_and_seeds():
  figure = figure_of(
    [curve(epsilons=(1.0,)), curve("b", (math.inf,), (0.1, 0.2, 0.3))]
  )
  assert [len(axes.containers) for axes in figure.axes] == [1, 1]
  assert privacy_plots_test.legend_of(figure)[0] == "method (2-3 seeds)"


def test_accuracies_end_at_zero_and_one():
  figure = figure_of([curve(accuracies=(0.0, 1.0))])
  assert figure.axes[0].get_ylim() == (0.0, 1.02)


def test_writes_a_file_of_no_noise_and_no_delta(tmp_path):
  path = tmp_path / "picture.png"
  accuracy_plots.plot_accuracy_by_epsilon(
    path, [curve(epsilons=(math.inf,))], delta=None, caption="$1 or $2"
  )
  with Image.open(path) as image:
    assert image.format == "PNG"


@pytest.mark.parametrize("count", [0, 7])
def test_number_of_curves(tmp_path, count):
  with pytest.raises(ValueError, match=f"curves must be 1 to 6, found {count}"):
    accuracy_plots.plot_accuracy_by_epsilon(
      tmp_path / "a.png", [curve()] * count, delta=1e-5, caption=""
    )
  assert not list(tmp_path.iterdir())
