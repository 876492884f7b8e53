"""Cases of banded matrices."""

from tests.mechanisms import cases
from tff_fedemb.mechanisms import banded_strategy

CASES = cases.Cases(
  options={"num_bands": 3, "noise_seed": 0},
  strategy=banded_strategy.optimize_banded(cases.SCHEDULE, num_bands=3),
  noisy=[cases.Slow(num_bands=1), cases.Slow(num_bands=2), {}],
  mistakes=[
    ({"num_bands": 5}, r"num_bands must be in .* \[1, 4\], found 5"),
  ],
)
