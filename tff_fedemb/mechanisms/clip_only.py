"""Clipping without noise: what clipping alone costs in utility."""

import dataclasses

from etils import epy

from tff_fedemb.mechanisms import gaussian

with epy.lazy_imports():
  import tensorflow_privacy as tfp


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipOnlyConfig(gaussian.GaussianConfig):
  """The Gaussian mechanism without its noise.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: C = `clip_norm`.
    DpEvent: `NonPrivateDpEvent`: a bounded sensitivity without noise protects
      nobody.

  Raises:
    errors.FieldError: If the noise multiplier is not 0.

  Examples:
    >>> mechanism = fe.ClipOnly(clip_norm=0.1)
    >>> users = fe.Poisson(users_per_round=50)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    inf
  """

  adds_noise = False
  is_compared = False

  def build_query(self, specs, made):
    """Builds tensorflow-privacy's own query, in floating point, without noise.

    Exact sums are of no use without noise. Their steps would be too coarse for
    a clip norm that is far above all updates.
    """
    return tfp.GaussianSumQuery(self.clip_norm, 0.0)
