"""DigiFace-1M's zips, filled with faces that are drawn on the spot.

DigiFace-1M (Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face
Recognition", WACV 2023) comes in zips of rendered faces, `<subject id>/<k>.png`
of 112 x 112 pixels in colour: subjects 0 ... 9999 with 72 images each, and
100000 ... 199999 with 5. This module writes such zips, of fewer subjects,
without any real data.
"""

from collections.abc import Mapping
import io
import json
import os
import pathlib
import re
import zipfile

import numpy as np
from PIL import Image
import tqdm

from tasks.synthetic import faces
from tasks.synthetic import store
from tff_fedemb import checks

_FIRST_OF_5_IMAGES = 100_000
# With so many subjects a part can be split into three; see `tasks.digiface`.
_MIN_SUBJECTS = 8
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 1
_ZIP_NAME = re.compile(r"subjects_(\d+)-(\d+)_(\d+)_imgs\.zip")
# Of all files in the zips, so that the same parameters give the same bytes.
_TIME = (2023, 1, 1, 0, 0, 0)


def _read_parameters(path: pathlib.Path) -> dict[str, int]:
  """What a zip says about its making; nothing if it was not made here."""
  try:
    with zipfile.ZipFile(path) as archive:
      found = json.loads(archive.comment)
  except (OSError, ValueError, zipfile.BadZipFile):
    return {}
  return found if isinstance(found, dict) else {}


def _write_zip(
  path: pathlib.Path,
  parameters: Mapping[str, int],
  subjects: range,
  images_per_user: int,
) -> None:
  with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
    archive.comment = json.dumps(parameters).encode()
    for subject in tqdm.tqdm(
      subjects, desc=path.name, unit="person", disable=None
    ):
      generator = np.random.default_rng([parameters["seed"], subject])
      person = faces.create_person(generator)
      images = faces.draw_images(person, generator, images_per_user)
      for number, image in enumerate(images):
        info = zipfile.ZipInfo(f"{subject}/{number}.png", _TIME)
        info.external_attr = 0o644 << 16
        content = io.BytesIO()
        # The fastest level: packing takes as long as drawing at the usual one.
        Image.fromarray(image).save(content, "PNG", compress_level=1)
        archive.writestr(info, content.getvalue())


def _plan(num_users: int, images_per_user: int) -> dict[str, tuple[range, int]]:
  """Subjects and images of each, by the name of the zip."""
  few = max(num_users // 4, _MIN_SUBJECTS)
  if num_users - few < _MIN_SUBJECTS:
    few = 0
  parts = [(range(num_users - few), images_per_user)]
  if few:
    parts.append((range(_FIRST_OF_5_IMAGES, _FIRST_OF_5_IMAGES + few), 5))
  return {
    f"subjects_{subjects[0]}-{subjects[-1]}_{number}_imgs.zip": (
      subjects,
      number,
    )
    for subjects, number in parts
  }


def write_digiface(
  output_dir: str | os.PathLike[str],
  *,
  num_users: int = 100,
  seed: int = 0,
  images_per_user: int = 72,
) -> list[str]:
  """Writes faces as DigiFace-1M's zips.

  About three quarters of the people are in `subjects_0-<last>_72_imgs.zip`, the
  others in `subjects_100000-<last>_5_imgs.zip`; with fewer than 16, all are in
  the first. A person is the same for a given seed and number however many
  others there are. A person of 72 images takes about a quarter of a second and
  1 MB. The zips appear under their names only when all are complete.

  Args:
    output_dir: Directory of the zips, created if missing.
    num_users: Number of people, at least 1; from 8 on they can be split into
      training, validation and test.
    seed: Seed of all randomness, at least 0.
    images_per_user: Images of each person in the first zip, at least 2.

  Returns:
    The paths of the zips. Those that were made with the same arguments are
    kept.

  Raises:
    errors.FieldError: If an argument is out of range.
    errors.DataError: If there are zips or subjects' folders of another making.
    OSError: If `output_dir` cannot be created or written.
  """
  parameters = {
    "generator_version": _GENERATOR_VERSION,
    "num_users": checks.check_integer(
      "num_users", num_users, minimum=1, maximum=_FIRST_OF_5_IMAGES
    ),
    "seed": checks.check_integer("seed", seed, minimum=0),
    "images_per_user": checks.check_integer(
      "images_per_user", images_per_user, minimum=2
    ),
  }
  output_dir = store.create_dir(output_dir)
  plan = _plan(num_users, images_per_user)
  made = {
    path.name
    for path in sorted(output_dir.iterdir())
    if path.name.startswith("subjects_") or path.name.isdecimal()
    if store.is_made(path, parameters, _read_parameters(path))
  }
  if not made.issuperset(plan):
    with store.partial_dir(output_dir) as partial:
      for name, (subjects, number) in plan.items():
        _write_zip(partial / name, parameters, subjects, number)
      for name in plan:
        store.move(partial / name, output_dir / name)
  return [str(output_dir / name) for name in plan]


def contact_sheet(
  data_dir: str | os.PathLike[str],
  output_png: str | os.PathLike[str],
  *,
  num_users: int = 8,
  num_images: int = 12,
  side: int = 84,
) -> None:
  """Draws one row a person, from the zip with the most images a person.

  Args:
    data_dir: Directory with zips of DigiFace-1M, generated or real.
    output_png: Where to write the picture.
    num_users: Number of people to show, the first by number.
    num_images: Number of images of each, the first.
    side: Pixels of an image in the picture.

  Raises:
    FileNotFoundError: If there is no such zip.
  """
  zips = [
    (-int(match[3]), int(match[1]), path)
    for path in pathlib.Path(data_dir).iterdir()
    if (match := _ZIP_NAME.fullmatch(path.name))
  ]
  if not zips:
    raise FileNotFoundError(
      f"data_dir must hold subjects_*_imgs.zip, found {data_dir}"
    )
  with zipfile.ZipFile(min(zips)[-1]) as archive:
    images: dict[int, list[int]] = {}
    for name in archive.namelist():
      if match := re.fullmatch(r"(\d+)/(\d+)\.png", name):
        images.setdefault(int(match[1]), []).append(int(match[2]))
    rows = [
      [
        archive.read(f"{subject}/{number}.png")
        for number in sorted(images[subject])[:num_images]
      ]
      for subject in sorted(images)[:num_users]
    ]
  store.save_sheet(rows, output_png, side=side)
