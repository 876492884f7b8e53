"""Writes synthetic data in a benchmark's real on-disk format.

python -m tasks.synthetic --task=emnist --output_dir=DIR --num_users=200
"""

import argparse
from collections.abc import Sequence
import sys
from typing import NoReturn

from tasks.synthetic import registry
from tff_fedemb import errors


class _Parser(argparse.ArgumentParser):
  """A parser that tells a mistake in one line, without the usage."""

  def error(self, message: str) -> NoReturn:
    """Prints the mistake and ends the program with status 1.

    Args:
      message: The mistake, in one line.

    Raises:
      SystemExit: Always.
    """
    sys.exit(f"error: {message}")


def main(argv: Sequence[str] | None = None) -> None:
  """Writes the data; a mistake ends the program in one line.

  Args:
    argv: Flags without the program's name; by default those of this process.

  Raises:
    SystemExit: If a flag is wrong, or the directory cannot be written.
  """
  parser = _Parser(
    "python -m tasks.synthetic",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  add = parser.add_argument
  text = "Benchmark whose format is written."
  add("--task", choices=sorted(registry.WRITERS), default="emnist", help=text)
  text = "Directory to write: new, empty, or written with the same flags."
  add("--output_dir", required=True, help=text)
  add("--num_users", type=int, default=200, help="Number of users.")
  add("--seed", type=int, default=0, help="Seed of all randomness.")
  given = parser.parse_args(argv)
  if not given.output_dir:
    parser.error("--output_dir must name a directory, found ''")
  try:
    registry.WRITERS[given.task](
      given.output_dir, num_users=given.num_users, seed=given.seed
    )
  except (errors.FieldError, errors.DataError) as error:
    parser.error(str(error))
  except OSError as error:
    parser.error(f"--output_dir={given.output_dir} cannot be written: {error}")


if __name__ == "__main__":
  main()
