"""Gaussian mechanism whose clip norm follows a quantile of the updates' norms.

Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping".
"""

import tensorflow_federated as tff

from tff_fedemb.aggregators import measurements
from tff_fedemb.aggregators import mechanism

_COUNT_STDDEV_PER_CLIENT = 0.05
_TARGET_UNCLIPPED_QUANTILE = 0.5
_CLIP_LEARNING_RATE = 0.2


def split_noise(config: mechanism.AggregatorConfig) -> tuple[float, float]:
  """Splits the noise between the sum of updates and the count of clipped ones.

  Andrew et al. 2021, section 2.3.

  Args:
    config: noise_multiplier z and clients_per_round.

  Returns:
    The sum's noise multiplier and the standard deviation s of the count's
    noise, 0.05 x clients_per_round, with z^-2 = z_sum^-2 + (2 s)^-2: the count
    changes by 1/2 where the sum changes by its clip norm. Zeros without noise.

  Raises:
    ValueError: If z is not below 2 s, which no noise on the sum makes up for.
  """
  noise_multiplier = config.noise_multiplier
  if noise_multiplier == 0.0:
    return 0.0, 0.0
  count_stddev = _COUNT_STDDEV_PER_CLIENT * config.clients_per_round
  if noise_multiplier >= 2.0 * count_stddev:
    raise ValueError(
      "noise_multiplier must be less than a tenth of clients_per_round,"
      f" {2.0 * count_stddev:g}, with adaptive clipping, found"
      f" {noise_multiplier:g}."
    )
  precision = noise_multiplier**-2 - (2.0 * count_stddev) ** -2
  return precision**-0.5, count_stddev


def clipping_options(config: mechanism.AggregatorConfig) -> tuple[float, float]:
  """Returns the quantile to follow and the learning rate, or the defaults."""
  return (
    config.target_unclipped_quantile or _TARGET_UNCLIPPED_QUANTILE,
    config.clip_learning_rate or _CLIP_LEARNING_RATE,
  )


def create_adaptive_gaussian(
  config: mechanism.AggregatorConfig,
) -> mechanism.Mechanism:
  """Creates the Gaussian mechanism with adaptive clipping.

  `clip_norm` is where the clip norm C starts. After each round it is multiplied
  by exp(-`clip_learning_rate` x (b - `target_unclipped_quantile`)), where b is
  the share of updates that were not clipped, its count noised with standard
  deviation s = 0.05 x `clients_per_round`.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, by which the sum changes by
      at most C and the count, of +-1/2 for each update, by 1/2.
    Sensitivity: C and 1/2 together, one unit of the pair. With several users
      in a virtual client, or with fixed-size sampling, one *user* changes one
      clipped update into another: 2 C and 1, two units. The participation says
      which, and the accountant divides.
    DpEvent: `GaussianDpEvent(z)` per round for both releases together, z =
      `noise_multiplier`: the sum gets the larger multiplier z_sum for which
      z^-2 = z_sum^-2 + (2 s)^-2 (section 2.3 of the paper);
      `NonPrivateDpEvent` at noise multiplier 0.

  Args:
    config: Also target_unclipped_quantile and clip_learning_rate.

  Returns:
    The mechanism.

  Raises:
    ValueError: If the noise multiplier is not below 2 s, which no noise on the
      sum could make up for.
  """
  of_sum, count_stddev = split_noise(config)
  quantile, clip_learning_rate = clipping_options(config)
  factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
    noise_multiplier=float(config.noise_multiplier),
    clients_per_round=float(config.clients_per_round),
    initial_l2_norm_clip=float(config.clip_norm),
    target_unclipped_quantile=quantile,
    learning_rate=clip_learning_rate,
    clipped_count_stddev=count_stddev,
  )
  return mechanism.Mechanism(
    measurements.add_round_measurements(
      factory,
      clip_norm=config.clip_norm,
      noise_per_clip_norm=of_sum / config.clients_per_round,
      next_clip_norm_fn=lambda inner: inner["dp_query_metrics"]["clip"],
    ),
    mechanism.gaussian_event(config.noise_multiplier),
  )
