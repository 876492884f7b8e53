"""Finds what a figure shows, and whether it can be read."""

import itertools
from unittest import mock

import numpy as np

from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots


def figure_of(plot, *args, **kwargs):
  """Returns the figure that a function would write, which can be read."""
  return _readable("write", plot, "unused.png", *args, **kwargs)


def axes_of(draw, *values):
  """The panel that a function draws from values, alone."""
  (axes,) = _readable(
    "to_svg", training_plots.draw_svg, lambda axes: draw(axes, *values)
  ).axes
  return axes


def _readable(writer, plot, *args, **kwargs):
  with mock.patch.object(figures, writer) as write:
    plot(*args, **kwargs)
  figure = write.call_args.args[0]
  figure.canvas.draw()
  for axes in figure.axes:
    _assert_readable(axes)
  return figure


def ticks_of(axis):
  """The labels of an axis that are in the picture."""
  low, high = sorted(axis.get_view_interval())
  return [
    tick.label1
    for tick in axis.get_major_ticks()
    if low <= tick.get_loc() <= high
    and tick.label1.get_visible()
    and tick.label1.get_text()
  ]


def _assert_readable(axes):
  """Labels differ and keep apart, points are whole, the legend hides none."""
  renderer = axes.figure.canvas.get_renderer()
  name = axes.get_title(loc="left")
  for axis in (axes.xaxis, axes.yaxis):
    labels = ticks_of(axis)
    texts = [label.get_text() for label in labels]
    assert len(set(texts)) == len(texts), f"{name}: labels {texts}"
    boxes = [label.get_window_extent(renderer) for label in labels]
    for one, other in itertools.pairwise(boxes):
      apart = not one.padded(3, 0).overlaps(other)
      assert apart, f"{name}: labels {texts} touch"
    if axis.get_scale() == "log" and axes.lines and axis.get_label_text():
      assert texts, f"{name}: no labels on a logarithmic axis"
  title = axes._left_title
  assert title.get_window_extent(renderer).x1 <= axes.figure.bbox.x1, name
  frame, legend = axes.bbox, axes.get_legend()
  cover = legend and legend.get_window_extent(renderer)
  for line in axes.lines:
    if line.get_transform() == axes.transData:
      places = axes.transData.transform(line.get_xydata().astype(float))
      places = places[np.isfinite(places).all(axis=1)]
      # The ends of error bars may lie beyond what there can be.
      if line.get_marker() not in ("", "None", "_", "|"):
        half = line.get_markersize() / 2 * axes.figure.dpi / 72
        low, high = places - half, places + half
        inside = (low >= [frame.x0, frame.y0]) & (high <= [frame.x1, frame.y1])
        assert inside.all(), f"{name}: points {line.get_xydata()} are cut off"
      if cover:
        path = axes.transData.transform_path(line.get_path())
        hidden = path.intersects_bbox(cover, filled=False)
        hidden |= any(cover.contains(*place) for place in places)
        assert not hidden, f"{name}: the legend hides {line.get_label()}"


def legend_of(figure_or_axes):
  """The labels of a figure's legend, or of that of a panel."""
  legends = getattr(figure_or_axes, "legends", None)
  legend = legends[0] if legends else figure_or_axes.get_legend()
  return [] if legend is None else [t.get_text() for t in legend.get_texts()]


def values(line, axis):
  # Error bars keep numbers as objects.
  return np.asarray(getattr(line, f"get_{axis}data")(), float)


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
