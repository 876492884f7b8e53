"""The registry of strategies."""

from tff_fedemb import registry
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

# A new strategy is one file and one line here.
STRATEGIES: registry.Registry[strategy_lib.Strategy] = registry.Registry(
  strategy_lib.Strategy,
  {
    found.name: found
    for found in (
      banded.BandedToeplitzStrategy,
      blt.BltStrategy,
      tree.TreeStrategy,
    )
  },
  kind="strategy",
)
