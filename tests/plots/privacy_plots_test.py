"""Tests of the pictures of epsilon against users and rounds."""

import math
from unittest import mock
import warnings

from matplotlib.backends import backend_agg
import numpy as np
from PIL import Image
import pytest

from tff_fedemb.plots import figures
from tff_fedemb.plots import privacy_plots

X = (100.0, 1000.0, 10_000.0)


def curve(noise_multiplier=1.0, **changes):
  values = {
    "x": X,
    "epsilons": (8.0, 4.0, 2.0),
    "tighter_x": (1000.0, 10_000.0),
    "tighter_epsilons": (3.0, 1.5),
    "virtual_client_epsilons": (3.5, 1.75, 0.9),
  }
  return privacy_plots.EpsilonCurve(noise_multiplier, **(values | changes))


@pytest.fixture(autouse=True)
def _warnings_are_flaws():
  with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)
    yield


def figure_of(plot, *args, **kwargs):
  """Returns the figure that a function would write."""
  with mock.patch.object(figures, "write") as write:
    plot("unused.png", *args, **kwargs)
  (figure, _), _ = write.call_args
  backend_agg.FigureCanvasAgg(figure).draw()
  return figure


def legend_of(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def assert_nothing_overlaps(figure):
  """The legend, the panels and the text below lie inside, side by side."""
  renderer = figure.canvas.get_renderer()
  boxes = [figure.legends[0].get_window_extent(renderer)]
  boxes += [axes.get_window_extent(renderer) for axes in figure.axes]
  boxes.append(figure._supxlabel.get_window_extent(renderer))
  for index, box in enumerate(boxes):
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
    assert not any(box.overlaps(other) for other in boxes[:index])


def test_users_draw_each_reading_and_accountant():
  figure = figure_of(
    privacy_plots.plot_epsilon_by_users,
    [curve(), curve(0.5)],
    delta=1e-3,
    caption="800 rounds",
    tighter_accountant="PLD",
    num_users=1000,
  )
  (axes,) = figure.axes
  assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
  solid, dashed, dotted = axes.lines[:3]
  np.testing.assert_array_equal(solid.get_ydata(), (8.0, 4.0, 2.0))
  np.testing.assert_array_equal(dashed.get_ydata(), (3.5, 1.75, 0.9))
  np.testing.assert_array_equal(dotted.get_xdata(), (1000.0, 10_000.0))
  np.testing.assert_array_equal(dotted.get_ydata(), (3.0, 1.5))
  assert [line.get_linestyle() for line in axes.lines[:3]] == ["-", "--", ":"]
  assert dashed.get_linewidth() < solid.get_linewidth()
  assert legend_of(figure) == [
    "noise multiplier",
    "z = 1",
    "z = 0.5",
    " ",
    "how to read it",
    "user-level, RDP",
    "user-level, PLD",
    "Δ = C, RDP\n(not user-level)",
    "δ too large: δ ≥ 1 / N",
    "N = 1,000",
  ]
  assert axes.get_ylabel() == "ε (δ = 0.001)"
  assert_nothing_overlaps(figure)


def test_what_is_not_there_is_not_in_the_legend():
  figure = figure_of(
    privacy_plots.plot_epsilon_by_users,
    [curve(tighter_x=(), tighter_epsilons=(), virtual_client_epsilons=())],
    delta=1e-6,
    caption="",
  )
  assert legend_of(figure)[-1] == "user-level, RDP"
  assert len(figure.axes[0].lines) == 1
  # No population here is too large for delta: nothing is shaded.
  assert not figure.axes[0].patches


@pytest.mark.parametrize("delta,start", [(1e-3, 1000.0), (0.1, 100 / 1.12)])
def test_shades_where_delta_is_too_large(delta, start):
  figure = figure_of(
    privacy_plots.plot_epsilon_by_users, [curve()], delta=delta, caption=""
  )
  (patch,) = figure.axes[0].patches
  assert patch.get_extents().transformed(
    figure.axes[0].transData.inverted()
  ).x0 == pytest.approx(start)


def test_rounds():
  figure = figure_of(
    privacy_plots.plot_epsilon_by_rounds,
    [curve()],
    delta=1e-7,
    caption="of 10 users",
    tighter_accountant="exact Gaussian",
  )
  (axes,) = figure.axes
  assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
  assert "user-level, exact Gaussian" in legend_of(figure)
  assert_nothing_overlaps(figure)


@pytest.mark.parametrize(
  "epsilons",
  [
    (math.inf, 4.0, 2.0),
    (0.0, 0.0, 1.0),
    (math.inf,) * 3,
    (1e-7, 1.0, 1e9),
    (1.0, 1.0, 1.0),
  ],
)
def test_any_epsilons(tmp_path, epsilons):
  path = tmp_path / "picture.png"
  privacy_plots.plot_epsilon_by_users(
    path,
    [curve(epsilons=epsilons, tighter_x=(), tighter_epsilons=())],
    delta=1e-7,
    caption="costs $1 or $2",
  )
  with Image.open(path) as image:
    assert image.format == "PNG"


@pytest.mark.parametrize("count", [0, 7])
def test_number_of_curves(tmp_path, count):
  with pytest.raises(ValueError, match=f"curves must be 1 to 6, found {count}"):
    privacy_plots.plot_epsilon_by_rounds(
      tmp_path / "a.png", [curve()] * count, delta=1e-7, caption=""
    )
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  "name", ["epsilons", "tighter_epsilons", "virtual_client_epsilons"]
)
def test_series_of_other_length(name):
  with pytest.raises(ValueError, match=rf"{name} must be \d values.*found 1$"):
    curve(**{name: (1.0,)})
