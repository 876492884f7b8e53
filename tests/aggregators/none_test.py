"""Tests of the mean without clipping or noise."""

import math

import dp_accounting
import numpy as np
import pytest

from tests.aggregators import checks
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import none


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


def test_is_not_private():
  created = none.create_none(mechanism.AggregatorConfig(4.0))
  assert created.round_event == dp_accounting.NonPrivateDpEvent()
  assert created.strategy is None
  assert created.noise_multiplier == 0.0


def test_noise_is_refused():
  with pytest.raises(
    ValueError,
    match=r"noise_multiplier must be 0 with aggregator none, found 1\.0",
  ):
    none.create_none(mechanism.AggregatorConfig(4.0, noise_multiplier=1.0))
