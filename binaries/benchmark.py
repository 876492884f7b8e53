"""Measures a round of training: bare TensorFlow, in process, TFF's runtime.

  python -m binaries.benchmark --output_json=benchmark.json

Each runtime works in a process of its own, and they take turns round by round,
so that ratios compare like with like on a machine whose speed drifts. With
--pfl_python, a Python that has torch and pfl-research, that framework does the
same work in the same run.

With Ray installed, rounds on a Ray of this machine are compared with those in
process. After a long run (--rounds=500 --warmup_rounds=0), the file tells how
much memory was resident after each round.
"""

from collections.abc import Sequence

from benchmarks import cases
from benchmarks import results
from binaries import command_line
from binaries import config_flags


def main(argv: Sequence[str]) -> None:
  """Measures, prints and writes."""
  with config_flags.Parser(argv, __doc__) as parser:
    flags = parser.add(results.BenchmarkConfig)
    parser.parse()
    config = flags.create()
    groups = cases.select_groups(config)
    results.execute(config, groups, results.read_goals())


if __name__ == "__main__":
  command_line.run(main)
