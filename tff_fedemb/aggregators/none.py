"""The mean without clipping or noise."""

import math

import dp_accounting
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_fedemb.aggregators import measurements
from tff_fedemb.aggregators import mechanism


def build_none_factory(
  *, clients_per_round: float
) -> tff.aggregators.UnweightedAggregationFactory:
  """Builds the plain mean: sum over clients / expected number of clients."""
  query = tfp.NormalizedQuery(
    tfp.NoPrivacySumQuery(), denominator=float(clients_per_round)
  )
  return measurements.add_round_measurements(
    tff.aggregators.DifferentiallyPrivateFactory(query),
    clip_norm=math.inf,
    noise_per_clip_norm=0.0,
  )


def create_none(config: mechanism.AggregatorConfig) -> mechanism.Mechanism:
  """Creates the plain mean.

  Privacy:
    Unit, neighbouring relation: any.
    Sensitivity: unbounded.
    DpEvent: `NonPrivateDpEvent`.

  Args:
    config: `clip_norm` and `noise_multiplier` are not used.

  Returns:
    The mechanism.

  Raises:
    ValueError: If a noise multiplier is asked for, which would be ignored.
  """
  mechanism.check_no_noise("none", config)
  return mechanism.Mechanism(
    build_none_factory(clients_per_round=config.clients_per_round),
    dp_accounting.NonPrivateDpEvent(),
  )
