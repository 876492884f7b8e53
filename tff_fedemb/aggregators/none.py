"""The mean without clipping or noise."""

from __future__ import annotations

import dataclasses
import math

from etils import epy
import numpy as np

from tff_fedemb.aggregators import mechanism

with epy.lazy_imports():
  import tensorflow_federated as tff
  import tensorflow_privacy as tfp

  from tff_fedemb.aggregators import measurements


def build_none_factory(
  *, clients_per_round: float
) -> tff.aggregators.UnweightedAggregationFactory:
  """Builds the plain mean: sum over clients / expected number of clients."""
  return measurements.MeasuredFactory(
    mechanism.build_mean(tfp.NoPrivacySumQuery(), clients_per_round),
    clip_norm=math.inf,
    noise_per_clip_norm=np.zeros(1),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoneConfig(mechanism.MechanismConfig):
  """The plain mean; `clip_norm` is not used.

  Privacy:
    Unit, neighbouring relation: any.
    Sensitivity: unbounded.
    DpEvent: `NonPrivateDpEvent`.

  Raises:
    errors.FieldError: If a noise multiplier is asked for, which would be
      ignored.
  """

  def __post_init__(self):
    super().__post_init__()
    mechanism.check_no_noise("none", self)

  def create(
    self, schedule: mechanism.Schedule = mechanism.ONE_ROUND
  ) -> mechanism.Mechanism:
    """Creates the mechanism; the schedule makes no difference."""
    del schedule
    return mechanism.Mechanism(
      build_none_factory(clients_per_round=self.clients_per_round)
    )
