"""Tests of the pictures of a run."""

import base64
import functools
import math

import numpy as np
import pandas as pd
import pytest

from tests.evaluation import clusters
from tests.plots import drawn
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import figures
from tff_fedemb.plots import training_plots as plots

INFINITY = math.inf


def result(spread=1.0):
  return verification.evaluate_pairs(*clusters.draw(10, 4, spread=spread))


def test_roc_draws_each_curve():
  trained = result()
  curves = {"trained": trained, "b": result(2.0), plots.UNTRAINED: result(10.0)}
  axes = drawn.axes_of(plots.draw_roc, curves)
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
  axes = drawn.axes_of(plots.draw_recall, [0, 10], recalls, levels)
  assert drawn.legend_of(axes) == [
    *("FAR 0.1: 90.0%", "FAR 0.01: 50.0%", "FAR 0.001: 30.0%", "untrained"),
  ]
  assert [tuple(line.get_ydata()) for line in axes.lines] == [
    *((0.7, 0.9), (0.4, 0.4), (0.4, 0.5), (0.3, 0.3), (0.1, 0.3), (0.2, 0.2))
  ]
  last, level = axes.lines[4:]
  assert level.get_color() == last.get_color() == figures.COLORS[2]


@pytest.mark.parametrize(
  ("epsilons", "labels", "texts"),
  [
    ([0.0, 2.0], ["this run: ε = 2"], []),
    ([1.0, INFINITY], ["this run: ε = ∞"], []),
    ([INFINITY] * 2, [], ["this run: ε = ∞"]),
    ([0.0, 0.0], [], ["this run: ε = 0"]),
  ],
)
def test_epsilons_that_a_logarithmic_axis_cannot_show(epsilons, labels, texts):
  axes = drawn.axes_of(plots.draw_epsilon, [0, 1], epsilons, 1e-5)
  assert drawn.legend_of(axes) == labels
  assert [text.get_text() for text in axes.texts] == texts
  assert axes.get_ylabel() == "ε (δ = 1e-5)"
  # Without a curve there is no time either: it went from 0 to 0.05 hours.
  assert bool(drawn.ticks_of(axes.xaxis)) == bool(labels)


def test_large_epsilons_of_few_rounds_have_labels_that_differ():
  # Rounded to one digit, five of these nine ticks were 2e5 and 4e5.
  axes = drawn.axes_of(plots.draw_epsilon, [1, 2, 3], [1.6e5, 3.2e5, 4.8e5], 0)
  texts = [label.get_text() for label in drawn.ticks_of(axes.yaxis)]
  assert texts == [
    "1.5e5",
    "2e5",
    "2.5e5",
    "3e5",
    "3.5e5",
    "4e5",
    "4.5e5",
    "5e5",
    "5.5e5",
  ]


def test_an_overview_of_a_single_round():
  rounds, values = [1], [0.25]
  four = (
    functools.partial(plots.draw_loss, rounds=rounds, losses=values),
    functools.partial(
      plots.draw_recall,
      rounds=rounds,
      recall_by_far={1e-3: values},
      untrained={1e-3: 0.1},
    ),
    functools.partial(plots.draw_roc, curves={"trained": result()}),
    functools.partial(
      plots.draw_epsilon, rounds=rounds, epsilons=values, delta=1e-5
    ),
  )
  figure = drawn.figure_of(
    plots.plot_overview, four, title="A run", statement="for $1 or $2"
  )
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
  drawn.axes_of(plots.draw_epsilon, rounds, 40 * values, 1e-5)
  recalls = {1e-2: values / 3, 1e-3: values / 5}
  drawn.axes_of(plots.draw_recall, rounds, recalls, {1e-2: 0.02, 1e-3: 0.01})
  losses = [*values[:-1], INFINITY]
  axes = drawn.axes_of(plots.draw_loss, rounds, losses)
  note = axes.get_legend().get_title().get_text()
  assert note == plots.TRAINING_NOTE


def test_curves_of_many_runs_leave_room_for_themselves():
  curves = {f"a_rather_long_name_of_a_run_{i}": result() for i in range(6)}
  axes = drawn.axes_of(plots.draw_roc, curves)
  assert axes.bbox.width > 0.7 * axes.figure.bbox.width
  assert axes.bbox.height > 2 * axes.figure.dpi
  legend = axes.get_legend().get_window_extent()
  assert legend.x1 <= axes.figure.bbox.x1


_SIMILARITIES = functools.partial(
  plots.draw_similarities,
  same=np.array([0.5, 0.9]),
  different=np.array([-0.2, 0.1, 0.1, 0.6]),
  thresholds={1e-2: 0.7, 0.1: 0.3},
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
    plots.draw_similarities, np.array(same), np.array(different), thresholds
  )
  renderer = axes.figure.canvas.get_renderer()
  for text in axes.texts:
    box = text.get_window_extent(renderer)
    assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1


def devices(num=3, hours=12.0, abandoned=()):
  """Rounds of ten devices, with half as long a pause after each."""
  starts = hours * np.arange(num)
  fates = {"reported": 5, "aborted": 2, "late": 1, "interrupted": 1}
  return pd.DataFrame(
    {
      "start_hours": starts,
      "end_hours": starts + hours / 2,
      "abandoned": [i in abandoned for i in range(num)],
      "available_share": 0.1 + 0.05 * np.sin(starts),
      **{"selected": 10, "dropped": 1} | fates,
    }
  )


def test_availability_is_drawn_where_rounds_start():
  rounds = devices()
  axes = drawn.axes_of(plots.draw_availability, rounds)
  (line,) = axes.lines
  np.testing.assert_allclose(line.get_xdata(), [0, 12, 24])
  np.testing.assert_array_equal(line.get_ydata(), rounds.available_share)
  assert axes.get_xlabel() == "simulated hours"


def test_what_became_of_devices_is_stacked():
  axes = drawn.axes_of(plots.draw_reports, devices(abandoned=[1]))
  assert drawn.legend_of(axes) == [
    *("reported: 50.0%", "not needed: 20.0%", "late: 10.0%"),
    *("interrupted: 10.0%", "dropped out: 10.0%", "abandoned: 1 of 3"),
  ]
  heights = [c.get_paths()[0].get_extents().y1 for c in axes.collections]
  assert heights == [5, 7, 8, 9, 10]
  # Between a round's end and the next start there is nothing.
  (path,) = axes.collections[0].get_paths()
  assert {0.0, 5.0} == set(path.vertices[:, 1])
  (cross,) = axes.lines
  np.testing.assert_allclose(cross.get_xdata(), [12])


def test_a_week_of_many_rounds_is_drawn_in_means():
  rounds = devices(num=800, hours=0.5, abandoned=[0])
  axes = drawn.axes_of(plots.draw_reports, rounds)
  assert axes.get_title(loc="left") == "Selected devices, first week"
  # 336 rounds in a week, in 168 blocks of two; shares are those of the week.
  ends = axes.collections[0].get_paths()[0].get_extents()
  assert ends.x1 == pytest.approx((335 * 0.5 + 0.25) / 24)
  assert drawn.legend_of(axes)[0] == "reported: 50.0%"
  assert drawn.legend_of(axes)[-1] == "abandoned: 1 of 336"


def test_rounds_become_hours_by_the_end_of_released_ones():
  recall = functools.partial(
    plots.draw_recall,
    rounds=[0, 1, 3],
    recall_by_far={1e-3: [0.1, 0.2, 0.3]},
    untrained={1e-3: 0.1},
  )
  # Released ones end after 6, 30 and 42 hours.
  axes = drawn.axes_of(plots.over_time(recall, devices(num=4, abandoned=[1])))
  np.testing.assert_allclose(axes.lines[0].get_xdata(), [0, 6, 42])
  assert axes.get_xlabel() == "simulated hours"
  # The axis begins at the start: nothing has happened before.
  low, high = axes.get_xlim()
  assert -0.05 * high <= low <= 0 < high <= 1.05 * 42
