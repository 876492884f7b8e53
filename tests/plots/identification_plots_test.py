"""Tests of pictures of identification."""

import numpy as np
import pytest

from tests.evaluation import clusters
from tests.plots import drawn
from tff_fedemb.evaluation import recognition
from tff_fedemb.plots import identification_plots


def _evaluate(num_classes, images):
  return recognition.evaluate(*clusters.draw(num_classes, images, spread=0.5))


@pytest.fixture(name="found", scope="module")
def _found():
  return _evaluate(30, 5)


def test_figures_are_drawn_with_their_intervals(found):
  assert [part.images for part in found] == [1, 3]
  axes = drawn.axes_of(identification_plots.draw_sizes, found)
  assert len(axes.lines) == len(drawn.legend_of(axes)) == 4
  first = axes.lines[0]
  assert list(first.get_xdata()) == [x.size for x in found[0].sizes]
  assert list(first.get_ydata()) == [x.rank_one.value for x in found[0].sizes]
  assert len(axes.collections) == 4
  # The larger the gallery, the more are taken for another.
  assert np.all(np.diff(first.get_ydata()) <= 0)
  axes = drawn.axes_of(identification_plots.draw_det, found)
  assert drawn.legend_of(axes) == [
    "28 people, 1 image each",
    "28 people, 3 images each",
  ]
  assert list(axes.lines[1].get_xdata()) == [x.fpir.value for x in found[1].det]


def test_three_classes_are_drawn():
  found = _evaluate(3, 2)
  assert [x.size for x in found[0].sizes] == [1]
  drawn.axes_of(identification_plots.draw_sizes, found)
  drawn.axes_of(identification_plots.draw_det, found)


def test_figures_are_those_of_identification(found):
  one = found[0]
  ranks = [x.value for x in one.cmc]
  assert len(ranks) == 20
  assert ranks == sorted(ranks)
  assert ranks[0] == one.sizes[-1].rank_one.value
  # A larger gallery's people are missed more often.
  missed = [x.fnir.value for x in one.sizes if x.fnir is not None]
  assert missed == sorted(missed)
  (written, _) = recognition.to_json(found)
  assert written["sizes"][0]["rank_one"]["value"] == one.sizes[0].rank_one.value
  assert "every class was a stranger" in written["rule"]
