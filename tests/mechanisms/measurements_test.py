"""Tests of what every aggregator reports."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.mechanisms import released
from tff_fedemb import errors
from tff_fedemb.mechanisms import measurements
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import registry
from tff_fedemb.mechanisms import strategy


def _update(norm):
  """An update of two tensors, whose norm is that of both together."""
  update = np.zeros(released.SIZE)
  update[[0, 4]] = 0.6 * norm, 0.8 * norm
  return update


@pytest.mark.parametrize(
  ("norms", "median"),
  [
    ((0.0, 0.0, 7.0), 0.0),
    # The lower of the two in the middle.
    ((1.0, 2.0, 3.0, 4.0), 2.0),
    # Off the ends of the scale.
    ((1e-12,), 0.0),
    ((1e12,), 1e8),
    ((), 0.0),
  ],
)
def test_median(create_aggregation, norms, median):
  aggregation = create_aggregation("none", clients_per_round=4.0)
  report = aggregation.run([[_update(norm) for norm in norms]]).reports[0]
  assert report["median_update_norm"] == pytest.approx(median, rel=0.003)
  assert report["num_clients"] == len(norms)


def test_noise_that_changes_over_rounds(create_aggregation):
  aggregation = create_aggregation(
    "tree", rounds=4, clients_per_round=4.0, clip_norm=2.0, noise_multiplier=3.0
  )
  stated = aggregation.run_on_zeros(6).column("noise_stddev_of_mean")
  # The estimate of the root of four has variance 4/7, that of the three rounds
  # before it 2/3 + 1, and their covariance is 2/3 x 2/7 + 2 x 1/3 x 1/7 + 1/7.
  fourth = math.sqrt(4 / 7 + 5 / 3 - 2 * 3 / 7)
  # Beyond what was planned, that of the last round.
  np.testing.assert_allclose(
    stated / 1.5, [1.0, 1.0, 1.0, fourth, fourth, fourth], rtol=1e-5
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums(mechanism.MechanismConfig):
  """TFF's own sum in place of a query; it protects nothing."""

  def build_factory(self, made):
    del made
    return tff.aggregators.SumFactory()


def test_any_factory_of_tff_is_measured(create_aggregation):
  aggregation = create_aggregation(f"{__name__}:Sums", clients_per_round=4.0)
  rounds = aggregation.run([[_update(1.0), _update(2.0)]])
  np.testing.assert_allclose(rounds.means[0], _update(3.0), rtol=1e-6)
  assert rounds.reports[0]["num_clients"] == 2
  assert rounds.reports[0]["median_update_norm"] == pytest.approx(1, rel=0.003)


@pytest.mark.parametrize("name", ["gaussian", "tree", "clip_only", "none"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_updates_of_other_types_are_refused(name, dtype):
  config = registry.AGGREGATORS.create(name)
  schedule = strategy.Schedule(rounds=2)
  expected = f"value_type must be of float32, .*, found {np.dtype(dtype).name}."
  for value_type in (dtype, [(np.float32, [2]), (dtype, [3])]):
    with pytest.raises(errors.FieldError, match=expected):
      config.create(4.0, schedule).factory.create(tff.to_type(value_type))


@pytest.mark.parametrize("norm", [np.inf, np.nan, 1e30])
def test_what_has_no_norm_counts_as_the_largest(norm):
  found = measurements._norm_bin(tf.constant(norm, tf.float32))
  assert found == measurements._NUM_BINS
