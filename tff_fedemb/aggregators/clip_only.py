"""Clipping without noise: what clipping alone costs in utility."""

from tff_fedemb.aggregators import gaussian
from tff_fedemb.aggregators import mechanism


def create_clip_only(config: mechanism.AggregatorConfig) -> mechanism.Mechanism:
  """Creates the Gaussian mechanism without its noise.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: C = `clip_norm`.
    DpEvent: `NonPrivateDpEvent`: a bounded sensitivity without noise protects
      nobody.

  Args:
    config: Clip norm and expected number of clients.

  Returns:
    The mechanism.

  Raises:
    ValueError: If a noise multiplier is asked for, which would be ignored.
  """
  mechanism.check_no_noise("clip_only", config)
  return gaussian.create_gaussian(config)
