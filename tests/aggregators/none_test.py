"""Tests of the mean without clipping or noise."""

import math

import numpy as np

from tests.aggregators import checks


def test_rounds_are_plain_means(create_aggregation):
  aggregation = create_aggregation("none", **checks.CONFIG)
  checks.check_without_noise(
    aggregation, [math.inf] * len(checks.draw_updates())
  )


def test_mean_by_hand(create_aggregation):
  # Norms 1, 2 and 6; the divisor is 4 although 3 clients took part.
  aggregation = create_aggregation("none", clients_per_round=4.0)
  rounds = aggregation.run([np.diag([1.0, 2.0, 0.0, 0.0, 6.0])[[0, 1, 4]]])
  np.testing.assert_allclose(
    rounds.means, [[0.25, 0.5, 0.0, 0.0, 1.5]], rtol=1e-6
  )
