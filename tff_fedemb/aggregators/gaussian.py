"""Gaussian mechanism with a fixed clip norm.

McMahan et al. 2018 ("Learning Differentially Private Recurrent Language
Models", algorithm 1, fixed-denominator estimator); Xu et al. 2023, section 3.
"""

import tensorflow_federated as tff

from tff_fedemb.aggregators import measurements
from tff_fedemb.aggregators import mechanism


def create_gaussian(config: mechanism.AggregatorConfig) -> mechanism.Mechanism:
  """Creates the Gaussian mechanism.

  Each update is clipped to L2 norm C = `clip_norm` (all tensors together), the
  clipped updates are summed, N(0, (z C)^2) with z = `noise_multiplier` is
  added to every number of the sum, fresh for each tensor and round, and the
  result is divided by the *expected* number of virtual clients.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, of which the sum changes by
      at most C.
    Sensitivity: C. With several users in a virtual client, or with fixed-size
      sampling, one *user* changes one clipped update into another, which is
      2 C: the participation says which, and the accountant divides.
    DpEvent: `GaussianDpEvent(noise_multiplier)` per round, before
      amplification; `NonPrivateDpEvent` at noise multiplier 0.

  Args:
    config: Clip norm, noise multiplier and expected number of clients.

  Returns:
    The mechanism.
  """
  noise_multiplier = float(config.noise_multiplier)
  factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=noise_multiplier,
    clients_per_round=float(config.clients_per_round),
    clip=float(config.clip_norm),
  )
  return mechanism.Mechanism(
    measurements.add_round_measurements(
      factory,
      clip_norm=config.clip_norm,
      noise_per_clip_norm=noise_multiplier / config.clients_per_round,
    ),
    mechanism.gaussian_event(noise_multiplier),
  )
