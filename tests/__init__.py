"""Tests, and programs that tests start."""

# Some import TFF, which needs what this keeps out.
import tff_fedemb  # noqa: F401
