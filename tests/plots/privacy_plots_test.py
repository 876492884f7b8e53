"""Tests of the pictures of epsilon against users and rounds."""

import math

import numpy as np
import pandas as pd
import pytest

from tests.plots import drawn
from tff_fedemb.plots import figures
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
    *("noise multiplier", "z = 1", "z = 0.5", " ", "how to read it"),
    *("user-level, RDP", "user-level, PLD", "Δ = C, RDP\n(not user-level)"),
    *("δ too large: δ ≥ 1 / N", "N = 1,000"),
  ]
  assert axes.get_ylabel() == "ε (δ = 0.001)"
  # Populations that delta is too large for are shaded.
  (patch,) = axes.patches
  box = patch.get_extents().transformed(axes.transData.inverted())
  assert box.x0 == pytest.approx(1000)
  drawn.assert_nothing_overlaps(figure)


@pytest.mark.parametrize(
  ("epsilons", "by"),
  [
    ((math.inf, 4.0, 0.0), "users"),
    ((1e-7, 1.0, 1e9), "users"),
    ((math.inf,) * 3, "rounds"),
  ],
)
def test_any_epsilons(epsilons, by):
  figure = figure_of(only(*epsilons), by=by, delta=1e-6, caption="costs $1")
  (axes,) = figure.axes
  # No population here is too large for delta: nothing is shaded.
  assert not axes.patches
  legend = drawn.legend_of(figure)
  assert legend[-1] == "user-level, RDP"
  assert ("z = 1: ε = ∞" in legend) == (set(epsilons) == {math.inf})


@pytest.mark.parametrize(("by", "x"), [("users", 1000.0), ("rounds", 1.0)])
def test_a_single_point_is_shown(by, x):
  table = points(1.0, readings={"user_level": ((x,), (4.0,))})
  (axes,) = figure_of(table, by=by, delta=1e-6).axes
  assert axes.lines[0].get_marker() not in ("", "None")
  assert drawn.ticks_of(axes.xaxis)
  assert axes.get_xscale() == ("log" if by == "users" else "linear")


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


def test_runs_stand_at_the_users_that_they_had():
  measured = {
    users: figures.Measurement(
      recalls,
      epsilon,
      {users / 10: 5 * epsilon, users * 10: epsilon / 9},
      users,
    )
    for users, recalls, epsilon in (
      (10**5, (0.2, 0.4), 4.0),
      (10**7, (0.25,), 0.5),
    )
  }
  curves = {f"of {n:,}": [point] for n, point in measured.items()}
  figure = drawn.figure_of(
    privacy_plots.plot_measured_by_users, curves, caption="c"
  )
  (axes,) = figure.axes
  _, small, line, large = axes.lines
  assert (*small.get_xydata()[0], *large.get_xydata()[0]) == (1e5, 4, 1e7, 0.5)
  np.testing.assert_allclose(line.get_xdata(), (1e6, 1e8))
  texts = [text.get_text() for text in axes.texts]
  assert texts == ["recall 0.300", "recall 0.250"]
  assert "runs (1-2 seeds)" in drawn.legend_of(figure)
  drawn.assert_nothing_overlaps(figure)


@pytest.mark.parametrize("claimed", [[0.0], [math.inf]])
def test_an_audit_of_one_round(claimed):
  figure = drawn.figure_of(
    privacy_plots.plot_audit,
    [1],
    claimed,
    {"final_model": [0.0]},
    rates={"allowed": [0.1, 0.5, 1.0], "final_model": [0.0, 0.5, 1.0]},
    false_positive_rates=[0.001, 0.01, 1.0],
    delta=1e-5,
    caption="c",
  )
  axes, rates = figure.axes
  said = [line.get_label() for line in rates.lines]
  assert said == ["allowed", "final model"]
  assert axes.lines[0].get_marker() not in ("", "None")
  labels = [text.get_text() for text in axes.get_legend().get_texts()]
  said = "claimed: ε = ∞" if claimed == [math.inf] else "claimed"
  assert labels == [said, "at least, by final model"]
