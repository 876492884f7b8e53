"""The registry of generators of synthetic data."""

from collections.abc import Callable, Sequence
import functools

from PIL import Image

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
    name: functools.partial(write, name=name)
    for names, write in (
      (photos.FOLDERS, photos.write_folders),
      (photos.BENCHMARKS, photos.write_benchmark),
    )
    for name in names
  },
}

# Each function draws a row of a contact sheet from a seed and a number.
ROWS: dict[str, Callable[[int, int], Sequence[Image.Image]]] = {
  "emnist": emnist.draw_writer,
  "emnist_compact": emnist.draw_writer,
  "omniglot": characters.draw_character,
  **dict.fromkeys(photos.BENCHMARKS, photos.draw_class),
  **{name: draw for name, (*_, draw) in photos.FOLDERS.items()},
}
