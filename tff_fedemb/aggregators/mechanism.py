"""A mechanism: an aggregator, together with what it costs."""

import dataclasses
import math

import dp_accounting
import tensorflow_federated as tff


@dataclasses.dataclass(frozen=True)
class AggregatorConfig:
  """What the flags say about aggregation.

  Attributes:
    clients_per_round: Expected number of virtual clients in a round, positive:
      the divisor of the sum, whatever number takes part.
    clip_norm: L2 norm C to which each virtual client's update is clipped,
      positive.
    noise_multiplier: Standard deviation of the noise on the *sum*, in units of
      the clip norm; not negative.
  """

  clients_per_round: float
  clip_norm: float = 1.0
  noise_multiplier: float = 0.0

  def __post_init__(self):
    for name in ("clients_per_round", "clip_norm"):
      value = getattr(self, name)
      if not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be positive, found {value}.")
    if not 0.0 <= self.noise_multiplier < math.inf:
      raise ValueError(
          "noise_multiplier must be at least 0, found"
          f" {self.noise_multiplier}."
      )


@dataclasses.dataclass(frozen=True)
class Mechanism:
  """An aggregator and its privacy.

  Attributes:
    factory: The aggregation itself.
    round_event: What one round releases, for a sensitivity of one clip norm;
      whoever accounts rescales it to the sensitivity that the participation
      has (`privacy.accounting.round_event`).
  """

  factory: tff.aggregators.UnweightedAggregationFactory
  round_event: dp_accounting.DpEvent

  @property
  def noise_multiplier(self) -> float:
    """Noise on the sum in units of the clip norm; 0 for none."""
    return float(getattr(self.round_event, "noise_multiplier", 0.0))


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
