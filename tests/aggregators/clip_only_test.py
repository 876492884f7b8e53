"""Tests of clipping without noise."""

import numpy as np

from tests.aggregators import checks


def test_rounds_are_means_of_clipped_updates(create_aggregation):
  checks.check_without_noise(create_aggregation("clip_only", **checks.CONFIG))


def test_sum_is_clipped_and_divided_by_the_expected_count(create_aggregation):
  # Norms 1, 2 and 6 in three coordinates; only the last is clipped, and the
  # divisor is 4 although 3 clients took part.
  aggregation = create_aggregation(
    "clip_only", clients_per_round=4.0, clip_norm=2.0
  )
  rounds = aggregation.run([np.diag([1.0, 2.0, 0.0, 0.0, 6.0])[[0, 1, 4]]])
  np.testing.assert_allclose(
    rounds.means, [[0.25, 0.5, 0.0, 0.0, 0.5]], rtol=1e-6
  )


def test_clipping_is_joint_over_tensors(create_aggregation):
  aggregation = create_aggregation(
    "clip_only", clients_per_round=4.0, clip_norm=2.0
  )
  rounds = aggregation.run([[np.array([3.0, 0.0, 0.0, 4.0, 0.0])]])
  np.testing.assert_allclose(
    rounds.means[0] * 4.0, [1.2, 0.0, 0.0, 1.6, 0.0], rtol=1e-6
  )
