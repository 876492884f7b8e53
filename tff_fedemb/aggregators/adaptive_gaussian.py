"""Gaussian mechanism whose clip norm follows a quantile of the updates' norms.

Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping".
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb.aggregators import adaptive_clipping

with epy.lazy_imports():
  import tensorflow_privacy as tfp

  from tff_fedemb.aggregators import secret_noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveGaussianConfig(adaptive_clipping.AdaptiveClippingConfig):
  """The Gaussian mechanism with adaptive clipping.

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
  """

  next_clip_norm_fn = staticmethod(
    lambda inner: inner["dp_query_metrics"]["clip"]
  )

  def build_query(self, specs, strategy):
    return self.build_adaptive_query(
      tfp.QuantileAdaptiveClipSumQuery,
      build_sum=lambda clip_norm, stddev, _: (
        secret_noise.SecretGaussianSumQuery(clip_norm, stddev)
      ),
    )
