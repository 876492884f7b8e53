"""The registry of strategies."""

from tff_fedemb import registry
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy

# A new strategy is one file and one line here.
STRATEGIES: registry.Registry[strategy_lib.Strategy] = registry.Registry(
  strategy_lib.Strategy,
  {
    "banded": banded_strategy.BandedToeplitzStrategy,
    "blt": blt_strategy.BltStrategy,
    "tree": tree_strategy.TreeStrategy,
  },
  kind="strategy",
)
