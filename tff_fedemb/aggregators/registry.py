"""The registry of aggregators."""

from collections.abc import Callable

from tff_fedemb.aggregators import clip_only
from tff_fedemb.aggregators import gaussian
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import none

# A new aggregator is one file and one line here.
AGGREGATORS: dict[
    str, Callable[[mechanism.AggregatorConfig], mechanism.Mechanism]
] = {
    "clip_only": clip_only.create_clip_only,
    "gaussian": gaussian.create_gaussian,
    "none": none.create_none,
}


def create_mechanism(
    name: str, config: mechanism.AggregatorConfig
) -> mechanism.Mechanism:
  """Creates an aggregator, with its privacy, by name.

  Args:
    name: A key of `AGGREGATORS`.
    config: Clip norm, noise and expected number of clients.

  Returns:
    The mechanism.

  Raises:
    ValueError: If the name is unknown or the mechanism rejects the config.
  """
  if name not in AGGREGATORS:
    raise ValueError(
        f"aggregator must be one of {sorted(AGGREGATORS)}, found {name!r}."
    )
  return AGGREGATORS[name](config)
