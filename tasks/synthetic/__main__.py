"""Writes synthetic data in a benchmark's real on-disk format.

  python -m tasks.synthetic --task=emnist --output_dir=DIR --num_users=200
"""

from collections.abc import Sequence
import sqlite3
import sys

from absl import app, flags

from tasks.synthetic import glyphs

# Each is called as `write(output_dir, *, num_users, seed)`, says what it did,
# keeps what it wrote before with the same arguments, and raises
# `FileExistsError` rather than overwrite anything else.
_WRITERS = {
    'emnist': glyphs.write_emnist,
}

_TASK = flags.DEFINE_enum(
    'task', 'emnist', sorted(_WRITERS), 'Benchmark whose format is written.'
)
_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'Directory to write to, created if missing.',
    required=True,
)  # fmt: skip
_NUM_USERS = flags.DEFINE_integer(
    'num_users', 200, 'Number of users.', lower_bound=1
)
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Seed of all randomness.', lower_bound=0
)


def _parse_flags(argv: Sequence[str]) -> list[str]:
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    sys.exit(f'error: {error}')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    sys.exit(f'error: only --flag=value is allowed, found {argv[1]!r}')
  if not _OUTPUT_DIR.value:
    sys.exit("error: --output_dir must name a directory, found ''")
  try:
    _WRITERS[_TASK.value](
        _OUTPUT_DIR.value, num_users=_NUM_USERS.value, seed=_SEED.value
    )
  except FileExistsError as error:
    sys.exit(
        f'error: --output_dir={_OUTPUT_DIR.value}: {error}; nothing was changed'
    )
  except (OSError, sqlite3.OperationalError) as error:
    sys.exit(
        f'error: --output_dir={_OUTPUT_DIR.value} must be a directory that can'
        f' be written to: {error}'
    )


if __name__ == '__main__':
  app.run(main, flags_parser=_parse_flags)
