"""Measures private fits on features, beside bare NumPy loops.

  python -m binaries.benchmark_features --output_json=benchmark.json

A file of synthetic features is written, up to 3 GB, and deleted afterwards.
Each case and the loop that does the same without privacy read it in processes
of their own and take turns. Time includes reading the file, which the system
may have in its cache. Peak memory includes the pages of the file, which is
mapped into memory; "anonymous" memory does not.
"""

from collections.abc import Sequence

from benchmarks import feature_cases
from benchmarks import results
from binaries import command_line
from binaries import config_flags


def main(argv: Sequence[str]) -> None:
  """Measures, prints and writes."""
  with config_flags.Parser(argv, __doc__) as parser:
    flags = parser.add(feature_cases.FeatureBenchmarkConfig)
    parser.parse()
    config = flags.create()
    feature_cases.check(config)
    results.execute(
      config,
      feature_cases.create_groups(config),
      feature_cases.read_goals(config.cases),
    )


if __name__ == "__main__":
  command_line.run(main)
