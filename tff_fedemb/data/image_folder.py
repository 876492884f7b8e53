"""Labelled images in a plain folder: one sub-folder a class.

The layout that most image data sets unpack to. Files are listed first and read
one at a time, so that a folder may hold more images than memory.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import io
import os
import pathlib

import numpy as np
from PIL import Image
from PIL import ImageOps

from tff_fedemb import errors

# Pillow's readers raise all of these on damaged files.
DAMAGES = (
  OSError,
  SyntaxError,
  ValueError,
  EOFError,
  Image.DecompressionBombError,
)
# By the name's ending; the content decides how a file is read.
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".webp")
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP")
_CONVERTIBLE_FORMATS = (*_FORMATS, "TIFF")
_MODES = {1: "L", 3: "RGB"}
# Of a copy's shorter side, in pixels: models take less.
_MAX_COPIED_SIDE = 1024


class ImageFolderError(errors.DataError):
  """An image that cannot be used; knows its path."""

  def __init__(self, path: str | os.PathLike[str], message: str):
    super().__init__(f"{path} must be {message}.")
    self.path = os.fspath(path)


@dataclasses.dataclass(frozen=True)
class ImageFolder:
  """The images of a folder, not yet read.

  Attributes:
    paths: Files, by class and name.
    labels: int64 `[n]` indices into `class_names`.
    class_names: Sub-folders, sorted; one without an image is a class too, of
      which another folder of the same classes may have some.
    ignored: What lies in the folder or in a class and is no image by its name;
      hidden files are not counted.
  """

  paths: tuple[pathlib.Path, ...]
  labels: np.ndarray
  class_names: tuple[str, ...]
  ignored: tuple[pathlib.Path, ...] = ()


def list_images(folder: str | os.PathLike[str]) -> ImageFolder:
  """Lists a folder with one sub-folder a class.

  Images are the files whose names end as `SUFFIXES` say (in upper or lower
  case) that lie in a sub-folder themselves, not deeper.

  Raises:
    FieldError: If there is no such folder, or it has fewer than two classes or
      no class of two images.
  """
  folder = pathlib.Path(folder)
  paths, labels, class_names, ignored = [], [], [], []
  try:
    for entry in _visible_entries(folder):
      if not entry.is_dir():
        ignored.append(entry)
        continue
      for path in _visible_entries(entry):
        if path.suffix.lower() in SUFFIXES and not path.is_dir():
          labels.append(len(class_names))
          paths.append(path)
        else:
          ignored.append(path)
      class_names.append(entry.name)
  except OSError as error:
    raise errors.FieldError(
      "image_folder",
      "be a folder that can be read",
      f"{error.filename}: {error.strerror}",
    ) from error
  _, sizes = np.unique(labels, return_counts=True)
  if len(sizes) < 2 or max(sizes) < 2:
    raise errors.FieldError(
      "image_folder",
      f"hold two or more sub-folders, one a class, with {', '.join(SUFFIXES)}"
      " images, and two images or more in one of them",
      f"{len(sizes)} with {len(paths)} images in {folder}",
    )
  return ImageFolder(
    tuple(paths),
    np.array(labels, np.int64),
    tuple(class_names),
    tuple(ignored),
  )


def _visible_entries(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(
    path for path in folder.iterdir() if not path.name.startswith(".")
  )


def read_image(
  path: str | os.PathLike[str],
  image_shape: tuple[int, int, int],
  *,
  content: bytes | None = None,
) -> np.ndarray:
  """Reads an image as a model takes it.

  The picture is turned as its EXIF orientation says, laid on white where it is
  transparent, converted to grey (ITU-R 601 luma) or RGB, and resized to the
  height and width, whatever its own proportions (bilinear, smoothed when it is
  made smaller). Samples of 16 bits are scaled to 8. An image that is already of
  the size and the colours is left as it is.

  Args:
    path: A PNG, JPEG, BMP, GIF (its first picture), PGM or WebP file, or what
      errors call the content.
    image_shape: Height, width and channels (1: grey; 3: RGB) to make it.
    content: Of such a file, if it is not to be read from a disk.

  Returns:
    uint8 `[height, width, channels]`.

  Raises:
    ImageFolderError: If the file is no image or is damaged.
  """
  height, width, channels = image_shape
  with _open(path, content, _FORMATS) as image:
    picture = _to_mode(image, _MODES[channels])
  if picture.size != (width, height):
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
  return np.asarray(picture).reshape(image_shape)


def convert_to_png(path: str | os.PathLike[str]) -> bytes:
  """Makes a PNG of a file, as `read_image` turns it and lays it on white.

  Of a large one, the copy is of 1,024 pixels on its shorter side.

  Args:
    path: A file as of `read_image`, or TIFF (its first page).

  Returns:
    Its content, grey or RGB.

  Raises:
    ImageFolderError: If the file is no image or is damaged.
  """
  with _open(path, None, _CONVERTIBLE_FORMATS) as image:
    is_grey = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
    picture = _to_mode(image, _MODES[1 if is_grey else 3])
  scale = _MAX_COPIED_SIDE / min(picture.size)
  if scale < 1:
    width, height = (round(scale * side) for side in picture.size)
    picture = picture.resize((width, height), Image.Resampling.LANCZOS)
  content = io.BytesIO()
  picture.save(content, "PNG", compress_level=1)
  return content.getvalue()


@contextlib.contextmanager
def _open(
  path: str | os.PathLike[str],
  content: bytes | None,
  formats: tuple[str, ...],
) -> Iterator[Image.Image]:
  """Opens an image, turned as EXIF says; what goes wrong inside is told too."""
  try:
    file = path if content is None else io.BytesIO(content)
    with Image.open(file, formats=formats) as image:
      yield ImageOps.exif_transpose(image)
  except Image.UnidentifiedImageError as error:
    raise ImageFolderError(
      path,
      "a PNG, JPEG, BMP, GIF, PGM or WebP image, found something else",
    ) from error
  except DAMAGES as error:
    raise ImageFolderError(
      path, f"an image that can be read, found: {error}"
    ) from error


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
  if image.mode.startswith("I"):
    # Pillow would cut 16-bit samples off at 255.
    samples = np.asarray(image).astype(np.float64)
    if "transparency" in image.info:
      samples[samples == image.info["transparency"]] = 65535
    samples = np.clip(np.rint(samples / 257), 0, 255)
    image = Image.fromarray(samples.astype(np.uint8))
  if image.has_transparency_data:
    paper = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(paper, image.convert("RGBA"))
  return image.convert(mode)
