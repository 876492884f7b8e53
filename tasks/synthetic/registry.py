"""The registry of generators of synthetic data."""

from collections.abc import Callable, Sequence
import functools

from PIL import Image

from tasks.synthetic import characters
from tasks.synthetic import emnist
from tasks.synthetic import photos
from tasks.synthetic import store

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

# Each function draws a row of a contact sheet, of a user or a class.
ROWS: dict[str, Callable[[store.Config, int], Sequence[Image.Image]]] = {
  "emnist": emnist.draw_writer,
  "emnist_compact": emnist.draw_writer,
  "omniglot": characters.draw_character,
  **dict.fromkeys(photos.BENCHMARKS, photos.draw_class),
  **{
    name: functools.partial(photos.draw_user, name=name)
    for name in photos.FOLDERS
  },
}
