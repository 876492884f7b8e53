"""The mean without clipping or noise."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb.mechanisms import mechanism

with epy.lazy_imports():
  import tensorflow_privacy as tfp


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoneConfig(mechanism.MechanismConfig):
  """The plain mean; `clip_norm` is not used.

  Privacy:
    Unit, neighbouring relation: any.
    Sensitivity: unbounded.
    DpEvent: `NonPrivateDpEvent`.

  Raises:
    errors.FieldError: If the noise multiplier is not 0.
  """

  clips = False
  adds_noise = False

  def build_query(self, specs, made):
    """Builds tensorflow-privacy's plain sum, without clipping or noise."""
    return tfp.NoPrivacySumQuery()
