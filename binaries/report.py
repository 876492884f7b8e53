r"""Writes a report on finished runs: one HTML file, to be opened from disk.

  python -m binaries.report --run_dirs=runs/first,runs/second \
    --output=report.html

It says what is guaranteed to users, how well the models recognise what they
were not trained on, and shows held-out images with their neighbours, unless
those may be of users who trained. The guarantee is worked out anew from each
run's ledger and its record of who took part.
"""

from collections.abc import Sequence

from binaries import command_line
from tff_fedemb.report import page


def main(argv: Sequence[str]) -> None:
  """Writes the report that the flags describe."""
  command_line.execute(argv, __doc__, page.ReportConfig, page.execute)


if __name__ == "__main__":
  command_line.run(main)
