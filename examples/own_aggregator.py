"""An aggregator of your own: the Gaussian mechanism with tighter clipping.

Copy this file, change what `build_query` does, and name the class:

  python -m binaries.run_federated --noise_multiplier=1 --kept_share=0.5 \
    --aggregator=examples.own_aggregator:OwnAggregator ...

Training, `account`, `report`, `tune` and the plan before a run work with it.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb import config
from tff_fedemb.mechanisms import mechanism

with epy.lazy_imports():
  import tensorflow_privacy as tfp

  from tff_fedemb.mechanisms import secret_noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnAggregator(mechanism.MechanismConfig):
  """The Gaussian mechanism, which clips to less than the clip norm C.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: `kept_share` C, which is at most C.
    DpEvent: `GaussianDpEvent(noise_multiplier)` per round, as for C.

  Attributes:
    kept_share: Share of the clip norm to which updates are clipped.
  """

  noise_in_words = "independent, of a class of its own"

  kept_share: float = config.field(1.0, above=0, maximum=1)

  def build_query(self, specs, made) -> tfp.DPQuery:
    del specs, made
    return secret_noise.SecretGaussianSumQuery(
      self.clip_norm * self.kept_share, self.clip_norm * self.noise_multiplier
    )
