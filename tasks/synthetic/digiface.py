"""DigiFace-1M's zips, filled with made-up patterns in place of faces.

DigiFace-1M (Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face
Recognition", WACV 2023) comes in zips of rendered faces, `<subject id>/<k>.png`
of 112 x 112 pixels in colour: subjects 0 ... 9999 with 72 images each, and
100000 ... 199999 with 5. This module writes such zips, of fewer subjects, each
of whom is a class of `textures`. Images have styles of their own: a person must
not be known by colours.
"""

from collections.abc import Mapping
import dataclasses
import io
import json
import pathlib
from typing import Any
import zipfile

from PIL import Image

from tasks.synthetic import store
from tasks.synthetic import textures
from tff_fedemb import config

_FIRST_OF_5_IMAGES = 100_000
# With so many subjects a part can be split into three; see `tasks.digiface`.
_MIN_SUBJECTS = 8
_SHAPE = (112, 112, 3)
_IMAGE_BYTES = 8_700
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 2
# Of all files in the zips, so that the same parameters give the same bytes.
_TIME = (2023, 1, 1, 0, 0, 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(store.Config):
  """What people are made from.

  Attributes:
    num_users: Number of people; from 8 on they can be split into training,
      validation and test.
    images_per_user: Images of each person in the first zip.
  """

  num_users: int = config.field(minimum=1, maximum=_FIRST_OF_5_IMAGES)
  images_per_user: int = config.field(72, minimum=2)


def _read_generator(path: pathlib.Path) -> Mapping[str, object]:
  try:
    with zipfile.ZipFile(path) as archive:
      return dict(json.loads(archive.comment))
  except (OSError, TypeError, ValueError, zipfile.BadZipFile):
    return {}


def _write_zip(path: pathlib.Path, parameters, subjects, num_images) -> None:
  with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
    archive.comment = json.dumps(parameters).encode()
    for subject in store.progress(subjects, desc=path.name, unit="person"):
      for number in range(num_images):
        image = textures.draw(
          _SHAPE,
          seed=parameters["seed"],
          class_id=subject,
          user=number,
          index=number,
        )
        info = zipfile.ZipInfo(f"{subject}/{number}.png", _TIME)
        info.external_attr = 0o644 << 16
        content = io.BytesIO()
        # The fastest level: packing takes as long as drawing at the usual one.
        Image.fromarray(image).save(content, "PNG", compress_level=1)
        archive.writestr(info, content.getvalue())


def write_digiface(output_dir: store.Path, **fields: Any) -> list[str]:
  """Writes people as DigiFace-1M's zips, and returns their paths.

  About three quarters of the people are in `subjects_0-<last>_72_imgs.zip`, the
  others in `subjects_100000-<last>_5_imgs.zip`; with fewer than 16, all are in
  the first. A person is the same for a given seed and number however many
  others there are. A person of 72 images takes about half a second and 1 MB.
  Fields are those of `Config`.

  Raises:
    errors.FieldError: If one of them is out of range.
    errors.DataError: If there are zips or subjects' folders of another making.
  """
  given = Config(**fields)
  parameters = given.parameters(_GENERATOR_VERSION)
  few = max(given.num_users // 4, _MIN_SUBJECTS)
  if given.num_users - few < _MIN_SUBJECTS:
    few = 0
  parts = [(range(given.num_users - few), given.images_per_user)]
  if few:
    parts.append((range(_FIRST_OF_5_IMAGES, _FIRST_OF_5_IMAGES + few), 5))
  plan = {f"subjects_{s[0]}-{s[-1]}_{n}_imgs.zip": (s, n) for s, n in parts}
  # Subjects' folders would be read together with the zips.
  others = [
    path.name
    for path in pathlib.Path(output_dir).glob("*")
    if path.name.startswith("subjects_") or path.name.isdecimal()
  ]

  def write(partial, missing):
    for name in missing:
      _write_zip(partial / name, parameters, *plan[name])

  return store.write_missing(
    output_dir,
    dict.fromkeys([*plan, *others], parameters),
    _read_generator,
    write,
    num_bytes=sum(len(s) * number for s, number in parts) * _IMAGE_BYTES,
  )


def contact_sheet(output_dir: store.Path, output_png: store.Path) -> None:
  """Draws the first images of the first people of the first zip, one a row."""
  (path,) = pathlib.Path(output_dir).glob("subjects_0-*_imgs.zip")
  with zipfile.ZipFile(path) as archive:
    images: dict[str, list[bytes]] = {}
    for name in archive.namelist():
      row = images.setdefault(name.split("/")[0], [])
      if len(images) <= 8 and len(row) < 12:
        row.append(archive.read(name))
  store.save_sheet(list(images.values())[:8], output_png, side=84)
