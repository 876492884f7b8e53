"""The registry of aggregators."""

from collections.abc import Callable
import dataclasses

from tff_fedemb.aggregators import adaptive_gaussian
from tff_fedemb.aggregators import adaptive_tree
from tff_fedemb.aggregators import banded
from tff_fedemb.aggregators import blt
from tff_fedemb.aggregators import clip_only
from tff_fedemb.aggregators import gaussian
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import none
from tff_fedemb.aggregators import tree

_CLIPPING = ("target_unclipped_quantile", "clip_learning_rate")


@dataclasses.dataclass(frozen=True)
class Descriptor:
  """An aggregator of the registry.

  Attributes:
    create: Creates it.
    options: Fields of the config, optional ones, that it makes use of.
  """

  create: Callable[[mechanism.AggregatorConfig], mechanism.Mechanism]
  options: tuple[str, ...] = ()


# A new aggregator is one file and one line here.
AGGREGATORS: dict[str, Descriptor] = {
  "adaptive_gaussian": Descriptor(
    adaptive_gaussian.create_adaptive_gaussian, _CLIPPING
  ),
  "adaptive_tree": Descriptor(
    adaptive_tree.create_adaptive_tree,
    ("restart_every", "restart_warmup", "noise_seed", *_CLIPPING),
  ),
  "banded": Descriptor(banded.create_banded, ("num_bands", "noise_seed")),
  "blt": Descriptor(blt.create_blt, ("num_buffers", "noise_seed")),
  "clip_only": Descriptor(clip_only.create_clip_only),
  "gaussian": Descriptor(gaussian.create_gaussian),
  "none": Descriptor(none.create_none),
  "tree": Descriptor(tree.create_tree, ("restart_every", "noise_seed")),
}

_OPTIONS = (
  "restart_every",
  "restart_warmup",
  "num_buffers",
  "num_bands",
  "noise_seed",
  *_CLIPPING,
)


def create_mechanism(
  name: str, config: mechanism.AggregatorConfig
) -> mechanism.Mechanism:
  """Creates an aggregator, with its privacy, by name.

  Args:
    name: A key of `AGGREGATORS`.
    config: Clip norm, noise and expected number of clients; the schedule.

  Returns:
    The mechanism.

  Raises:
    ValueError: If the name is unknown, or the mechanism rejects the config or
      would ignore a part of it.
  """
  if name not in AGGREGATORS:
    raise ValueError(
      f"aggregator must be one of {sorted(AGGREGATORS)}, found {name!r}."
    )
  descriptor = AGGREGATORS[name]
  for option in _OPTIONS:
    value = getattr(config, option)
    if value is not None and option not in descriptor.options:
      raise ValueError(
        f"{option} must not be set with aggregator {name}, which has no use"
        f" for it, found {value}."
      )
  return descriptor.create(config)
