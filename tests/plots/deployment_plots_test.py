"""Tests of the pictures of devices that come and go."""

import numpy as np
import pandas as pd
import pytest

from tests.plots import drawn
from tff_fedemb import progress
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


def test_availability_is_drawn_where_rounds_start():
  table = rounds()
  axes = drawn.axes_of(plots.AvailabilityPanel(table))
  (line,) = axes.lines
  np.testing.assert_allclose(line.get_xdata(), [0, 12, 24])
  np.testing.assert_array_equal(line.get_ydata(), table.available_share)
  assert axes.get_title(loc="left") == "Devices available"
  assert axes.get_xlabel() == "simulated hours"


def test_what_became_of_devices_is_stacked():
  axes = drawn.axes_of(plots.ReportsPanel(rounds(abandoned=[1])))
  assert drawn.legend_of(axes) == [
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
  np.testing.assert_allclose(cross.get_xdata(), [12])


def test_a_week_of_many_rounds_is_drawn_in_means():
  table = rounds(num=800, hours=0.5, abandoned=[0])
  axes = drawn.axes_of(plots.ReportsPanel(table))
  assert axes.get_title(loc="left") == "Selected devices, first week"
  # 336 rounds in a week, in 168 blocks of two; shares are those of the week.
  ends = axes.collections[0].get_paths()[0].get_extents()
  assert ends.x1 == pytest.approx((335 * 0.5 + 0.25) / 24)
  assert drawn.legend_of(axes)[0] == "reported: 50.0%"
  assert drawn.legend_of(axes)[-1] == "abandoned: 1 of 336"


def test_rounds_become_hours_by_the_end_of_released_ones():
  # Released ones end after 6, 30 and 42 hours.
  table = rounds(num=4, abandoned=[1])
  recall = training_plots.RecallPanel(
    [0, 1, 3], {1e-3: [0.1, 0.2, 0.3]}, {1e-3: 0.1}
  )
  panel = plots.over_time(recall, table)
  np.testing.assert_allclose(panel.rounds, [0, 6, 42])
  axes = drawn.axes_of(panel)
  assert axes.get_xlabel() == "simulated hours"
  # The axis begins at the start: nothing has happened before.
  low, high = axes.get_xlim()
  assert -0.05 * high <= low <= 0 < high <= 1.05 * 42


@pytest.mark.parametrize(
  ("hours", "time"),
  [(0.9, "54 minutes"), (2, "2 hours"), (47, "47 hours"), (60, "2.5 days")],
)
def test_the_unit_of_time_goes_by_the_span(hours, time):
  assert progress.say_time(hours) == time
