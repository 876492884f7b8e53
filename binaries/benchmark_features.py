"""Compares private classifiers on made-up unit vectors, over classes.

  python -m binaries.benchmark_features --output=made_up

For each number of classes every method is fitted at every epsilon. Seeds are
known: nobody is protected.
"""

from collections.abc import Sequence

from benchmarks import feature_cases
from binaries import command_line
from binaries import config_flags


def main(argv: Sequence[str]) -> None:
  """Fits, prints and writes."""
  with config_flags.Parser(argv, __doc__) as parser:
    flags = parser.add(feature_cases.FeatureBenchmarkConfig)
    parser.parse()
    feature_cases.execute(flags.create())


if __name__ == "__main__":
  command_line.run(main)
