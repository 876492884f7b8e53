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
import shutil
import zipfile

import numpy as np
from PIL import Image
import tqdm

from tasks.synthetic import faces

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


def _describe(parameters: Mapping[str, int]) -> str:
  return ", ".join(f"{key}={value}" for key, value in parameters.items())


def _encode(image: np.ndarray) -> bytes:
  content = io.BytesIO()
  # The fastest level: packing takes as long as drawing at the usual one.
  Image.fromarray(image).save(content, "PNG", compress_level=1)
  return content.getvalue()


def _write_zip(
  path: pathlib.Path,
  parameters: Mapping[str, int],
  subjects: range,
  images_per_user: int,
  progress: tqdm.tqdm,
) -> None:
  with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
    archive.comment = json.dumps(parameters).encode()
    for subject in subjects:
      generator = np.random.default_rng(
        np.random.SeedSequence([parameters["seed"], subject])
      )
      person = faces.create_person(generator)
      images = faces.draw_images(person, generator, images_per_user)
      for number, image in enumerate(images):
        info = zipfile.ZipInfo(f"{subject}/{number}.png", _TIME)
        info.external_attr = 0o644 << 16
        archive.writestr(info, _encode(image))
      progress.update()


def _plan(num_users: int, images_per_user: int) -> dict[str, tuple[range, int]]:
  """Subjects and images of each, by the name of the zip."""
  few = max(num_users // 4, _MIN_SUBJECTS)
  if num_users - few < _MIN_SUBJECTS:
    few = 0
  many = num_users - few
  plan = {
    f"subjects_0-{many - 1}_{images_per_user}_imgs.zip": (
      range(many),
      images_per_user,
    )
  }
  if few:
    last = _FIRST_OF_5_IMAGES + few - 1
    plan[f"subjects_{_FIRST_OF_5_IMAGES}-{last}_5_imgs.zip"] = (
      range(_FIRST_OF_5_IMAGES, last + 1),
      5,
    )
  return plan


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
    ValueError: If an argument is out of range.
    FileExistsError: If there are zips or subjects' folders of another making.
    OSError: If `output_dir` cannot be created or written.
  """
  for name, value, least in (
    ("num_users", num_users, 1),
    ("seed", seed, 0),
    ("images_per_user", images_per_user, 2),
  ):
    if value < least:
      raise ValueError(f"{name} must be at least {least}, found {value}")
  if num_users > _FIRST_OF_5_IMAGES:
    raise ValueError(
      f"num_users must be at most {_FIRST_OF_5_IMAGES}, found {num_users}"
    )
  parameters = {
    "generator_version": _GENERATOR_VERSION,
    "num_users": num_users,
    "seed": seed,
    "images_per_user": images_per_user,
  }
  output_dir = pathlib.Path(output_dir)
  if output_dir.exists() and not output_dir.is_dir():
    raise NotADirectoryError(f"output_dir must be a directory: {output_dir}")
  output_dir.mkdir(parents=True, exist_ok=True)
  plan = _plan(num_users, images_per_user)
  paths = [output_dir / name for name in plan]
  if _is_there(output_dir, paths, parameters):
    print(f"{output_dir} is filled already, with the same parameters; kept")
    return [str(path) for path in paths]

  partial_dir = output_dir / f".digiface.{os.getpid()}.partial"
  shutil.rmtree(partial_dir, ignore_errors=True)
  try:
    partial_dir.mkdir()
    with tqdm.tqdm(
      total=num_users, desc="people", unit="person", disable=None
    ) as progress:
      for name, (subjects, number) in plan.items():
        _write_zip(partial_dir / name, parameters, subjects, number, progress)
    for path in paths:
      os.replace(partial_dir / path.name, path)
      print(f"Wrote {path}")
  finally:
    shutil.rmtree(partial_dir, ignore_errors=True)
  return [str(path) for path in paths]


def _is_there(
  output_dir: pathlib.Path,
  paths: list[pathlib.Path],
  parameters: Mapping[str, int],
) -> bool:
  """Whether exactly the zips to write are there; refuses any others."""
  complete = True
  for path in paths:
    complete &= path.exists()
  for path in sorted(output_dir.iterdir()):
    if not path.name.startswith("subjects_") and not path.name.isdecimal():
      continue
    found = _read_parameters(path)
    if path not in paths or found != parameters:
      raise FileExistsError(
        f"{path} must be absent or made with {_describe(parameters)}, found"
        f" {_describe(found) if found else 'files from elsewhere'}"
      )
  return complete


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
  path = min(zips)[-1]
  with zipfile.ZipFile(path) as archive:
    images = sorted(
      tuple(map(int, match.groups()))
      for name in archive.namelist()
      if (match := re.fullmatch(r"(\d+)/(\d+)\.png", name))
    )
    subjects = sorted({subject for subject, _ in images})[:num_users]
    cell = side + 2
    sheet = Image.new("RGB", (num_images * cell, len(subjects) * cell), "white")
    for row, subject in enumerate(subjects):
      numbers = [number for owner, number in images if owner == subject]
      for column, number in enumerate(numbers[:num_images]):
        with archive.open(f"{subject}/{number}.png") as file:
          image = Image.open(file).resize(
            (side, side), Image.Resampling.LANCZOS
          )
        sheet.paste(image, (column * cell + 1, row * cell + 1))
  # A palette makes the file less than half as large; only a palette that is
  # given is dithered.
  sheet.quantize(palette=sheet.quantize(256)).save(output_png, optimize=True)
