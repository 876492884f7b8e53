"""Random symbols in the format of Omniglot: images from a process alone.

They are those of `tasks.synthetic.strokes`, which says how they are drawn and
what they are good for.
"""

import pathlib
from typing import Any

import numpy as np

from tasks.synthetic import store

FILE_NAME = "omniglot_background_28.npz"
# Images of a character.
_IMAGES = 20
# Alphabets take characters in turn, so held-out alphabets are like the others.
_NUM_ALPHABETS = 30


def draw_images(seed: int, number: int) -> np.ndarray:
  """Draws images of one character, the same for the same seed and number.

  TensorFlow is imported by the first call.

  Args:
    seed: Seed of all characters.
    number: Number of the character.

  Returns:
    Uint8 `[20, 28, 28]`, paper 255 and ink towards 0.
  """
  # TensorFlow takes seconds to load; a program's help does without it.
  from tasks.synthetic import strokes

  symbols = strokes.Symbols(seed)
  images = symbols.draw(
    np.array([number], np.int64), np.array([_IMAGES], np.int32)
  )
  return images.numpy()[..., 0]


def write_characters(output_dir: store.Path, **fields: Any) -> str:
  """Writes random characters as Omniglot's compact file.

  A user is a character, which is the same for a given seed however many others
  there are. There are 20 images of each, and 30 alphabets, which take
  characters in turn.

  Args:
    output_dir: The folder.
    **fields: Those of `store.Config`.

  Returns:
    The path of the file.

  Raises:
    errors.FieldError: If one of them is out of range.
    errors.DataError: If the folder holds something else.
  """
  given = store.Config(**fields)

  def write(folder: pathlib.Path) -> None:
    images = []
    for number in store.show_progress(given.num_users):
      images.append(draw_images(given.seed, number))
    characters = np.repeat(np.arange(given.num_users), _IMAGES)
    num_alphabets = min(_NUM_ALPHABETS, given.num_users)
    np.savez_compressed(
      folder / FILE_NAME,
      images=np.concatenate(images),
      character_id=characters,
      alphabet_id=characters % num_alphabets,
      alphabets=np.array([f"random_{n:02}" for n in range(num_alphabets)]),
    )

  folder = store.write_data(output_dir, given, write, name="omniglot")
  return str(folder / FILE_NAME)
