"""Measures private fits on features, beside bare NumPy loops.

  python -m binaries.benchmark_features --output_json=benchmark.json

A file of synthetic features is written, up to 3 GB, and deleted afterwards.
Each case and the loop that does the same without privacy read it in processes
of their own and take turns. Time includes reading the file, which the system
may have in its cache. Peak memory includes the pages of the file, which is
mapped into memory; "anonymous" memory does not.
"""

import functools

from benchmarks import feature_groups
from benchmarks import results
from experiments import command_line
from experiments import config_flags

_CONFIG = config_flags.ConfigFlags(feature_groups.FeatureBenchmarkConfig)


def main() -> None:
  """Measures, prints and writes."""
  config = _CONFIG.create()
  cases = feature_groups.parse_cases(config)
  results.check_output(config)
  results.execute(
    config,
    feature_groups.create_groups(cases, config.data_dir),
    functools.partial(feature_groups.all_goals, cases),
  )


if __name__ == "__main__":
  command_line.run(main)
