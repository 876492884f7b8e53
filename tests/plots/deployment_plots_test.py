"""Tests of the pictures of devices that come and go."""

import numpy as np
import pandas as pd
import pytest

from tests.plots import drawn
from tff_fedemb.plots import deployment_plots as plots
from tff_fedemb.plots import training_plots


def rounds(num=3, hours=12.0, abandoned=()):
  """Rounds of ten devices, with half as long a pause after each."""
  starts = hours * np.arange(num)
  return pd.DataFrame(
    {
      "start_hours": starts,
      "end_hours": starts + hours / 2,
      "abandoned": [i in abandoned for i in range(num)],
      "available_share": 0.1 + 0.05 * np.sin(starts),
      "selected": 10,
      "reported": 5,
      "aborted": 2,
      "late": 1,
      "interrupted": 1,
      "dropped": 1,
    }
  )


def axes_of(panel):
  (axes,) = drawn.figure_of(training_plots.plot, panel).axes
  return axes


def labels_of(axes):
  return [text.get_text() for text in axes.get_legend().get_texts()]


def test_availability_is_drawn_where_rounds_start():
  table = rounds()
  axes = axes_of(plots.AvailabilityPanel(table))
  (line,) = axes.lines
  np.testing.assert_allclose(line.get_xdata(), [0, 0.5, 1])
  np.testing.assert_array_equal(line.get_ydata(), table.available_share)
  assert axes.get_title(loc="left") == "Devices available"
  assert axes.get_xlabel() == plots.DAYS


def test_what_became_of_devices_is_stacked():
  axes = axes_of(plots.ReportsPanel(rounds(abandoned=[1])))
  assert labels_of(axes) == [
    "reported: 50.0%",
    "not needed: 20.0%",
    "late: 10.0%",
    "interrupted: 10.0%",
    "dropped out: 10.0%",
    "abandoned: 1 of 3",
  ]
  heights = [c.get_paths()[0].get_extents().y1 for c in axes.collections]
  assert heights == [5, 7, 8, 9, 10]
  # Between a round's end and the next start there is nothing.
  (path,) = axes.collections[0].get_paths()
  assert {0.0, 5.0} == set(path.vertices[:, 1])
  (cross,) = axes.lines
  np.testing.assert_allclose(cross.get_xdata(), [0.5])


def test_a_week_of_many_rounds_is_drawn_in_means():
  table = rounds(num=800, hours=0.5, abandoned=[0])
  axes = axes_of(plots.ReportsPanel(table))
  assert axes.get_title(loc="left") == "Selected devices, first week"
  # 336 rounds in a week, in 168 blocks of two; shares are those of the week.
  ends = axes.collections[0].get_paths()[0].get_extents()
  assert ends.x1 == pytest.approx((335 * 0.5 + 0.25) / 24)
  assert labels_of(axes)[0] == "reported: 50.0%"
  assert labels_of(axes)[-1] == "abandoned: 1 of 336"


@pytest.mark.parametrize("num", [0, 1])
def test_hardly_any_rounds(num):
  for panel in plots.AvailabilityPanel, plots.ReportsPanel:
    assert len(axes_of(panel(rounds(num))).collections) in (1, 5)


def test_rounds_become_days_by_the_end_of_released_ones():
  # Released ones end after 6, 30 and 42 hours.
  table = rounds(num=4, abandoned=[1])
  recall = training_plots.RecallPanel([0, 1, 3], {1e-3: [0.1, 0.2, 0.3]})
  panel = plots.in_days(recall, table)
  np.testing.assert_allclose(panel.rounds, [0, 0.25, 1.75])
  assert axes_of(panel).get_xlabel() == plots.DAYS
  epsilon = training_plots.EpsilonPanel([2], {"this run": [1.0]}, 1e-5, "s")
  np.testing.assert_allclose(plots.in_days(epsilon, table).rounds, [1.25])


def test_a_week_in_four_panels():
  recall = training_plots.RecallPanel([1, 3], {1e-3: [0.1, 0.3]})
  epsilon = training_plots.EpsilonPanel([3], {"this run": [1.0]}, 1e-5, "s")
  four = plots.create_week(rounds(), recall, epsilon)
  figure = drawn.figure_of(training_plots.plot_overview, four, title="A run")
  assert [axes.get_title(loc="left") for axes in figure.axes] == [
    "Devices available",
    "Recall on held-out classes",
    "Selected devices",
    "Privacy spent",
  ]
  assert {axes.get_xlabel() for axes in figure.axes} == {plots.DAYS}
  assert figure.get_supxlabel() == "s"


def test_plans():
  plans = pd.DataFrame(
    {
      "clients_per_round": [10, 10, 20],
      "days": [1.0, 2.0, 4.0],
      "epsilon": [8.0, 8.0, 4.0],
    }
  )
  figure = drawn.figure_of(
    plots.plot_plans,
    plans,
    recommended=1,
    limits={"days": 3.0},
    delta=1e-6,
    caption="as said",
  )
  (axes,) = figure.axes
  points = [(*map(list, line.get_data()),) for line in axes.lines]
  assert points[:2] == [([1.0, 2.0], [8.0, 8.0]), ([4.0], [4.0])]
  assert points[2][0] == [3.0, 3.0]
  assert [drawn.values(axes.lines[3], a)[0] for a in "xy"] == [2.0, 8.0]
  assert drawn.legend_of(figure)[-2:] == ["days wanted: 3", "recommended"]
  drawn.assert_nothing_overlaps(figure)
