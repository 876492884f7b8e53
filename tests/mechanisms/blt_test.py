"""Cases of BLT."""

from tests.mechanisms import cases
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib

CASES = cases.Cases(
  options={"num_buffers": 3, "objective": "max_error", "noise_seed": 0},
  strategy=blt_strategy.optimize_blt(
    cases.SCHEDULE,
    strategy_lib.Workload(noise_objective="last"),
    num_buffers=3,
  ),
  noisy=[cases.Slow(num_buffers=1), {}, cases.Slow(num_buffers=3)],
  mistakes=[({"num_buffers": 5}, "num_buffers must be at most 4, found 5")],
)
