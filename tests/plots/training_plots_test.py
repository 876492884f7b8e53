"""Tests of the pictures of a run."""

import math

import numpy as np
import pytest

from tests.plots import drawn
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots as plots

BLUE, RED = figures.COLORS[:2]
INFINITY = math.inf


def result(spread=1.0, num_classes=10):
  rng = np.random.default_rng(0)
  labels = np.repeat(np.arange(num_classes), 4)
  embeddings = spread * rng.normal(size=(num_classes, 8))[labels]
  embeddings += rng.normal(size=embeddings.shape)
  return verification.evaluate_pairs(embeddings, labels)


def note_of(axes):
  return axes.get_legend().get_title().get_text()


def texts_of(axes):
  return [text.get_text().replace("\n", " ") for text in axes.texts]


def test_roc_draws_each_curve():
  trained = result()
  curves = {"trained": trained, "b": result(0.5), plots.UNTRAINED: result(0.1)}
  axes = drawn.axes_of(plots.RocPanel(curves))
  recall = trained.recall_at_far[1e-3]
  labels = drawn.legend_of(axes)
  assert labels[0] == f"trained: {recall:.1%}"
  assert [label.split(":")[0] for label in labels[1:]] == [
    *("b", plots.UNTRAINED, "chance"),
  ]
  lines = {line.get_label(): line for line in axes.lines}
  assert lines[labels[0]].get_color() == BLUE
  assert lines[labels[1]].get_color() == RED
  assert lines[labels[2]].get_color() == figures.GREY
  line = lines[labels[0]]
  np.testing.assert_array_equal(line.get_ydata(), trained.roc.recalls)
  rates = trained.roc.false_accept_rates
  np.testing.assert_array_equal(line.get_xdata()[1:], rates[1:])
  # Zero has no place on a logarithmic axis.
  assert rates[0] == 0 < line.get_xdata()[0] < 1e-4


def test_recall_draws_each_rate_and_the_untrained_level():
  recalls = {1e-3: [0.1, 0.3], 1e-2: [0.4, 0.5], 1e-1: [0.7, 0.9]}
  axes = drawn.axes_of(plots.RecallPanel([0, 10], recalls, {1e-3: 0.2}))
  assert drawn.legend_of(axes) == [
    "FAR 0.1: 90.0%",
    "FAR 0.01: 50.0%",
    "FAR 0.001: 30.0%",
    "untrained",
  ]
  *lines, level = axes.lines
  assert [tuple(line.get_ydata()) for line in lines] == [
    (0.7, 0.9),
    (0.4, 0.5),
    (0.1, 0.3),
  ]
  assert set(level.get_ydata()) == {0.2}
  assert level.get_color() == lines[2].get_color() == figures.COLORS[2]
  # A level of a rate that is not shown is not shown either.
  assert (
    len(drawn.axes_of(plots.RecallPanel([0, 10], recalls, {0.5: 0.2})).lines)
    == 3
  )


def test_loss_and_its_note():
  axes = drawn.axes_of(plots.LossPanel([1, 2, 3], [2.0, 1.5, 1.2]))
  np.testing.assert_array_equal(axes.lines[0].get_ydata(), [2.0, 1.5, 1.2])
  assert note_of(axes) == plots.TRAINING_NOTE
  axes = drawn.axes_of(plots.LossPanel([1, 2, 3], [2.0, np.nan, INFINITY]))
  np.testing.assert_array_equal(
    axes.lines[0].get_ydata(), [2.0, np.nan, np.nan]
  )
  assert note_of(axes) == (
    f"{plots.TRAINING_NOTE}\nnot finite in 2 of 3 rounds"
  )


@pytest.mark.parametrize(
  "curves,labels,texts",
  [
    ({"none": [INFINITY, INFINITY]}, [], ["none: ε = ∞"]),
    ({"late": [1.0, INFINITY]}, ["late: ε = ∞ in 1 of 2 rounds"], []),
    (
      {"dp": [1.0, 2.0], "none": [INFINITY, INFINITY]},
      ["dp: ε = 2", "none: ε = ∞"],
      [],
    ),
    ({"dp": [0.0, 2.0]}, ["dp: ε = 2"], []),
    ({"dp": [0.0, 0.0]}, [], ["no rounds yet"]),
    ({"dp": [1e-3, 1e5]}, ["dp: ε = 1e+05"], []),
  ],
)
def test_epsilon(curves, labels, texts):
  axes = drawn.axes_of(plots.EpsilonPanel([0, 1], curves, 1e-5, "for $1 or $2"))
  assert drawn.legend_of(axes) == labels
  shown = [any(0 < e < INFINITY for e in values) for values in curves.values()]
  assert len(axes.lines) == sum(shown)
  assert texts_of(axes) == texts
  assert axes.get_ylabel() == "ε (δ = 1e-5 unless named)"


@pytest.mark.parametrize("num_rounds", [0, 1, 200])
def test_any_number_of_rounds(num_rounds):
  rounds = list(range(1, num_rounds + 1))
  values = np.linspace(0.3, 0.6, num_rounds)
  for panel, text in (
    (plots.RecallPanel(rounds, {1e-3: values}), "no evaluation yet"),
    (plots.EpsilonPanel(rounds, {"dp": values}, 1e-5, "s"), "no rounds yet"),
  ):
    assert texts_of(drawn.axes_of(panel)) == ([] if num_rounds else [text])
  loss = texts_of(drawn.axes_of(plots.LossPanel(rounds, values)))
  assert ("no rounds yet" in loss) == (not num_rounds)
  for panel in (plots.RecallPanel(rounds, {}, {1e-3: 0.2}), plots.RocPanel({})):
    assert texts_of(drawn.axes_of(panel)) == ["no evaluation yet"]


def test_overview():
  values = [0.5, 0.25]
  rounds = [0, 1]
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


def test_more_curves_than_colors():
  curves = {f"curve {i}": [i + 1.0, i + 2.0] for i in range(9)}
  axes = drawn.axes_of(plots.EpsilonPanel([1, 2], curves, 1e-5, ""))
  colors = [line.get_color() for line in axes.lines]
  assert colors == [*figures.COLORS, *figures.COLORS[:3]]


def test_whose_images_a_figure_is_of_is_said():
  recall = drawn.axes_of(plots.RecallPanel([1], {1e-3: [0.012]}))
  assert recall.get_title(loc="left") == "Recall on validation images"
  # Small ones fill the panel as well.
  assert recall.get_ylim()[1] < 0.02
  roc = drawn.axes_of(plots.RocPanel({"trained": result()}))
  assert roc.get_title(loc="left") == "ROC over all pairs of test images"
  other = plots.RocPanel({"this model": result()}, images="folder images")
  assert "folder images" in drawn.axes_of(other).get_title(loc="left")


@pytest.mark.parametrize("rounds", [[1], [1, 2, 3], list(range(1, 61))])
@pytest.mark.parametrize("ends", [(1.0, 1.0), (0.0, 0.0), (3.0, 0.1), (0.1, 3)])
def test_no_legend_hides_a_line(rounds, ends):
  """`drawn` checks it."""
  values = np.linspace(*ends, len(rounds))
  name = "extrapolated to 10,000,000 users,\n64 x the cohort, δ = 2e-08, RDP"
  curves = {"this run": 40 * values, name: values / 30}
  for panel in (
    plots.EpsilonPanel(rounds, curves, 1e-5, ""),
    plots.RecallPanel(rounds, {1e-2: values / 3, 1e-3: values / 5}),
    plots.LossPanel(rounds, values),
  ):
    # Neither the legend nor what is said lies on the panel's lines.
    assert not drawn.axes_of(panel).texts or not any(ends)


def test_curves_of_many_runs_leave_room_for_themselves():
  names = [f"a_rather_long_name_of_a_run_{i}" for i in range(6)]
  axes = drawn.axes_of(plots.RocPanel({name: result() for name in names}))
  assert axes.bbox.width > 0.7 * axes.figure.bbox.width
  assert axes.bbox.height > 2 * axes.figure.dpi
  legend = axes.get_legend().get_window_extent()
  assert legend.x1 <= axes.figure.bbox.x1
