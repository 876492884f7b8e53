"""Images that stay encoded, as JPEG or PNG, until they are needed.

A client with large photos keeps them encoded and decodes one batch at a time,
inside its own computation. Held-out images are read and decoded when they are
needed.
"""

from collections.abc import Callable, Sequence
import functools
import itertools
import os
import pathlib

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import image_headers
from tff_fedemb.data import pipelines

# Maps encoded images, string `[b]`, to uint8 `[b, height, width, channels]`.
ImageDecoder = Callable[[tf.Tensor], tf.Tensor]

# A JPEG much larger than needed is decoded at a fraction of its size, which its
# cosine transform makes cheap. Resizing, which is more accurate, does the rest,
# by at least a factor of two.
_JPEG_RATIOS = (1, 2, 4, 8)
_MIN_RESIZING = 2
# First bytes of the formats that TensorFlow always decodes: JPEG and PNG.
STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
# The first bytes of Adobe's JPEG.
_INVERTED_START = b"\xff\xd8\xff\xee\0\x0eAdobe\0d\0\0\0\0\0"
_MAX_FILE = (1 << 31) - 1
# ITU-R 601 in units of 2^-16, with Pillow's rounding.
_LUMA = (19595, 38470, 7471)
# Height and width swap for this EXIF orientation and the later ones.
_FIRST_ON_ITS_SIDE = 5
UNREADABLE = "not an image that can be decoded"
# With photos of 100 kB, a batch takes a few megabytes.
READING_BATCH = 64
# The size does not matter for finding out whether an image can be decoded.
_TRIAL_SHAPE = (8, 8, 3)
# Number of held-out images in memory both encoded and decoded.
_DECODING_BATCH = 256


@tf.function(autograph=False, reduce_retracing=True)
def _paint(image: tf.Tensor, channels: int) -> tf.Tensor:
  """Converts grey, RGB or RGBA on white to grey or RGB, as Pillow does.

  Args:
    image: uint8 `[height, width, c]`, c of 1, 3 or 4.
    channels: Channels to make, 1 or 3.

  Returns:
    uint8 `[height, width, channels]`.
  """

  def lay_on_white() -> tf.Tensor:
    values = tf.cast(image, tf.int32)
    alpha = values[..., -1:]
    white = values[..., :3] * alpha + 255 * (255 - alpha)
    return (white + 127) // 255

  def to_mode(colors: tf.Tensor) -> tf.Tensor:
    if channels == 1:
      luma = tf.cast(colors, tf.int32) * _LUMA
      colors = (tf.reduce_sum(luma, -1, keepdims=True) + (1 << 15)) // (1 << 16)
    return tf.cast(colors, tf.uint8)

  return tf.switch_case(
    tf.shape(image)[2] // 2,
    [
      lambda: tf.tile(image, [1, 1, channels]),
      lambda: to_mode(image),
      lambda: to_mode(lay_on_white()),
    ],
  )


def _decode_jpeg(
  content: tf.Tensor,
  image_shape: tuple[int, int, int],
) -> tf.Tensor:
  """Decodes a JPEG at the smallest size that is enough, and turns it.

  Returns uint8 `[h, w, c]`, upright, at least twice as large as `image_shape`
  in both axes if it was decoded at a fraction of its size.
  """
  height, width, channels = image_shape
  orientation = image_headers.find_jpeg_orientation(content)
  size = tf.image.extract_jpeg_shape(content)
  is_cmyk = tf.cast(tf.equal(size[2], 4), tf.int32)
  if height != width:
    size = tf.where(orientation >= _FIRST_ON_ITS_SIDE, size[1::-1], size[:2])
  spare = tf.minimum(size[0] // height, size[1] // width) // _MIN_RESIZING
  largest = tf.math.count_nonzero(spare >= _JPEG_RATIOS[1:], dtype=tf.int32)

  def decode_at(ratio: int, is_cmyk: bool) -> Callable[[], tf.Tensor]:
    def decode() -> tf.Tensor:
      # TensorFlow cannot convert CMYK to grey, and treats it as inverted only
      # if the file says so. Pillow treats all CMYK as inverted. So does this
      # function: it replaces the start of the file.
      inverted = _INVERTED_START + tf.strings.substr(content, 2, _MAX_FILE)
      # TensorFlow's default transform is less accurate and no faster.
      return tf.io.decode_jpeg(
        inverted if is_cmyk else content,
        channels=3 if is_cmyk else channels,
        ratio=ratio,
        dct_method="INTEGER_ACCURATE",
      )

    return decode

  cases = itertools.product((False, True), _JPEG_RATIOS)
  image = tf.switch_case(
    largest + is_cmyk * len(_JPEG_RATIOS),
    [decode_at(ratio, inverted) for inverted, ratio in cases],
  )
  return image_headers.turn(image, orientation)


def _decode_png(content: tf.Tensor) -> tf.Tensor:
  """Decodes a PNG to grey, RGB or RGBA, as few channels as it needs.

  A damaged transparency, which TensorFlow ignores, fails as a damaged file
  does.
  """
  orientation, has_colors, is_transparent, filling = (
    image_headers.find_png_header(content)
  )

  def decode_to(channels: int) -> Callable[[], tf.Tensor]:
    return lambda: tf.io.decode_png(content, channels)

  def decode_transparent() -> tf.Tensor:
    image = tf.io.decode_png(content, 4)
    alpha = tf.cast(image[..., 3], tf.int32)
    is_damaged = tf.reduce_all(tf.equal(alpha, filling))
    return tf.cond(is_damaged, lambda: tf.io.decode_png(b"", 4), lambda: image)

  # Below 8 bits TensorFlow reads transparency wrongly, and it rounds the grey
  # of colours differently.
  needed = tf.where(is_transparent, 2, tf.cast(has_colors, tf.int32))
  image = tf.switch_case(
    needed, [decode_to(1), decode_to(3), decode_transparent]
  )
  return image_headers.turn(image, orientation)


def _decode_first(content: tf.Tensor) -> tf.Tensor:
  """Decodes the first picture of a GIF or WebP; fails on an empty text."""
  image = tf.io.decode_image(content, expand_animations=False)
  return tf.ensure_shape(image, [None, None, None])


def _decode_bmp(content: tf.Tensor) -> tf.Tensor:
  """Decodes a BMP of 8 bits or more to RGB; fails on any other."""
  is_plain, has_palette, palette = image_headers.find_bmp_header(content)
  content = tf.where(is_plain, content, b"")
  image = tf.io.decode_bmp(content, channels=3)
  return tf.cond(
    has_palette,
    lambda: tf.gather(palette, tf.cast(image[..., 0], tf.int32)),
    lambda: image,
  )


def _decode_webp(content: tf.Tensor) -> tf.Tensor:
  """Decodes a WebP of one picture, upright; fails on one that moves."""
  orientation, moves = image_headers.find_webp_header(content)
  # TensorFlow 2.21 would write outside its memory there.
  image = _decode_first(tf.where(moves, b"", content))
  return image_headers.turn(image, orientation)


@tf.function(autograph=False)
def _decode_other(content: tf.Tensor) -> tf.Tensor:
  """Decodes any format but JPEG; fails on what it does not know."""
  return tf.switch_case(
    image_headers.find_format(content),
    [
      lambda: _decode_png(content),
      lambda: _decode_first(image_headers.whiten_gif(content)),
      lambda: _decode_bmp(content),
      lambda: _decode_webp(content),
      lambda: _decode_first(tf.constant(b"")),
    ],
  )


def _decode_one(
  content: tf.Tensor,
  image_shape: tuple[int, int, int],
) -> tf.Tensor:
  """Decodes an image, crops it around its centre and resizes it.

  Returns uint8 of `image_shape`; `content` is a string scalar.
  """
  height, width, channels = image_shape
  image = tf.cond(
    tf.io.is_jpeg(content),
    lambda: _decode_jpeg(content, image_shape),
    lambda: _decode_other(content),
  )
  image = tf.ensure_shape(_paint(image, channels), [None, None, channels])
  found = tf.shape(image)

  def crop_and_resize() -> tf.Tensor:
    # Crops the largest centred rectangle of the wanted proportions.
    scale = tf.minimum(found[0] / height, found[1] / width)
    sides = tf.round(scale * tf.constant([height, width], tf.float64))
    crop = tf.maximum(tf.cast(sides, tf.int32), 1)
    start = (found[:2] - crop) // 2
    piece = tf.slice(
      image, tf.concat([start, [0]], 0), tf.concat([crop, [channels]], 0)
    )
    resized = tf.image.resize(piece, [height, width], antialias=True)
    rounded = tf.clip_by_value(tf.round(resized), 0.0, 255.0)
    return tf.cast(rounded, tf.uint8)

  is_fine = tf.reduce_all(tf.equal(found[:2], [height, width]))
  fitted = tf.cond(is_fine, lambda: image, crop_and_resize)
  return tf.ensure_shape(fitted, image_shape)


def build_decoder(image_shape: tuple[int, int, int]) -> ImageDecoder:
  """Builds the function that decodes a batch of images.

  It takes JPEG and PNG, and those GIF, BMP and WebP files that TensorFlow reads
  correctly: a GIF whose first picture fills the whole, uncompressed BMP of at
  least 8 bits, WebP with one picture. Pixels equal those that Pillow reads, in
  8 bits: rotated by the EXIF orientation of JPEG, PNG or WebP, on white where
  they are transparent, in grey (ITU-R 601 luma) or RGB. The image is cropped
  around its centre to the wanted proportions and resized (bilinear, with
  antialiasing). An image of the wanted size is not resized. A JPEG or GIF that
  is complete but changed inside may decode to a damaged picture.

  Args:
    image_shape: Height, width and channels (1: grey; 3: RGB) to make of each.

  Returns:
    A function of encoded images, string `[b]`, that returns uint8
    `[b, height, width, channels]`. It has TensorFlow operations only and fails
    on an image that cannot be decoded.
  """

  def decode(contents: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(
      lambda content: _decode_one(content, image_shape),
      contents,
      fn_output_signature=tf.TensorSpec(image_shape, tf.uint8),
    )

  return decode


def readable_rows(contents: tf.Tensor, decode: ImageDecoder) -> tf.Tensor:
  """Finds the images that can be decoded, with TensorFlow operations only.

  Any decoding error counts: a damaged image cannot be told from a lack of
  memory here. `find_unreadable` can tell them apart.

  Args:
    contents: Encoded images, string `[n]`.
    decode: The result of `build_decoder`.

  Returns:
    Their rows, int64 `[m]`, in order.
  """

  def try_row(
    row: tf.Tensor, content: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    # Using a pixel keeps TensorFlow from removing the decoding as unused.
    return row, tf.reshape(decode(content[tf.newaxis]), [-1])[0]

  rows = tf.range(tf.size(contents, out_type=tf.int64))
  numbered = tf.data.Dataset.from_tensor_slices((rows, contents))
  tried = numbered.map(try_row).ignore_errors()
  return pipelines.gather(tried.batch(512))[0]


@functools.lru_cache
def create_eager_decoder(image_shape: tuple[int, int, int]) -> ImageDecoder:
  """Creates the function of `build_decoder` to be called eagerly.

  Args:
    image_shape: See `build_decoder`. A function is made and traced once for
      each shape.

  Returns:
    As `build_decoder`. It raises `tf.errors.InvalidArgumentError` if any image
    of the batch cannot be decoded.
  """
  return tf.function(
    build_decoder(image_shape),
    input_signature=[tf.TensorSpec([None], tf.string)],
    autograph=False,
  )


def find_unreadable(
  contents: Sequence[bytes],
  image_shape: tuple[int, ...] = _TRIAL_SHAPE,
) -> list[int]:
  """Finds images that cannot be decoded; runs eagerly.

  Args:
    contents: Encoded images.
    image_shape: Shape to decode them to, if that was done before: a decoder is
      traced once for each shape.

  Returns:
    Their rows, in order.

  Raises:
    tf.errors.OpError: If decoding fails for another reason than an invalid
      image, for example `ResourceExhaustedError` for lack of memory.
  """
  decode = create_eager_decoder(tuple(image_shape))

  def is_unreadable(some: Sequence[bytes]) -> bool:
    try:
      decode(tf.constant(some, tf.string))
    except tf.errors.InvalidArgumentError:
      return True
    return False

  if not is_unreadable(contents):
    return []
  return [row for row, one in enumerate(contents) if is_unreadable([one])]


def find_faults(paths: Sequence[bytes | str]) -> list[tuple[int, str]]:
  """Finds the files that TensorFlow cannot decode as images, and why.

  Args:
    paths: The files, which are read whole and all held in memory.

  Returns:
    Indices into `paths`, ascending, and the fault of each: a system's error,
    "empty", `bad_examples.MISSING` or `UNREADABLE`.
  """
  faults = {}
  contents = {}
  for row, path in enumerate(paths):
    try:
      content = pathlib.Path(os.fsdecode(path)).read_bytes()
    except OSError as error:
      faults[row] = bad_examples.describe_fault(error)
    else:
      if content:
        contents[row] = content
      else:
        faults[row] = "empty"
  rows = list(contents)
  for place in find_unreadable(list(contents.values())):
    faults[rows[place]] = UNREADABLE
  return sorted(faults.items())


class EncodedImages:
  """Held-out images: an array that reads and decodes when it is indexed.

  Attributes:
    dtype: uint8.
    ndim: 4.
    shape: Number of images, height, width and channels.
  """

  dtype = np.dtype(np.uint8)
  ndim = 4

  def __init__(
    self,
    read: Callable[[np.ndarray], Sequence[bytes]],
    names: Callable[[int], str],
    num_images: int,
    image_shape: tuple[int, ...],
  ):
    """Initialises the array.

    Args:
      read: Maps rows, int64 `[m]`, to those encoded images.
      names: Maps a row to its name in an error message.
      num_images: Number of rows.
      image_shape: See `build_decoder`.
    """
    self._read = read
    self._names = names
    self._decode = create_eager_decoder(tuple(image_shape))
    self.shape = (num_images,) + tuple(image_shape)

  def __len__(self) -> int:
    """Number of images."""
    return self.shape[0]

  def take(self, rows: np.ndarray, axis: int = 0) -> "EncodedImages":
    """Selects rows without reading them; like `np.ndarray.take`.

    Args:
      rows: Rows to select, int `[m]`.
      axis: Only 0 makes sense.

    Returns:
      The selected images, not yet read, `[m, height, width, channels]`.
    """
    del axis  # The rows are along the first one.
    return EncodedImages(
      lambda chosen: self._read(rows[chosen]),
      lambda row: self._names(int(rows[row])),
      len(rows),
      self.shape[1:],
    )

  def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
    """Reads and decodes a slice, or rows int `[m]`.

    Returns:
      uint8 `[m, height, width, channels]`; 256 images at a time are encoded and
      decoded in memory at once.

    Raises:
      DataError: If one cannot be decoded; it names the first.
    """
    rows = np.arange(len(self))[index]
    images = np.zeros((rows.size,) + self.shape[1:], np.uint8)
    for start in range(0, rows.size, _DECODING_BATCH):
      some = slice(start, start + _DECODING_BATCH)
      contents = list(self._read(rows[some]))
      try:
        images[some] = self._decode(tf.constant(contents, tf.string)).numpy()
      except tf.errors.InvalidArgumentError as error:
        bad = find_unreadable(contents, self.shape[1:])
        if not bad:
          raise
        name = self._names(int(rows[start + bad[0]]))
        raise errors.DataError(
          f"{name} must be an image that can be decoded, found something else."
          " on_bad_example=skip leaves it out."
        ) from error
    return images
