"""Clip norms that follow a quantile of the updates' norms.

Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping".
"""

import dataclasses

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism

_COUNT_STDDEV_PER_CLIENT = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveClippingConfig(mechanism.MechanismConfig):
  """What mechanisms whose clip norm follows a quantile are made from.

  Attributes:
    target_unclipped_quantile: Share of updates that adaptive clipping aims to
      leave as they are.
    clip_learning_rate: Learning rate of the logarithm of an adaptive clip norm.
  """

  target_unclipped_quantile: float = config.field(
    0.5, above=0, below=1, searchable=True
  )
  clip_learning_rate: float = config.field(0.2, above=0, searchable=True)

  def __post_init__(self):
    super().__post_init__()
    if self.clients_per_round is None:
      return
    if self.noise_multiplier and self.noise_multiplier >= 2 * self.count_stddev:
      raise errors.FieldError(
        "noise_multiplier",
        "be less than a tenth of clients_per_round,"
        f" {2 * self.count_stddev:g}, with adaptive clipping",
        f"{self.noise_multiplier:g}",
      )

  @property
  def count_stddev(self) -> float:
    """Noise on the count of clipped updates, s = 0.05 x `clients_per_round`.

    0 without noise. Andrew et al. 2021, section 2.3.
    """
    has_noise = self.noise_multiplier > 0.0
    return has_noise * _COUNT_STDDEV_PER_CLIENT * self.clients_per_round

  @property
  def noise_multiplier_of_sum(self) -> float:
    """What is left of the noise multiplier z for the sum of updates.

    z_sum with z^-2 = z_sum^-2 + (2 s)^-2: the count changes by 1/2 where the
    sum changes by its clip norm. 0 without noise.
    """
    if not self.noise_multiplier:
      return 0.0
    precision = self.noise_multiplier**-2 - (2.0 * self.count_stddev) ** -2
    return precision**-0.5
