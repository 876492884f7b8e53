"""Gaussian mechanism on a secure sum: fixed point, and the server's noise.

The server sees only the sum of the updates (Bonawitz et al. 2017, "Practical
Secure Aggregation for Privacy-Preserving Machine Learning"), to which it adds
the noise of McMahan et al. 2018. A simulation computes the secure sum in the
clear: see `runtime.secure_sums`.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb.aggregators import mechanism

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_fedemb.aggregators import secret_noise

# Share of the clip norm that is left to rounding. TFF sends 32 bits for each
# number from -C to C: it moves by at most C / (2^32 - 1), and the norm of d of
# them by sqrt(d) times that, which is less than this share up to 2^31 numbers.
_ROUNDING = 2.0**-16


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureGaussianConfig(mechanism.MechanismConfig):
  """The Gaussian mechanism on a secure sum.

  Each update is clipped to L2 norm (1 - 2^-16) C with C = `clip_norm` and
  rounded to 32 bits a number, of which the secure sum is exact. The rest is the
  Gaussian mechanism's: N(0, (z C)^2) with z = `noise_multiplier` is added by
  the server, and the result is divided by the *expected* number of clients.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, of which the sum changes by
      at most C.
    Sensitivity: C, of updates as they are after rounding: it adds at most
      sqrt(d) / (2^32 - 1) < 2^-16 clip norms to the norm of d < 2^31 numbers,
      which is what clipping leaves. 2 C where one user changes one update into
      another, as of `gaussian`.
    DpEvent: `GaussianDpEvent(noise_multiplier)` per round, before
      amplification; `NonPrivateDpEvent` at noise multiplier 0. The server is
      trusted with the noise: that it sees no single update is not a part of
      epsilon. Losses and measurements of a round are summed in the clear.
  """

  sums_securely = True

  @property
  def _bound(self) -> float:
    return self.clip_norm * (1.0 - _ROUNDING)

  def build_query(self, specs, strategy):
    return secret_noise.SecretGaussianSumQuery(
      self._bound, self.clip_norm * self.noise_multiplier
    )

  def build_factory(self, strategy):
    return dataclasses.replace(
      super().build_factory(strategy),
      sum_factory=tff.aggregators.SecureSumFactory(self._bound),
    )
