"""Tests of the pictures of a run."""

import base64
import math

import numpy as np
import pytest

from tests.plots import drawn
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots as plots

INFINITY = math.inf


def result(spread=1.0, num_classes=10):
  rng = np.random.default_rng(0)
  labels = np.repeat(np.arange(num_classes), 4)
  embeddings = spread * rng.normal(size=(num_classes, 8))[labels]
  embeddings += rng.normal(size=embeddings.shape)
  return verification.evaluate_pairs(embeddings, labels)


def texts_of(axes):
  return [text.get_text().replace("\n", " ") for text in axes.texts]


def test_roc_draws_each_curve():
  trained = result()
  curves = {"trained": trained, "b": result(0.5), plots.UNTRAINED: result(0.1)}
  axes = drawn.axes_of(plots.RocPanel(curves))
  assert "test images" in axes.get_title(loc="left")
  labels = drawn.legend_of(axes)
  assert labels[0] == f"trained: {trained.recall_at_far[1e-3]:.1%}"
  assert [label.split(":")[0] for label in labels[1:]] == [
    *("b", plots.UNTRAINED, "chance"),
  ]
  lines = {line.get_label(): line for line in axes.lines}
  colors = [lines[label].get_color() for label in labels[:3]]
  assert colors == [*figures.COLORS[:2], figures.GREY]
  line = lines[labels[0]]
  np.testing.assert_array_equal(line.get_ydata(), trained.roc.recalls)
  rates = trained.roc.false_accept_rates
  np.testing.assert_array_equal(line.get_xdata()[1:], rates[1:])
  # Zero has no place on a logarithmic axis.
  assert rates[0] == 0 < line.get_xdata()[0] < 1e-4


def test_recall_draws_each_rate_and_the_untrained_level():
  recalls = {1e-3: [0.1, 0.3], 1e-2: [0.4, 0.5], 1e-1: [0.7, 0.9]}
  levels = {1e-3: 0.2, 1e-2: 0.3, 1e-1: 0.4}
  axes = drawn.axes_of(plots.RecallPanel([0, 10], recalls, levels))
  assert drawn.legend_of(axes) == [
    "FAR 0.1: 90.0%",
    "FAR 0.01: 50.0%",
    "FAR 0.001: 30.0%",
    "untrained",
  ]
  assert [tuple(line.get_ydata()) for line in axes.lines] == [
    *((0.7, 0.9), (0.4, 0.4), (0.4, 0.5), (0.3, 0.3), (0.1, 0.3), (0.2, 0.2))
  ]
  last, level = axes.lines[4:]
  assert level.get_color() == last.get_color() == figures.COLORS[2]


@pytest.mark.parametrize(
  ("losses", "shown", "note"),
  [
    ([2.0, 1.5, 1.2], [2.0, 1.5, 1.2], ""),
    (
      *([2.0, np.nan, INFINITY], [2.0, np.nan, np.nan]),
      "\nnot finite in 2 of 3 rounds",
    ),
  ],
)
def test_loss_and_its_note(losses, shown, note):
  axes = drawn.axes_of(plots.LossPanel([1, 2, 3], losses))
  np.testing.assert_array_equal(axes.lines[0].get_ydata(), shown)
  said = axes.get_legend().get_title().get_text()
  assert said == f"{plots.TRAINING_NOTE}{note}"


@pytest.mark.parametrize(
  "curves,labels,texts",
  [
    ({"none": [INFINITY, INFINITY]}, [], ["none: ε = ∞"]),
    (
      {"dp": [0.0, 2.0], "late": [1.0, INFINITY], "none": [INFINITY] * 2},
      ["dp: ε = 2", "late: ε = ∞", "none: ε = ∞"],
      [],
    ),
    ({"dp": [0.0, 0.0]}, [], ["dp: ε = 0"]),
  ],
)
def test_epsilon(curves, labels, texts):
  axes = drawn.axes_of(plots.EpsilonPanel([0, 1], curves, 1e-5, "for $1 or $2"))
  assert drawn.legend_of(axes) == labels
  shown = [any(0 < e < INFINITY for e in values) for values in curves.values()]
  assert len(axes.lines) == sum(shown)
  assert texts_of(axes) == texts
  assert axes.get_ylabel() == "ε (δ = 1e-5 unless named)"


def test_no_evaluation():
  panel = plots.RecallPanel([], {1e-3: []}, {1e-3: 0.2})
  assert texts_of(drawn.axes_of(panel)) == ["no evaluation yet"]


def test_overview():
  """`drawn` checks that a single round can be read, too."""
  rounds, values = [1], [0.25]
  four = (
    plots.LossPanel(rounds, values),
    plots.RecallPanel(rounds, {1e-3: values}, {1e-3: 0.1}),
    plots.RocPanel({"trained": result()}),
    plots.EpsilonPanel(rounds, {"dp": values}, 1e-5, "for $1 or $2"),
  )
  figure = drawn.figure_of(plots.plot_overview, four, title="A run")
  titles = [axes.get_title(loc="left").split()[0] for axes in figure.axes]
  assert titles == ["Training", "Recall", "ROC", "Privacy"]
  assert figure.get_suptitle() == "A run"
  assert figure.get_supxlabel() == r"for \$1 or \$2"


@pytest.mark.parametrize(
  ("num_rounds", "ends"), [(3, (3.0, 0.1)), (60, (0.1, 3.0))]
)
def test_no_legend_hides_a_line(num_rounds, ends):
  """`drawn` checks it."""
  rounds, values = range(1, num_rounds + 1), np.linspace(*ends, num_rounds)
  name = "extrapolated to 10,000,000 users,\n64 x the cohort, δ = 2e-08, RDP"
  curves = {"this run": 40 * values, name: values / 30}
  for panel in (
    plots.EpsilonPanel(rounds, curves, 1e-5, ""),
    plots.RecallPanel(
      *(rounds, {1e-2: values / 3, 1e-3: values / 5}),
      {1e-2: 0.02, 1e-3: 0.01},
    ),
    plots.LossPanel(rounds, values),
  ):
    assert not drawn.axes_of(panel).texts


def test_curves_of_many_runs_leave_room_for_themselves():
  curves = {f"a_rather_long_name_of_a_run_{i}": result() for i in range(6)}
  axes = drawn.axes_of(plots.RocPanel(curves))
  assert axes.bbox.width > 0.7 * axes.figure.bbox.width
  assert axes.bbox.height > 2 * axes.figure.dpi
  legend = axes.get_legend().get_window_extent()
  assert legend.x1 <= axes.figure.bbox.x1


_SIMILARITIES = plots.SimilarityPanel(
  np.array([0.5, 0.9]), np.array([-0.2, 0.1, 0.1, 0.6]), {1e-2: 0.7, 0.1: 0.3}
)


def test_shares_add_up_and_thresholds_are_named():
  axes = drawn.axes_of(_SIMILARITIES)
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
  svg = plots.draw_svg(_SIMILARITIES)
  assert svg == plots.draw_svg(_SIMILARITIES)
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
    plots.SimilarityPanel(np.array(same), np.array(different), thresholds)
  )
  renderer = axes.figure.canvas.get_renderer()
  for text in axes.texts:
    box = text.get_window_extent(renderer)
    assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
