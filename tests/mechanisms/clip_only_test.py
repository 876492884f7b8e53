"""Cases of clipping without noise."""

from tests.mechanisms import cases
from tests.mechanisms import none_test

CASES = cases.Cases(noisy=(), once=(), mistakes=[none_test.NO_NOISE])
