"""Tests of the picture of single changes."""

import functools
import math

from tests.plots import drawn
from tff_fedemb.plots import ablation_plots
from tff_fedemb.plots import figures


def test_changes_beside_what_was_changed():
  better, worse = (
    figures.Measurement(values, math.inf) for values in ((0.75,), (0.0, 0.25))
  )
  figure = drawn.figure_of(
    functools.partial(
      ablation_plots.plot_changes,
      baseline=figures.Measurement((0.25, 0.5), math.inf),
      changes={"rounds=8": better, "clip_norm=1": worse},
      utility="recall",
      caption="caption",
    )
  )
  (axes,) = figure.axes
  labels = [label.get_text() for label in axes.get_yticklabels()]
  assert labels == ["rounds=8", "clip_norm=1"]
  # The first one is on top.
  assert axes.yaxis_inverted()
  line, *_ = axes.lines
  assert list(line.get_xdata()) == [0.375, 0.375]
  points = [bar.lines[0] for bar in axes.containers]
  assert [list(point.get_xdata()) for point in points] == [[0.75], [0.125]]
  assert [list(point.get_ydata()) for point in points] == [[0], [1]]
  assert points[0].get_color() != points[1].get_color()


def test_long_changes_leave_room_for_what_came_of_them():
  name = "clip_norm=0.25, client_learning_rate=0.05, server_learning_rate=2"
  changes = {name: figures.Measurement((0.0,), math.inf)}
  figure = drawn.figure_of(
    ablation_plots.plot_changes,
    figures.Measurement((0.0,), math.inf),
    changes,
    utility="recall",
    caption="caption",
  )
  (axes,) = figure.axes
  (label,) = axes.get_yticklabels()
  assert label.get_text().replace("\n", " ") == name
  assert axes.bbox.width > 0.5 * figure.bbox.width
