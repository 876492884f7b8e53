"""Cases of the Gaussian mechanism, and of what all have in common."""

from tests.mechanisms import cases

CASES = cases.Cases(
  mistakes=[
    ({"clip_norm": -1.0}, "clip_norm must be positive, found -1"),
    ({"clip_norm": 1e39}, r"clip_norm must be in \[1e-15, 1e\+15\]"),
    ({"clip_norm": 1e-38}, r"clip_norm must be in \[1e-15, 1e\+15\]"),
    ({"noise_multiplier": -1.0}, "must be 0 or in .* found -1"),
  ],
)
