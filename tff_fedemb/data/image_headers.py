r"""Reads the headers of images, in TensorFlow operations.

TensorFlow's decoders ignore the EXIF orientation (CIPA DC-008, tag 0x0112 of
the first directory of a TIFF block), do not say whether a PNG (ISO/IEC 15948)
is transparent, paint the transparency of a GIF black and read the palette
indices of a BMP as greys. Clients decode inside their own computation, where no
other library runs. A file is walked part by part, as its format defines,
because its texts and profiles may contain any bytes. In regular expressions
`\C` is a byte.
"""

from collections.abc import Callable

import tensorflow as tf

# A part of a file: its size, whether it is the last one to look at, and which
# of the wanted parts it is.
_Part = tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]
# Describes the part that begins at an offset.
_Look = Callable[[tf.Tensor], _Part]

_STARTS = (b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"RIFF")
_EXIF = b"Exif\0\0"
# Largest number of parts to follow, as many as a PNG of 500 MB has; a damaged
# file might have a part at every byte.
_MAX_PARTS = 1 << 16
# At most this many bytes are read beyond a file's end; they are zeros.
_PADDING = 1024
_ENTRY_SIZE = 12
# Entries of a directory up to the orientation, whose value is 1 to 8: one short
# or long integer, little-endian or big-endian.
_ORIENTATION = (
  r"\A(?:\C{12})*?(?:\x12\x01[\x03\x04]\x00\x01\x00{3}([\x01-\x08])\x00"
  r"|\x01\x12\x00(?:\x03\x00{3}\x01|\x04\x00{3}\x01\x00\x00)"
  r"\x00([\x01-\x08]))\C*"
)
_TIFF = (b"II*\0", b"MM\0*")
# Axes to reverse for orientations 1 to 4. Orientations 5 to 8 are the same,
# transposed.
_REVERSED = ((), (1,), (0, 1), (0,))
# Windows' headers of BMP, for indices or colours of 8 bits that are not packed.
_PLAIN_BMP = (
  r"\C{14}[\x28\x34\x38\x6c\x7c]\x00{3}\C{10}[\x08\x18\x20]\x00{5}\C*"
)
_BMP_COLORS = 256


def _slice(
  content: tf.Tensor,
  place: tf.Tensor | int,
  size: tf.Tensor | int,
) -> tf.Tensor:
  """Returns a part of a text, a string scalar, cut at the text's end."""
  end = tf.cast(tf.strings.length(content), tf.int64)
  return tf.strings.substr(
    content, tf.minimum(tf.cast(place, tf.int64), end), tf.cast(size, tf.int64)
  )


def _to_bytes(content: tf.Tensor) -> tf.Tensor:
  """Returns a text's bytes, uint8 `[n + _PADDING]`, with zeros at the end."""
  return tf.io.decode_raw(content + bytes(_PADDING), tf.uint8)


def _end(values: tf.Tensor) -> tf.Tensor:
  """Returns the number of bytes of a file, without the padding."""
  return tf.size(values, tf.int64) - _PADDING


def _read(values: tf.Tensor, place: tf.Tensor | int, size: int) -> tf.Tensor:
  """Reads bytes, uint8 `[size]`, from an offset; zeros beyond the end."""
  place = tf.minimum(tf.cast(place, tf.int64), _end(values))
  return tf.slice(values, [place], tf.constant([size], tf.int64))


def _add_up(digits: tf.Tensor) -> tf.Tensor:
  """Computes the little-endian number of bytes `[size]`, int64."""
  powers = [256**i for i in range(digits.shape[0])]
  return tf.reduce_sum(tf.cast(digits, tf.int64) * powers)


def _begins(values: tf.Tensor, text: bytes) -> tf.Tensor:
  """Whether bytes `[n]` begin with a text, a bool scalar."""
  return tf.reduce_all(tf.equal(values[: len(text)], list(text)))


def _mentions(content: tf.Tensor, text: str) -> tf.Tensor:
  """Whether a text (a regular expression) occurs in a file at all.

  If not, the file need not be walked.
  """
  without = tf.strings.regex_replace(content, text, "", replace_global=False)
  return tf.strings.length(without) < tf.strings.length(content)


def _walk(
  values: tf.Tensor,
  start: tf.Tensor | int,
  look: _Look,
  num_sought: int,
  *,
  is_needed: tf.Tensor | bool = True,
) -> tf.Tensor:
  """Follows the parts of a file.

  Args:
    values: The file's bytes, uint8 `[n + _PADDING]`.
    start: Place of its first part.
    look: Describes the part at an offset.
    num_sought: Number of the wanted kinds of parts.
    is_needed: Whether the file may have any of them; if not, none is looked at.

  Returns:
    Offset and size of the first part of each wanted kind, int64 `[num_sought,
    2]`; the file's end and 0 if there is none.
  """
  end = _end(values)

  def step(place: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    size, is_last, is_sought = look(place)
    is_new = tf.stack(is_sought) & tf.equal(found[:, 0], end)
    part = tf.stack([place, size])
    found = tf.where(is_new[:, tf.newaxis], part, found)
    return tf.where(is_last, end, place + size), found

  start = tf.where(is_needed, tf.cast(start, tf.int64), end)
  nothing = tf.tile([tf.stack([end, 0])], [num_sought, 1])
  _, found = tf.while_loop(
    lambda place, _: place < end,
    step,
    (start, nothing),
    maximum_iterations=_MAX_PARTS,
  )
  return found


def _read_orientation(
  content: tf.Tensor,
  part: tf.Tensor,
  header_size: int,
) -> tf.Tensor:
  """Reads the orientation in a part that is a TIFF block after its header.

  Args:
    content: The file.
    part: Place and size of the part in bytes, int64 `[2]`; size 0 if missing.
    header_size: Bytes before the block.

  Returns:
    The orientation, int32 from 1 to 8, 1 if it has none that is valid.
  """

  def read() -> tf.Tensor:
    block = _slice(content, part[0] + header_size, part[1] - header_size)
    # In PNG and WebP the block has no header, but some programs copy JPEG's.
    block = tf.strings.regex_replace(block, r"\A(?:Exif\x00\x00)+", "")
    values = _to_bytes(block)
    is_little, is_big = (_begins(values, mark) for mark in _TIFF)

    def read_number(place: tf.Tensor | int, size: int) -> tf.Tensor:
      digits = _read(values, place, size)
      return _add_up(tf.where(is_little, digits, digits[::-1]))

    start = read_number(4, 4)
    size = _ENTRY_SIZE * read_number(start, 2)
    entries = _slice(block, start + 2, size)
    found = tf.strings.regex_replace(entries, _ORIENTATION, r"\1\2")
    is_found = tf.equal(found, [b"%c" % value for value in range(1, 9)])
    is_found &= is_little | is_big
    return 1 + tf.argmax(is_found, output_type=tf.int32)

  return tf.cond(part[1] > header_size, read, lambda: tf.constant(1))


def find_format(content: tf.Tensor) -> tf.Tensor:
  """Finds the format of an image by its first bytes.

  Args:
    content: The file, a string scalar.

  Returns:
    0: PNG; 1: GIF; 2: BMP; 3: WebP; 4: any other, int32.
  """
  *others, riff = (
    tf.equal(_slice(content, 0, len(start)), start) for start in _STARTS
  )
  is_webp = riff & tf.equal(_slice(content, 8, 4), b"WEBP")
  is_format = tf.stack([*others, is_webp, True])
  return tf.argmax(is_format, output_type=tf.int32)


@tf.function(autograph=False)
def find_jpeg_orientation(content: tf.Tensor) -> tf.Tensor:
  """Finds the EXIF orientation of a JPEG.

  Args:
    content: The file, a string scalar.

  Returns:
    The orientation, int32 from 1 to 8; 1 if the file has none.
  """
  values = _to_bytes(content)

  def look(place: tf.Tensor) -> _Part:
    head = _read(values, place, 10)
    marker = head[1]
    # A marker may have bytes of 0xFF before it.
    is_filling = tf.not_equal(head[0], 0xFF) | tf.equal(marker, 0xFF)
    size = tf.where(
      is_filling, tf.constant(1, tf.int64), 2 + _add_up(head[3:1:-1])
    )
    is_exif = tf.equal(marker, 0xE1) & _begins(head[4:], _EXIF) & ~is_filling
    # These markers begin the pixels and end the file.
    is_last = tf.equal(marker, 0xDA) | tf.equal(marker, 0xD9)
    return size, is_exif | (is_last & ~is_filling), [is_exif]

  is_needed = _mentions(content, r"Exif\x00\x00")
  found = _walk(values, 2, look, 1, is_needed=is_needed)
  return _read_orientation(content, found[0], 10)


@tf.function(autograph=False)
def find_png_header(
  content: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
  """Finds how the pixels of a PNG are to be read.

  Args:
    content: The file, a string scalar.

  Returns:
    EXIF orientation, int32 from 1 to 8; whether it has colours; whether it has
    transparency; and the alpha, int32, that TensorFlow gives all pixels if the
    part with transparency is damaged (-1 for none, with 8 bits or more).
  """
  values = _to_bytes(content)
  # EXIF may come after the pixels.
  has_exif = _mentions(content, "eXIf")
  has_alpha = _mentions(content, "tRNS")

  def look(place: tf.Tensor) -> _Part:
    head = _read(values, place, 8)
    kind = head[4:]
    is_exif = _begins(kind, b"eXIf")
    is_alpha = _begins(kind, b"tRNS")
    is_pixels = _begins(kind, b"IDAT")
    is_end = _begins(kind, b"IEND")
    is_last = is_end | (is_pixels & ~has_exif)
    return 12 + _add_up(head[3::-1]), is_last, [is_exif, is_alpha, is_pixels]

  found = _walk(values, 8, look, 3, is_needed=has_exif | has_alpha)
  depth, color_type = tf.unstack(tf.cast(_read(values, 24, 2), tf.int32))
  # Transparency is a channel or a separate part.
  has_channel = tf.equal(color_type // 4, 1)
  return (
    _read_orientation(content, found[0], 8),
    tf.equal(color_type // 2 % 2, 1),
    has_channel | (found[1, 0] < found[2, 0]),
    tf.where(depth < 8, 2**depth - 1, -1),
  )


@tf.function(autograph=False)
def find_webp_header(content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Finds how a WebP is to be read.

  Args:
    content: The file, a string scalar.

  Returns:
    EXIF orientation, int32 from 1 to 8, and whether it has several pictures.
  """
  values = _to_bytes(content)

  def look(place: tf.Tensor) -> _Part:
    head = _read(values, place, 8)
    size = _add_up(head[4:])
    is_exif = _begins(head, b"EXIF")
    return 8 + size + size % 2, is_exif, [is_exif]

  is_extended = _begins(_read(values, 12, 4), b"VP8X")
  flags = _read(values, 20, 1)[0]
  has_exif = is_extended & tf.equal(flags // 8 % 2, 1)
  moves = is_extended & tf.equal(flags // 2 % 2, 1)
  found = _walk(values, 12, look, 1, is_needed=has_exif)
  return _read_orientation(content, found[0], 8), moves


def find_bmp_header(
  content: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Finds how the pixels of a BMP are to be read.

  Args:
    content: The file, a string scalar.

  Returns:
    Whether it is plain, so that TensorFlow reads it correctly; whether it has a
    palette; and the palette, uint8 `[256, 3]` in red, green and blue.
  """
  values = _to_bytes(content)
  is_plain = tf.strings.regex_full_match(_slice(content, 0, 54), _PLAIN_BMP)
  place = 14 + _add_up(_read(values, 14, 4))
  colors = tf.reshape(_read(values, place, 4 * _BMP_COLORS), [_BMP_COLORS, 4])
  # A count of 0 means all colours; missing colours are black.
  last = (_add_up(_read(values, 46, 4)) - 1) % (1 << 32)
  is_there = tf.range(_BMP_COLORS, dtype=tf.int64) <= last
  colors *= tf.cast(is_there[:, tf.newaxis], tf.uint8)
  has_palette = tf.equal(_read(values, 28, 1)[0], 8)
  return is_plain, has_palette, colors[:, 2::-1]


def _overwrite(content: tf.Tensor, place: tf.Tensor, new: bytes) -> tf.Tensor:
  """Replaces the bytes at an offset by as many others; the length stays."""
  rest = _slice(content, place + len(new), 1 << 31)
  return _slice(content, 0, place) + new + rest


@tf.function(autograph=False)
def whiten_gif(content: tf.Tensor) -> tf.Tensor:
  """Makes a GIF's transparent colour white.

  Args:
    content: The file, a string scalar.

  Returns:
    A GIF whose first picture is opaque; an empty text if that picture does not
    fill the canvas, which TensorFlow reads wrongly.
  """
  values = _to_bytes(content)
  # Bytes of a table of colours by its flags.
  sizes = tf.constant([0] * 128 + [6 << i % 8 for i in range(128)], tf.int64)

  def read_size(place: tf.Tensor | int) -> tf.Tensor:
    return sizes[tf.cast(_read(values, place, 1)[0], tf.int32)]

  def look(place: tf.Tensor) -> _Part:
    head = _read(values, place, 2)
    is_extension = tf.equal(head[0], 0x21)
    # The blocks of an extension end with an empty one.
    (size,) = tf.while_loop(
      lambda size: is_extension & (_read(values, place + size, 1)[0] > 0),
      lambda size: (size + 1 + _add_up(_read(values, place + size, 1)),),
      (tf.constant(2, tf.int64),),
      maximum_iterations=_MAX_PARTS,
    )
    is_control = is_extension & tf.equal(head[1], 0xF9)
    is_picture = tf.equal(head[0], 0x2C)
    return size + 1, ~is_extension, [is_control, is_picture]

  found = _walk(values, 13 + read_size(10), look, 2)
  control = found[0, 0]
  picture = found[1, 0]
  canvas = tf.pad(_read(values, 6, 4), [[4, 0]])
  is_whole = tf.reduce_all(tf.equal(_read(values, picture + 1, 8), canvas))
  # A picture's own table takes precedence over the common one.
  is_own = read_size(picture + 9) > 0
  table = tf.where(is_own, picture + 10, tf.constant(13, tf.int64))

  def whiten() -> tf.Tensor:
    index = _add_up(_read(values, control + 6, 1))
    opaque = _overwrite(content, control + 3, b"\0")
    return _overwrite(opaque, table + 3 * index, b"\xff" * 3)

  has_alpha = tf.equal(_read(values, control + 3, 1)[0] % 2, 1)
  opaque = tf.cond(has_alpha, whiten, lambda: content)
  return tf.where(is_whole, opaque, b"")


@tf.function(
  input_signature=[
    tf.TensorSpec([None, None, None], tf.uint8),
    tf.TensorSpec([], tf.int32),
  ],
  autograph=False,
)
def turn(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
  """Turns a picture upright.

  Args:
    image: The picture as it is stored, uint8 `[height, width, channels]`.
    orientation: EXIF orientation, int32 scalar from 1 to 8.

  Returns:
    The picture; orientations from 5 on swap height and width.
  """

  def build_turn(number: int) -> Callable[[], tf.Tensor]:
    axes = tf.constant(_REVERSED[number % 4], tf.int32)
    if number < 4:
      return lambda: tf.reverse(image, axes)
    return lambda: tf.reverse(tf.transpose(image, [1, 0, 2]), axes)

  return tf.switch_case(orientation - 1, [build_turn(i) for i in range(8)])
