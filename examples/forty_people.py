"""Forty made-up people as folders of photos: characters of Omniglot.

  python -m examples.forty_people OMNIGLOT_NPZ OUTPUT_DIR DRAW

A person is a character, and ten of its twenty drawings are the photos: as many
as the ORL database of faces has of each of 40 people.
"""

from collections.abc import Sequence
import pathlib
import sys

import numpy as np
from PIL import Image

_PEOPLE, _PHOTOS = 40, 10


def main(argv: Sequence[str]) -> None:
  """Writes `OUTPUT_DIR/person_<character>/<n>.png` of the draw of a number."""
  source, output_dir, draw = argv[1:]
  rng = np.random.default_rng(1000 + int(draw))
  with np.load(source) as data:
    images, characters = data["images"], data["character_id"]
  people = rng.choice(np.unique(characters), _PEOPLE, replace=False)
  for person in sorted(people):
    folder = pathlib.Path(output_dir, f"person_{person:04d}")
    folder.mkdir(parents=True)
    rows = np.flatnonzero(characters == person)
    for number, row in enumerate(
      sorted(rng.choice(rows, _PHOTOS, replace=False))
    ):
      Image.fromarray(images[row].squeeze()).save(folder / f"{number:02d}.png")


if __name__ == "__main__":
  main(sys.argv)
