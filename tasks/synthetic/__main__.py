"""Writes synthetic data in a benchmark's real on-disk format.

python -m tasks.synthetic --task=emnist --output_dir=DIR --num_users=200
python -m tasks.synthetic --task=gld --output_dir=DIR --contact_sheet=X.png
"""

from collections.abc import Sequence
import sys

from absl import app
from absl import flags

from tasks.synthetic import registry
from tasks.synthetic import store
from tff_fedemb import errors


# Not at import: the programs in `binaries` have flags of the same names.
def define_flags(flag_values: flags.FlagValues) -> None:
  """Adds this program's flags to `flag_values`."""
  text = "Benchmark whose format is written."
  tasks = sorted(registry.WRITERS)
  flags.DEFINE_enum("task", "emnist", tasks, text, flag_values)
  text = "Directory to write, which may be empty but must hold nothing else."
  flags.DEFINE_string("output_dir", None, text, flag_values, required=True)
  text = "Number of users."
  flags.DEFINE_integer("num_users", 200, text, 1, flag_values=flag_values)
  text = "Seed of all randomness."
  flags.DEFINE_integer("seed", 0, text, 0, flag_values=flag_values)
  text = "PNG file of examples, one row a class or a user."
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
  flag = "output_dir"
  try:
    if rest := argv[1:]:
      raise errors.FieldError("arguments", "be --flag=value alone", repr(rest))
    given = flag_values.flag_values_dict()
    seed, number, sheet = (
      given[name] for name in ("seed", "num_users", "contact_sheet")
    )
    if not given["output_dir"]:
      raise errors.FieldError("--output_dir", "name a directory", "''")
    if sheet is not None and not sheet.endswith(".png"):
      raise errors.FieldError(
        "--contact_sheet", "name a .png file", repr(sheet)
      )
    task = given["task"]
    registry.WRITERS[task](given["output_dir"], num_users=number, seed=seed)
    if sheet is not None:
      flag = "contact_sheet"
      rows = [registry.ROWS[task](seed, row) for row in range(min(number, 8))]
      store.save_sheet(rows, sheet)
      print(f"Wrote {sheet}")
  except (errors.FieldError, errors.DataError) as error:
    sys.exit(f"error: {error}")
  except OSError as error:
    sys.exit(f"error: --{flag}={given[flag]} cannot be written: {error}")


if __name__ == "__main__":
  define_flags(flags.FLAGS)
  app.run(main, flags_parser=parse_flags)
