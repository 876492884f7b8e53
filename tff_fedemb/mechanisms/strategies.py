"""Strategy matrices by name, as ledgers and plans have them."""

from tff_fedemb import registry
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy

# A new strategy is one file and one line here.
_CLASSES: tuple[type[strategy_lib.Strategy], ...] = (
  banded_strategy.BandedToeplitzStrategy,
  blt_strategy.BltStrategy,
  tree_strategy.TreeStrategy,
)
STRATEGIES: registry.Registry[strategy_lib.Strategy] = registry.Registry(
  strategy_lib.Strategy,
  {each.name: each for each in _CLASSES},
  kind="strategy",
)
