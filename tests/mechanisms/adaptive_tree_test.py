"""Cases of tree aggregation with adaptive clipping."""

from tests.mechanisms import adaptive_gaussian_test
from tests.mechanisms import cases
from tff_fedemb.mechanisms import tree_strategy

CASES = cases.Cases(
  options={
    **adaptive_gaussian_test.OPTIONS,
    **{"restart_every": 4, "noise_seed": 0},
  },
  searchable=frozenset(adaptive_gaussian_test.OPTIONS),
  strategy=tree_strategy.TreeStrategy(4),
  clipping=[
    cases.Slow(restart_every=1),
    {"restart_every": 2, **adaptive_gaussian_test.OTHER},
  ],
  noisy=[
    cases.Slow(restart_every=5, clip_learning_rate=1e-9),
    {"restart_every": 5},
  ],
  once=[cases.Slow(restart_every=5)],
  mistakes=[
    ({}, "restart_every must be given .* found None"),
    adaptive_gaussian_test.too_noisy(restart_every=4),
  ],
)
