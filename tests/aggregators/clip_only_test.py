"""Cases of clipping without noise."""

from tests.aggregators import cases
from tests.aggregators import none_test

CASES = cases.Cases(noisy=(), once=(), mistakes=[none_test.NO_NOISE])
