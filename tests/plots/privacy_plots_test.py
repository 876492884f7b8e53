"""Tests of the pictures of epsilon against users and rounds."""

import math

import numpy as np
import pandas as pd
from PIL import Image
import pytest

from tests.plots import drawn
from tff_fedemb.plots import privacy_plots

# x and epsilons by reading.
READINGS = {
  "user_level": ((100.0, 1000.0, 10_000.0), (8.0, 4.0, 2.0)),
  "tighter": ((1000.0, 10_000.0), (3.0, 1.5)),
  "virtual_client": ((100.0, 1000.0, 10_000.0), (3.5, 1.75, 0.9)),
}


def points(*noise_multipliers, readings=READINGS):
  return pd.DataFrame(
    [
      (noise_multiplier, reading, *pair)
      for noise_multiplier in noise_multipliers
      for reading, pairs in readings.items()
      for pair in zip(*pairs, strict=True)
    ],
    columns=["noise_multiplier", "reading", "x", "epsilon"],
  )


def only(*epsilons):
  """Points of the user-level reading alone."""
  x, _ = READINGS["user_level"]
  return points(1.0, readings={"user_level": (x, epsilons)})


def figure_of(table, by="users", caption="", **options):
  return drawn.figure_of(
    privacy_plots.plot_epsilon, table, by=by, caption=caption, **options
  )


def test_users_draw_each_reading_and_accountant():
  figure = figure_of(
    points(1.0, 0.5),
    delta=1e-3,
    tighter_accountant="PLD",
    caption="800 rounds",
    num_users=1000,
  )
  (axes,) = figure.axes
  assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
  solid, dotted, dashed = axes.lines[:3]
  np.testing.assert_array_equal(solid.get_ydata(), (8.0, 4.0, 2.0))
  np.testing.assert_array_equal(dashed.get_ydata(), (3.5, 1.75, 0.9))
  np.testing.assert_array_equal(dotted.get_xdata(), (1000.0, 10_000.0))
  np.testing.assert_array_equal(dotted.get_ydata(), (3.0, 1.5))
  assert [line.get_linestyle() for line in axes.lines[:3]] == ["-", ":", "--"]
  assert dashed.get_linewidth() < solid.get_linewidth()
  assert drawn.legend_of(figure) == [
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
  drawn.assert_nothing_overlaps(figure)


def test_what_is_not_there_is_not_in_the_legend():
  figure = figure_of(only(8.0, 4.0, 2.0), delta=1e-6)
  assert drawn.legend_of(figure)[-1] == "user-level, RDP"
  assert len(figure.axes[0].lines) == 1
  # No population here is too large for delta: nothing is shaded.
  assert not figure.axes[0].patches


@pytest.mark.parametrize("delta,start", [(1e-3, 1000.0), (0.1, 100 / 1.12)])
def test_shades_where_delta_is_too_large(delta, start):
  figure = figure_of(points(1.0), delta=delta)
  (patch,) = figure.axes[0].patches
  assert patch.get_extents().transformed(
    figure.axes[0].transData.inverted()
  ).x0 == pytest.approx(start)


def test_rounds():
  figure = figure_of(
    points(1.0),
    by="rounds",
    delta=1e-7,
    tighter_accountant="exact Gaussian",
    caption="of 10 users",
  )
  (axes,) = figure.axes
  assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
  assert "user-level, exact Gaussian" in drawn.legend_of(figure)
  drawn.assert_nothing_overlaps(figure)


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
  privacy_plots.plot_epsilon(
    path, only(*epsilons), by="users", delta=1e-7, caption="costs $1 or $2"
  )
  with Image.open(path) as image:
    assert image.format == "PNG"


def test_errors_are_relative_to_the_least():
  figure = drawn.figure_of(
    privacy_plots.plot_errors,
    {
      "independent,\npoisson": (2.0, 1.0, 0.9),
      "banded,\ncyclic_poisson": (2.5, 0.8, 0.5),
      "far": (20.0, 10.0, 9.0),
    },
    (0.5, 2.0, 8.0),
    sizes_by_label={"banded,\ncyclic_poisson": (2, 4, 16)},
    target_epsilon=2.0,
    delta=1e-6,
    caption="of 10 users",
  )
  (axes,) = figure.axes
  independent, banded = axes.lines[:2]
  np.testing.assert_allclose(independent.get_ydata(), (1.0, 1.25, 1.8))
  np.testing.assert_allclose(banded.get_ydata(), (1.25, 1.0, 1.0))
  assert [text.get_text() for text in axes.texts] == ["2", "4", "16"]
  legend = drawn.legend_of(figure)
  assert "far\n(above 10 times)" in legend
  assert "target: ε = 2" in legend
  drawn.assert_nothing_overlaps(figure)


@pytest.mark.parametrize("users", [(1000.0,), (900.0, 1100.0), (100.0, 1000.0)])
def test_few_users_have_labels(users):
  table = points(1.0, readings={"user_level": (users, (4.0,) * len(users))})
  (axes,) = figure_of(table, delta=1e-6).axes
  assert len(drawn.ticks_of(axes.xaxis)) > 1


def test_a_single_round_and_no_epsilon_are_shown():
  table = points(1.0, readings={"user_level": ((1.0,), (4.0,))})
  (axes,) = figure_of(table, by="rounds", delta=1e-6).axes
  assert axes.lines[0].get_marker() not in ("", "None")
  figure = figure_of(only(*[math.inf] * 3), by="rounds", delta=1e-6)
  assert "z = 1: ε = ∞" in drawn.legend_of(figure)


@pytest.mark.parametrize("claimed", [[0.0], [3.0], [math.inf]])
def test_an_audit_of_one_round(claimed):
  figure = drawn.figure_of(
    privacy_plots.plot_audit,
    [1],
    claimed,
    {"final_model": [0.0]},
    rates={
      "allowed": [0.1, 0.5, 1.0],
      "final_model": [0.0, 0.5, 1.0],
    },
    false_positive_rates=[0.001, 0.01, 1.0],
    delta=1e-5,
    caption="c",
  )
  axes, rates = figure.axes
  assert [line.get_label() for line in rates.lines] == [
    "allowed",
    "final model",
  ]
  assert axes.lines[0].get_marker() not in ("", "None")
  labels = [text.get_text() for text in axes.get_legend().get_texts()]
  said = "claimed: ε = ∞" if claimed == [math.inf] else "claimed"
  assert labels == [said, "at least, by final model"]
