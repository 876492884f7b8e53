"""A mechanism: an aggregator, together with what it costs."""

import dataclasses
import math

import dp_accounting
import tensorflow_federated as tff

from tff_fedemb import checks
from tff_fedemb.strategies import strategy as strategy_lib


@dataclasses.dataclass(frozen=True)
class AggregatorConfig:
  """What the flags say about aggregation.

  The fields from `rounds` on are for the mechanisms that say so; the registry
  refuses what a mechanism would ignore.

  Attributes:
    clients_per_round: Expected number of virtual clients in a round, positive:
      the divisor of the sum, whatever number takes part.
    clip_norm: L2 norm C to which each virtual client's update is clipped,
      positive.
    noise_multiplier: Standard deviation of the noise on the *sum*, in units of
      the clip norm; 0 or in [1e-6, 1e6]. With correlated noise: of what it is
      made from, which is that of the first round.
    rounds: Rounds that correlated noise is made for, at least 1.
    min_separation: Rounds from one participation of a user to the next, at
      least 1: what the correlation is optimised for.
    max_participations: Rounds that a user is in at most; None for as many as
      the separation allows.
    restart_every: Rounds of a tree, at least 1; None for a single tree.
    restart_warmup: Rounds of the first tree, fewer than those of the others,
      where these follow the clip norm; None for as many.
    num_buffers: Buffers of a BLT matrix, 1 to 4; None for 2.
    num_bands: Bands of a banded matrix; None for `min_separation`.
    target_unclipped_quantile: Share of updates that adaptive clipping aims to
      leave as they are, in (0, 1); None for 0.5.
    clip_learning_rate: Of the logarithm of the clip norm, positive; None for
      0.2.
    noise_seed: For tests: seed of correlated noise, shared by all runs, which
      voids privacy. None: from the operating system, secret.
  """

  clients_per_round: float
  clip_norm: float = 1.0
  noise_multiplier: float = 0.0
  rounds: int = 1
  min_separation: int = 1
  max_participations: int | None = None
  restart_every: int | None = None
  restart_warmup: int | None = None
  num_buffers: int | None = None
  num_bands: int | None = None
  target_unclipped_quantile: float | None = None
  clip_learning_rate: float | None = None
  noise_seed: int | None = None

  def __post_init__(self):
    for name in ("clients_per_round", "clip_norm", "clip_learning_rate"):
      value = getattr(self, name)
      if value is not None and not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be positive, found {value}.")
    checks.check_noise_multiplier(self.noise_multiplier)
    for name in (
      "rounds",
      "min_separation",
      "max_participations",
      "restart_every",
      "restart_warmup",
      "num_buffers",
      "num_bands",
    ):
      value = getattr(self, name)
      if value is not None and value < 1:
        raise ValueError(f"{name} must be at least 1, found {value}.")
    quantile = self.target_unclipped_quantile
    if quantile is not None and not 0.0 < quantile < 1.0:
      raise ValueError(
        f"target_unclipped_quantile must be in (0, 1), found {quantile}."
      )


@dataclasses.dataclass(frozen=True)
class Mechanism:
  """An aggregator and its privacy.

  Attributes:
    factory: The aggregation itself.
    round_event: What one round releases, for a sensitivity of one clip norm;
      whoever accounts rescales it to the sensitivity that the participation
      has (`privacy.composition.round_event`).
  """

  factory: tff.aggregators.UnweightedAggregationFactory
  round_event: dp_accounting.DpEvent

  @property
  def strategy(self) -> strategy_lib.Strategy | None:
    """Ties the noise of the rounds together; None for independent noise."""
    return getattr(self.round_event, "strategy", None)

  @property
  def noise_multiplier(self) -> float:
    """Noise on the sum in units of the clip norm; 0 for none."""
    return float(getattr(self.round_event, "noise_multiplier", 0.0))


def gaussian_event(noise_multiplier: float) -> dp_accounting.DpEvent:
  """The event of one round of independent noise; not private without."""
  if noise_multiplier == 0.0:
    return dp_accounting.NonPrivateDpEvent()
  return dp_accounting.GaussianDpEvent(float(noise_multiplier))


def check_no_noise(name: str, config: AggregatorConfig) -> None:
  """Refuses a noise multiplier that an aggregator would ignore.

  Args:
    name: The aggregator's.
    config: What it was given.

  Raises:
    ValueError: If the noise multiplier is not 0.
  """
  if config.noise_multiplier != 0.0:
    raise ValueError(
      f"noise_multiplier must be 0 with aggregator {name}, found"
      f" {config.noise_multiplier}."
    )
