"""The registry of generators of synthetic data."""

from collections.abc import Callable
import functools

from tasks.synthetic import characters
from tasks.synthetic import emnist
from tasks.synthetic import photos

# Each is called as `write(output_dir, *, num_users, seed)`, says what it did,
# keeps what it wrote before with the same arguments, and raises
# `errors.DataError` rather than overwrite anything else.
WRITERS: dict[str, Callable[..., object]] = {
  "emnist": emnist.write_emnist,
  "emnist_compact": functools.partial(emnist.write_emnist, compact=True),
  "omniglot": characters.write_characters,
  **{
    name: functools.partial(photos.write_folders, name=name)
    for name in photos.FOLDERS
  },
  **{
    name: functools.partial(photos.write_benchmark, name=name)
    for name in photos.BENCHMARKS
  },
}
