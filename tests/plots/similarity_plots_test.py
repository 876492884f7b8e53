"""Tests of the picture of similarities."""

import base64

import numpy as np
import pytest

from tests.plots import drawn
from tff_fedemb.plots import similarity_plots
from tff_fedemb.plots import training_plots as plots

_PANEL = similarity_plots.SimilarityPanel(
  np.array([0.5, 0.9]), np.array([-0.2, 0.1, 0.1, 0.6]), {1e-2: 0.7, 0.1: 0.3}
)


def test_shares_add_up_and_thresholds_are_named():
  axes = drawn.axes_of(_PANEL)
  names = drawn.legend_of(axes)
  outlines = [p for p in axes.patches if p.get_label() in names]
  assert names == ["same class", "different classes"]
  for outline in outlines:
    values, edges, _ = outline.get_data()
    np.testing.assert_allclose(np.sum(values), 1.0)
    assert (edges[0], edges[-1]) == (-0.2, 1.0)
  assert [t.get_text().strip() for t in axes.texts] == ["FAR 0.1", "FAR 0.01"]
  assert [line.get_xdata()[0] for line in axes.lines] == [0.3, 0.7]


def test_svg_is_the_same_each_time_and_needs_no_font():
  svg = plots.draw_svg(_PANEL)
  assert svg == plots.draw_svg(_PANEL)
  assert "<text" not in svg and "<svg" in svg
  assert len(base64.b64encode(svg.encode())) < 100_000


@pytest.mark.parametrize(
  ("same", "different", "thresholds"),
  [
    ([1.0] * 3, [1.0] * 3, {1e-3: 1.0 + 2.0**-40}),
    ([0.5], [-0.5], {1e-3: -0.6, 0.1: -0.6}),
  ],
)
def test_thresholds_beyond_every_similarity(same, different, thresholds):
  axes = drawn.axes_of(
    similarity_plots.SimilarityPanel(
      np.array(same), np.array(different), thresholds
    )
  )
  renderer = axes.figure.canvas.get_renderer()
  for text in axes.texts:
    box = text.get_window_extent(renderer)
    assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
