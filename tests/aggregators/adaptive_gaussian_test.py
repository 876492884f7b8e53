"""Cases of the Gaussian mechanism with adaptive clipping."""

from tests.aggregators import adaptive_clipping_test
from tests.aggregators import cases

CASES = cases.Cases(
  options=adaptive_clipping_test.OPTIONS,
  searchable=frozenset(adaptive_clipping_test.OPTIONS),
  clipping=[adaptive_clipping_test.OTHER],
  # Constant as good as, and following its own noise.
  noisy=[cases.Slow(clip_learning_rate=1e-9), {}],
  mistakes=[
    (
      {"target_unclipped_quantile": 1.0},
      r"target_unclipped_quantile must be in \(0, 1\), found 1",
    ),
    adaptive_clipping_test.too_noisy(),
  ],
)
