"""Writes synthetic data in a benchmark's real on-disk format.

  python -m tasks.synthetic --task=emnist --output_dir=DIR --num_users=200
"""

from collections.abc import Sequence
import sqlite3
import sys

from absl import app
from absl import flags

from tasks.synthetic import emnist

# Each is called as `write(output_dir, *, num_users, seed)`, says what it did,
# keeps what it wrote before with the same arguments, and raises
# `FileExistsError` rather than overwrite anything else.
_WRITERS = {
    'emnist': emnist.write_emnist,
}


# Not at import: the programs in `binaries` have flags of the same names.
def define_flags(flag_values: flags.FlagValues) -> None:
  """Adds this program's flags to `flag_values`."""
  flags.DEFINE_enum(
      'task', 'emnist', sorted(_WRITERS), 'Benchmark whose format is written.',
      flag_values=flag_values,
  )  # fmt: skip
  flags.DEFINE_string(
      'output_dir', None, 'Directory to write to, created if missing.',
      flag_values=flag_values, required=True,
  )  # fmt: skip
  flags.DEFINE_integer(
      'num_users', 200, 'Number of users.', lower_bound=1,
      flag_values=flag_values,
  )  # fmt: skip
  flags.DEFINE_integer(
      'seed', 0, 'Seed of all randomness.', lower_bound=0,
      flag_values=flag_values,
  )  # fmt: skip


def parse_flags(
    argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Returns what is left of `argv`; a mistake ends the program in one line."""
  try:
    return flag_values(argv)
  except flags.Error as error:
    sys.exit(f'error: {error}')


def main(
    argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS
) -> None:
  """Writes the data; a mistake ends the program in one line."""
  if len(argv) > 1:
    sys.exit(f'error: only --flag=value is allowed, found {argv[1]!r}')
  output_dir = flag_values.output_dir
  if not output_dir:
    sys.exit("error: --output_dir must name a directory, found ''")
  try:
    _WRITERS[flag_values.task](
        output_dir, num_users=flag_values.num_users, seed=flag_values.seed
    )
  except FileExistsError as error:
    sys.exit(f'error: --output_dir={output_dir}: {error}; nothing was changed')
  except (OSError, sqlite3.OperationalError) as error:
    sys.exit(
        f'error: --output_dir={output_dir} must be a directory that can'
        f' be written to: {error}'
    )


if __name__ == '__main__':
  define_flags(flags.FLAGS)
  app.run(main, flags_parser=parse_flags)
