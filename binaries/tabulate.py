r"""Prints a table of finished runs, mean and deviation over seeds.

  python -m binaries.tabulate runs/fedemb_seed1 runs/fedemb_seed2 ...
  python -m binaries.tabulate runs/study/*/ --output_png=recall.png
  python -m binaries.tabulate runs/changed/*/ --baseline=runs/changed/base \
    --output_png=changes.png

Runs that differ in nothing but --seed share a row. The picture has their recall
over the epsilon that they themselves have cost, a curve for each setting with
several noise multipliers; runs without noise stand at the end of the axis.
With --x_axis=num_users it has recall over the number of users instead, a curve
for each algorithm and head.
With --baseline, it has a row for each change of that run's settings.
"""

from collections.abc import Sequence

from binaries import command_line
from binaries import config_flags
from tff_fedemb.report import tabulate


def main(argv: Sequence[str]) -> None:
  """Tabulates the directories on the command line."""
  with config_flags.Parser(argv, __doc__) as parser:
    config = parser.add(tabulate.TabulateConfig)
    run_dirs = parser.parse(takes_arguments=True)
    tabulate.execute(config.create(), run_dirs)


if __name__ == "__main__":
  command_line.run(main)
