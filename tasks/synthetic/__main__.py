"""Writes synthetic data in a benchmark's real on-disk format.

python -m tasks.synthetic --task=emnist --output_dir=DIR --num_users=200
python -m tasks.synthetic --task=gld --output_dir=DIR --contact_sheet=X.png
"""

from collections.abc import Sequence
import sys

from absl import app
from absl import flags

from tasks.synthetic import registry
from tff_fedemb import errors


# Not at import: the programs in `binaries` have flags of the same names.
def define_flags(flag_values: flags.FlagValues) -> None:
  """Adds this program's flags to `flag_values`."""
  tasks = sorted(registry.WRITERS)
  text = "Benchmark whose format is written."
  flags.DEFINE_enum("task", "emnist", tasks, text, flag_values)
  text = "Directory to write to, created if missing."
  flags.DEFINE_string("output_dir", None, text, flag_values, required=True)
  text = "Number of users."
  flags.DEFINE_integer("num_users", 200, text, 1, flag_values=flag_values)
  text = "Seed of all randomness."
  flags.DEFINE_integer("seed", 0, text, 0, flag_values=flag_values)
  text = (
    "PNG file in which to draw examples of what was written, one row a class or"
    " a user."
  )
  flags.DEFINE_string("contact_sheet", None, text, flag_values)


def parse_flags(
  argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Returns what is left of `argv`; a mistake ends the program in one line."""
  try:
    return flag_values(argv)
  except flags.Error as error:
    sys.exit(f"error: {error}")


def main(
  argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS
) -> None:
  """Writes the data; a mistake ends the program in one line."""
  if len(argv) > 1:
    sys.exit(f"error: only --flag=value is allowed, found {argv[1]!r}")
  task, output_dir = flag_values.task, flag_values.output_dir
  if not output_dir:
    sys.exit("error: --output_dir must name a directory, found ''")
  contact_sheet = flag_values.contact_sheet
  if contact_sheet is not None and not contact_sheet.endswith(".png"):
    sys.exit(
      f"error: --contact_sheet must name a .png file, found {contact_sheet!r}"
    )
  try:
    registry.WRITERS[task](
      output_dir, num_users=flag_values.num_users, seed=flag_values.seed
    )
  except (errors.FieldError, errors.DataError) as error:
    sys.exit(f"error: {error}")
  except OSError as error:
    sys.exit(
      f"error: --output_dir={output_dir} must be a directory that can be"
      f" written to: {error}"
    )
  if contact_sheet is None:
    return
  try:
    registry.CONTACT_SHEETS[task](output_dir, contact_sheet)
  except OSError as error:
    sys.exit(
      f"error: --contact_sheet={contact_sheet} must be a file that can be"
      f" written: {error}"
    )
  print(f"Wrote {contact_sheet}")


if __name__ == "__main__":
  define_flags(flags.FLAGS)
  app.run(main, flags_parser=parse_flags)
