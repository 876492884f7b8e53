"""Compares private classifiers on made-up unit vectors, over classes.

  python -m binaries.benchmark_features --output=made_up

For each number of classes every method is fitted at every epsilon. Seeds are
known: nobody is protected.
"""

from collections.abc import Sequence

from benchmarks import feature_cases
from binaries import command_line


def main(argv: Sequence[str]) -> None:
  """Fits, prints and writes."""
  command_line.execute(
    argv, __doc__, feature_cases.FeatureBenchmarkConfig, feature_cases.execute
  )


if __name__ == "__main__":
  command_line.run(main)
