"""Cases of the plain mean."""

from tests.mechanisms import cases

NO_NOISE = ({"noise_multiplier": 1.0}, "must be 0 with an aggregator that adds")

CASES = cases.Cases(noisy=(), once=(), mistakes=[NO_NOISE])
