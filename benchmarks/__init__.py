# Benchmarks import TFF, which needs what this keeps out.
import tff_fedemb  # noqa: F401
