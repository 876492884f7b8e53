"""Tests for plots."""

import pathlib
import subprocess
import sys
import tempfile
import warnings

from absl.testing import absltest
from absl.testing import parameterized
import matplotlib
import numpy as np
from PIL import Image

from tff_fedemb.evaluation import verification
from tff_fedemb.plots import training_plots as plots

INFINITY = float("inf")


def result(spread=1.0, num_classes=10):
  rng = np.random.default_rng(0)
  labels = np.repeat(np.arange(num_classes), 4)
  embeddings = spread * rng.normal(size=(num_classes, 8))[labels]
  embeddings += rng.normal(size=embeddings.shape)
  return verification.evaluate_pairs(embeddings, labels)


class PlotsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    # A warning, for example of a missing letter, is a flaw in the picture.
    catcher = warnings.catch_warnings()
    catcher.__enter__()
    self.addCleanup(catcher.__exit__, None, None, None)
    warnings.simplefilter("error", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.directory = pathlib.Path(directory.name)

  def draw(self, function, *args, **kwargs):
    """Returns the pixels `[height, width, 3]` that the function draws."""
    path = self.directory / "picture.png"
    self.assertIsNone(function(path, *args, **kwargs))
    with Image.open(path) as image:
      self.assertEqual(image.format, "PNG")
      return np.asarray(image.convert("RGB"))

  def assert_shows(self, pixels, color):
    wanted = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    self.assertTrue(np.any(np.all(pixels == wanted, axis=2)), color)

  def assert_differ(self, first, second):
    self.assertFalse(np.array_equal(first, second))

  def test_roc_draws_each_curve(self):
    curves = {"trained": result(), plots.UNTRAINED: result(0.1)}
    both = self.draw(plots.plot_roc, curves)
    self.assert_shows(both, "#0072B2")
    one = self.draw(plots.plot_roc, {"trained": curves["trained"]})
    self.assert_differ(one, both)
    curves["other"] = result(0.5)
    self.assert_shows(self.draw(plots.plot_roc, curves), "#D55E00")

  def test_roc_without_the_marked_rate(self):
    embeddings = np.random.default_rng(1).normal(size=(12, 3))
    plain = verification.evaluate_pairs(
      embeddings, np.arange(12) % 3, false_accept_rates=(0.2,)
    )
    pixels = self.draw(plots.plot_roc, {"trained": plain})
    self.assert_shows(pixels, "#0072B2")

  def test_recall_draws_each_rate_and_the_untrained_level(self):
    recalls = {1e-3: [0.1, 0.3], 1e-2: [0.4, 0.5], 1e-1: [0.7, 0.9]}
    pixels = self.draw(plots.plot_recall, [0, 10], recalls)
    for color in ("#0072B2", "#D55E00", "#009E73"):
      self.assert_shows(pixels, color)
    level = self.draw(
      plots.plot_recall, [0, 10], recalls, untrained={1e-3: 0.2}
    )
    self.assert_differ(pixels, level)
    other = self.draw(plots.plot_recall, [0, 10], recalls, untrained={0.5: 0.2})
    np.testing.assert_array_equal(pixels, other)

  def test_loss_draws_the_note(self):
    pixels = self.draw(plots.plot_loss, [1, 2, 3], [2.0, 1.5, 1.2])
    self.assert_shows(pixels, "#0072B2")
    bare = self.draw(plots.plot_loss, [1, 2, 3], [2.0, 1.5, 1.2], note="")
    self.assert_differ(pixels, bare)

  def test_loss_says_that_values_are_not_finite(self):
    some = self.draw(plots.plot_loss, [1, 2, 3], [2.0, np.nan, INFINITY])
    gap = self.draw(plots.plot_loss, [1, 2, 3], [2.0, 1.0, INFINITY])
    self.assert_differ(some, gap)
    self.assert_shows(some, "#0072B2")

  @parameterized.named_parameters(
    ("all", {"none": [INFINITY, INFINITY]}, False),
    ("some", {"late": [1.0, INFINITY]}, True),
    ("one_curve", {"dp": [1.0, 2.0], "none": [INFINITY, INFINITY]}, True),
    ("zero_at_first", {"dp": [0.0, 2.0]}, True),
    ("only_zeros", {"dp": [0.0, 0.0]}, False),
    ("many_decades", {"dp": [1e-3, 1e5]}, True),
  )
  def test_epsilon(self, curves, has_line):
    pixels = self.draw(
      plots.plot_epsilon, [0, 1], curves, delta=1e-5, statement="for $1 or $2"
    )
    blue = np.all(pixels == [0x00, 0x72, 0xB2], axis=2)
    self.assertEqual(bool(np.any(blue)), has_line)

  def test_epsilon_draws_delta_and_statement(self):
    pictures = [
      self.draw(
        plots.plot_epsilon,
        [1, 2],
        {"dp": [1.0, 2.0]},
        delta=delta,
        statement=statement,
      )
      for delta, statement in ((1e-5, "one"), (1e-7, "one"), (1e-5, "two"))
    ]
    self.assert_differ(pictures[0], pictures[1])
    self.assert_differ(pictures[0], pictures[2])

  @parameterized.parameters(0, 1, 200)
  def test_any_number_of_rounds(self, num_rounds):
    rounds = list(range(1, num_rounds + 1))
    values = np.linspace(0.3, 0.6, num_rounds)
    self.draw(plots.plot_loss, rounds, values)
    self.draw(plots.plot_recall, rounds, {1e-3: values})
    self.draw(plots.plot_recall, rounds, {}, untrained={1e-3: 0.2})
    pixels = self.draw(
      plots.plot_epsilon, rounds, {"dp": values}, delta=1e-5, statement="s"
    )
    blue = np.all(pixels == [0x00, 0x72, 0xB2], axis=2)
    self.assertEqual(bool(np.any(blue)), num_rounds > 0)

  @parameterized.parameters(True, False)
  def test_overview(self, is_filled):
    values = [0.5, 0.25] if is_filled else []
    rounds = list(range(len(values)))
    pixels = self.draw(
      plots.plot_overview,
      rounds=rounds,
      losses=values,
      recall_rounds=rounds,
      recall_by_far={1e-3: values} if is_filled else {},
      roc_curves={"trained": result()} if is_filled else {},
      epsilon_rounds=rounds,
      epsilon_curves={"dp": values} if is_filled else {},
      delta=1e-5,
      statement="add or remove a user",
      title="A run",
      untrained={1e-3: 0.1},
    )
    height, width, _ = pixels.shape
    blue = np.all(pixels == [0x00, 0x72, 0xB2], axis=2)
    for rows in (slice(0, height // 2), slice(height // 2, height)):
      for columns in (slice(0, width // 2), slice(width // 2, width)):
        self.assertEqual(bool(np.any(blue[rows, columns])), is_filled)

  def test_more_curves_than_colors(self):
    curves = {f"curve {i}": [i + 1.0, i + 2.0] for i in range(9)}
    pixels = self.draw(
      plots.plot_epsilon, [1, 2], curves, delta=1e-5, statement=""
    )
    self.assert_shows(pixels, "#56B4E9")

  def test_same_data_same_file(self):
    paths = [self.directory / name for name in ("a.png", "b.png")]
    for path in paths:
      plots.plot_loss(str(path), [1, 2], [3.0, 2.0])
    self.assertEqual(paths[0].read_bytes(), paths[1].read_bytes())

  @parameterized.named_parameters(
    ("loss", plots.plot_loss, [1.0], {}),
    ("recall", plots.plot_recall, {0.1: [1.0]}, {}),
    (
      "epsilon",
      plots.plot_epsilon,
      {"dp": [1.0]},
      {"delta": 1e-5, "statement": ""},
    ),
  )
  def test_rejects_series_of_other_length(self, function, series, settings):
    with self.assertRaisesRegex(ValueError, r"must be 2 values.*found \[1\]"):
      self.draw(function, [1, 2], series, **settings)

  def test_leaves_settings_and_backend_alone(self):
    before = dict(matplotlib.rcParams)
    self.draw(plots.plot_loss, [1, 2], [3.0, 2.0])
    self.assertEqual(dict(matplotlib.rcParams), before)
    code = (
      "import sys; from tff_fedemb.evaluation import plots; "
      "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
  absltest.main()
