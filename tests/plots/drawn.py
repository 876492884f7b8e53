"""What is drawn in a figure."""

from unittest import mock

from matplotlib.backends import backend_agg
import numpy as np

from tff_fedemb.plots import figures


def figure_of(plot, *args, **kwargs):
  """Returns the figure that a function would write."""
  with mock.patch.object(figures, "write") as write:
    assert plot("unused.png", *args, **kwargs) is None
  (figure, _), _ = write.call_args
  backend_agg.FigureCanvasAgg(figure).draw()
  return figure


def legend_of(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


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
