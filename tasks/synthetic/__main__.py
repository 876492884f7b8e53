"""Writes synthetic data in a benchmark's real on-disk format.

python -m tasks.synthetic --task=emnist --output_dir=DIR --num_users=200
python -m tasks.synthetic --task=gld --output_dir=DIR --contact_sheet=X.png
"""

import argparse
from collections.abc import Sequence
import sys
from typing import NoReturn

from tasks.synthetic import registry
from tasks.synthetic import store
from tff_fedemb import errors


class _Parser(argparse.ArgumentParser):
  """Tells a mistake in one line."""

  def error(self, message: str) -> NoReturn:
    sys.exit(f"error: {message}")


def main(argv: Sequence[str] | None = None) -> None:
  """Writes the data; a mistake ends the program in one line."""
  parser = _Parser(
    "python -m tasks.synthetic",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  add = parser.add_argument
  text = "Benchmark whose format is written."
  add("--task", choices=sorted(registry.WRITERS), default="emnist", help=text)
  text = "Directory to write, which may be empty but must hold nothing else."
  add("--output_dir", required=True, help=text)
  add("--num_users", type=int, default=200, help="Number of users.")
  add("--seed", type=int, default=0, help="Seed of all randomness.")
  text = "PNG file of examples, one row a class or a user."
  add("--contact_sheet", help=text)
  given = parser.parse_args(argv)
  sheet, place = given.contact_sheet, "output_dir"
  if not given.output_dir:
    parser.error("--output_dir must name a directory, found ''")
  if sheet is not None and not sheet.endswith(".png"):
    parser.error(f"--contact_sheet must name a .png file, found {sheet!r}")
  try:
    registry.WRITERS[given.task](
      given.output_dir, num_users=given.num_users, seed=given.seed
    )
    if sheet is not None:
      place = "contact_sheet"
      config = store.Config(num_users=given.num_users, seed=given.seed)
      draw = registry.ROWS[given.task]
      rows = [draw(config, row) for row in range(min(given.num_users, 8))]
      store.save_sheet(rows, sheet)
      print(f"Wrote {sheet}")
  except (errors.FieldError, errors.DataError) as error:
    parser.error(str(error))
  except OSError as error:
    found = getattr(given, place)
    parser.error(f"--{place}={found} cannot be written: {error}")


if __name__ == "__main__":
  main()
