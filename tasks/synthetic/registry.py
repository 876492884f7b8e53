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
  "digiface": functools.partial(photos.write_folders, name="digiface"),
  "emnist": emnist.write_emnist,
  "emnist_compact": functools.partial(emnist.write_emnist, compact=True),
  "gld": functools.partial(photos.write_benchmark, name="gld"),
  "inaturalist": functools.partial(photos.write_benchmark, name="inaturalist"),
  "omniglot": characters.write_characters,
  "photos": functools.partial(photos.write_folders, name="photos"),
  "photos_match": functools.partial(photos.write_folders, name="photos_match"),
  "photos_shared": functools.partial(
    photos.write_folders, name="photos_shared"
  ),
  "photos_start": functools.partial(photos.write_folders, name="photos_start"),
}

# Each function draws a row of a contact sheet from a seed and a number.
ROWS: dict[str, Callable[[int, int], Sequence[Image.Image]]] = {
  "digiface": photos.draw_class,
  "emnist": emnist.draw_writer,
  "emnist_compact": emnist.draw_writer,
  "gld": photos.draw_class,
  "inaturalist": photos.draw_class,
  "omniglot": characters.draw_character,
  "photos": photos.draw_person,
  "photos_match": photos.draw_stranger,
  "photos_shared": photos.draw_class,
  "photos_start": photos.draw_start,
}
