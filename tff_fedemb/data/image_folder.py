"""Labelled images in a plain folder: one sub-folder for each class.

Most image data sets unpack to this layout. Files are listed first and read one
at a time, so that a folder may hold more images than fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import io
import os
import pathlib

from etils import epy
import numpy as np
from PIL import Image
from PIL import ImageOps

from tff_fedemb import errors

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.data import encoded_images

# Pillow's readers raise all of these on damaged files.
DAMAGES = (
  OSError,
  SyntaxError,
  ValueError,
  EOFError,
  Image.DecompressionBombError,
)
# Suffixes of image files, in upper or lower case. A file's content, not its
# suffix, decides how it is read.
READABLE_SUFFIXES = (
  ".png",
  ".jpg",
  ".jpeg",
  ".jpe",
  ".jfif",
  ".bmp",
  ".gif",
  ".webp",
  ".tif",
  ".tiff",
  ".pgm",
  ".ppm",
)
# The formats of phones are included so that their files are reported: a file
# that Pillow cannot read is refused, or skipped and named.
SUFFIXES = READABLE_SUFFIXES + (".heic", ".heif", ".avif")
# Files and folders that other programs leave behind.
_LITTER = frozenset(("thumbs.db", "desktop.ini", "__macosx", "@eadir"))
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")
_MODES = {1: "L", 3: "RGB"}
# Tags of TIFF.
_BITS = 258
_PHOTOMETRIC = 262
# Shorter side of a converted copy in pixels, which is more than models need.
_MAX_COPIED_SIDE = 1024


class ImageFolderError(errors.DataError):
  """An image cannot be used.

  Attributes:
    path: The image's path, as text.
  """

  def __init__(self, path: str | os.PathLike[str], message: str):
    """Initialises the error.

    Args:
      path: The image's path.
      message: What the image must be, and what it was found to be.
    """
    super().__init__(f"{path} must be {message}.")
    self.path = os.fspath(path)


@dataclasses.dataclass(frozen=True)
class ImageFolder:
  """The images of a folder, not yet read.

  Attributes:
    paths: Files, by class and name, `[n]`.
    labels: int64 `[n]` indices into `class_names`.
    class_names: Sub-folders, sorted. An empty one is a class too, because
      another folder of the same classes may have its images.
    ignored: Files and folders whose names are not those of images, without
      hidden ones.
  """

  paths: tuple[pathlib.Path, ...]
  labels: np.ndarray
  class_names: tuple[str, ...]
  ignored: tuple[pathlib.Path, ...] = ()


def list_images(
  folder: str | os.PathLike[str],
  *,
  name: str = "image_folder",
  for_pairs: bool = True,
) -> ImageFolder:
  """Lists a folder with one sub-folder per class.

  Images are the files with one of `SUFFIXES` (in upper or lower case) that lie
  directly in a sub-folder. No file is opened.

  Args:
    folder: The folder.
    name: Your name for it, for errors.
    for_pairs: Whether there must be two classes and one of two images, as
      verification needs.

  Returns:
    The files and their classes.

  Raises:
    FieldError: If there is no such folder, or too little in it.
  """
  folder = pathlib.Path(folder)
  paths = []
  labels = []
  class_names = []
  ignored = []
  try:
    for entry in _visible_entries(folder):
      if not entry.is_dir():
        ignored.append(entry)
        continue
      for path in _visible_entries(entry):
        if _is_image(path):
          labels.append(len(class_names))
          paths.append(path)
        else:
          ignored.append(path)
      class_names.append(entry.name)
  except OSError as error:
    raise _create_error(name, error) from error
  _, sizes = np.unique(labels, return_counts=True)
  has_pairs = len(sizes) >= 2 and max(sizes) >= 2
  if not paths or (for_pairs and not has_pairs):
    must = "hold sub-folders of images, one a class"
    if for_pairs:
      must += ", two or more, and two images in one of them"
    found = f"{len(sizes)} with {len(paths)} images in {folder}"
    raise errors.FieldError(name, must, found)
  return ImageFolder(
    paths=tuple(paths),
    labels=np.array(labels, np.int64),
    class_names=tuple(class_names),
    ignored=tuple(ignored),
  )


def list_all_images(
  folder: str | os.PathLike[str],
  *,
  name: str,
) -> tuple[pathlib.Path, ...]:
  """Lists the images in a folder and in all folders below it, sorted.

  Args:
    folder: The folder; hidden files and folders in it are left out.
    name: Your name for it, for errors.

  Returns:
    Paths of the files with one of `SUFFIXES`, at least one.

  Raises:
    FieldError: If there is no such folder, or no image in it.
  """
  paths: list[pathlib.Path] = []

  def fail(error: OSError) -> None:
    raise _create_error(name, error) from error

  for root, folders, files in os.walk(folder, onerror=fail):
    folders[:] = sorted(f for f in folders if not is_litter(f))
    for file in sorted(files):
      path = pathlib.Path(root, file)
      if not is_litter(file) and _is_image(path):
        paths.append(path)
  if not paths:
    raise errors.FieldError(
      name, f"hold images ({', '.join(SUFFIXES)})", f"none in {folder}"
    )
  return tuple(paths)


def _create_error(name: str, error: OSError) -> errors.FieldError:
  """Creates the error of a folder that cannot be read, in the field `name`."""
  return errors.FieldError(
    name, "be a folder that can be read", f"{error.filename}: {error.strerror}"
  )


def _is_image(path: pathlib.Path) -> bool:
  """Whether a path is a file with the suffix of an image."""
  return path.suffix.lower() in SUFFIXES and not path.is_dir()


def _visible_entries(folder: pathlib.Path) -> list[pathlib.Path]:
  """Lists what is in a folder and not hidden, sorted.

  Raises:
    OSError: If the folder cannot be read.
  """
  # `glob` would find nothing in a folder that cannot be read.
  return sorted(path for path in folder.iterdir() if not is_litter(path.name))


def is_litter(name: str) -> bool:
  """Whether a system made a file or folder, rather than a user.

  Args:
    name: Its name, without the folder that it is in.
  """
  return name.startswith(".") or name.lower() in _LITTER


def read_image(
  path: str | os.PathLike[str],
  image_shape: tuple[int, ...],
  *,
  content: bytes | None = None,
) -> np.ndarray:
  """Reads an image for a model, in the same way as training photos are read.

  `encoded_images.build_decoder` rotates it by its EXIF orientation, puts it on
  white where it is transparent, converts it to grey (ITU-R 601 luma) or RGB,
  crops it around its centre and resizes it. A file that it cannot decode is
  converted to PNG first. Samples of 16 bits are reduced to their higher 8;
  other depths above 8 bits are refused. An image that already has the wanted
  size and colours does not change.

  Args:
    path: A file of one of `SUFFIXES`, or a name of the content for errors.
    image_shape: Height, width and channels (1: grey; 3: RGB) to make it.
    content: The file's bytes, if it is not to be read from a disk.

  Returns:
    uint8 `[height, width, channels]`.

  Raises:
    ImageFolderError: If the file is damaged or not an image.
  """
  try:
    if content is None:
      content = pathlib.Path(path).read_bytes()
  except OSError as error:
    raise ImageFolderError(
      path, f"an image that can be read, found: {error}"
    ) from error
  decode = encoded_images.create_eager_decoder(tuple(image_shape))
  if content.startswith(encoded_images.STARTS):
    try:
      return decode(tf.constant([content]))[0].numpy()
    except tf.errors.InvalidArgumentError:
      # Damaged, or in colours that TensorFlow does not know.
      pass
  converted = convert_to_png(path, content)
  return decode(tf.constant([converted]))[0].numpy()


def convert_to_png(
  path: str | os.PathLike[str],
  content: bytes | None = None,
) -> bytes:
  """Converts a file to PNG, rotated and put on white as by `read_image`.

  The copy of a large file has 1,024 pixels on its shorter side.

  Args:
    path: See `read_image`.
    content: See `read_image`.

  Returns:
    The bytes of the PNG, grey or RGB of 8 bits.

  Raises:
    ImageFolderError: If the file is damaged or not an image.
  """
  with _open(path, content) as image:
    is_grey = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
    picture = _to_mode(image, _MODES[1 if is_grey else 3])
  scale = _MAX_COPIED_SIDE / min(picture.size)
  if scale < 1:
    width, height = (round(scale * side) for side in picture.size)
    picture = picture.resize((width, height), Image.Resampling.LANCZOS)
  encoded = io.BytesIO()
  picture.save(encoded, "PNG", compress_level=1)
  return encoded.getvalue()


@contextlib.contextmanager
def _open(
  path: str | os.PathLike[str],
  content: bytes | None,
) -> Iterator[Image.Image]:
  """Opens an image, rotated as EXIF says; reads `path` if content is None.

  An error of Pillow inside the block becomes an `ImageFolderError`.
  """
  try:
    file = path if content is None else io.BytesIO(content)
    with Image.open(file, formats=_FORMATS) as image:
      _check_samples(image)
      yield ImageOps.exif_transpose(image)
  except DAMAGES as error:
    # Pillow's message would name a buffer, not the file.
    found = errors.first_line(error).partition(" <")[0]
    raise ImageFolderError(
      path, f"a {', '.join(_FORMATS)} image, found: {found}"
    ) from error


def _check_samples(image: Image.Image) -> None:
  """Refuses samples whose black and white Pillow cannot tell.

  Raises:
    ValueError: For floats, signed samples, 16 bits of which 0 is white, and
      other depths above 8 bits.
  """
  kind = "floating-point samples" if image.mode == "F" else ""
  tags = getattr(image, "tag_v2", None)
  if tags and image.mode.startswith("I"):
    bits = tags.get(_BITS, (1,))[0]
    zero = tags.get(_PHOTOMETRIC)
    if image.mode == "I" or bits != 16:
      kind = f"signed samples or {bits} bits a sample"
    elif zero == 0:
      kind = "16 bits of which 0 is white"
  if kind:
    raise ValueError(f"{kind}; convert it to 8 bits")


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
  """Converts an image to "L" or "RGB", on white where it is transparent.

  Samples of 16 bits are reduced to their higher 8.
  """
  if image.mode.startswith("I"):
    # Pillow would clip 16-bit samples at 255.
    samples = np.asarray(image) >> 8
    image = Image.fromarray(samples.astype(np.uint8))
  if image.has_transparency_data:
    paper = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(paper, image.convert("RGBA"))
  return image.convert(mode)
