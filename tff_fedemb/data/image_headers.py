r"""Reads what comes before the pixels of a JPEG or PNG, in TensorFlow.

TensorFlow's decoders ignore the EXIF orientation (CIPA DC-008, tag 0x0112 of
the first directory of a TIFF block) and do not say whether a PNG (ISO/IEC
15948) has transparency. Clients decode inside their own computation, where no
other library runs, so both are found with regular expressions (`\C` is a byte).
"""

import tensorflow as tf

# EXIF beyond this many bytes is not found; colour profiles come before it.
_MAX_HEADER = 1 << 18
_ENTRY_SIZE = 12
# Entries of a directory up to the orientation, whose value is 1 to 8: a short
# or long integer, little-endian or big-endian.
_ORIENTATION = (
  r"\A(?:\C{12})*?(?:\x12\x01\C{6}([\x01-\x08])\x00"
  r"|\x01\x12\C{6}\x00(?:\x00\x00)?([\x01-\x08]))\C*"
)
# By the colour type, byte 25: colours, a palette, or colours with transparency.
# Transparency is in the colour type or in a chunk of its own.
_COLORED = r"\C{25}[\x02\x03\x06]\C*"
_TRANSPARENT = r"\C{25}[\x04\x06]\C*|\C*tRNS\C*"
# Axes to reverse for orientations 1 to 4; 5 to 8 are the same, transposed.
_REVERSED = ((), (1,), (0, 1), (0,))


def _split(content: tf.Tensor, mark: bytes) -> tuple[tf.Tensor, tf.Tensor]:
  """Splits at the first mark; there is nothing after it if it is missing."""
  parts = tf.strings.split(content, mark, maxsplit=1)
  return parts[0], tf.strings.reduce_join(parts[1:])


def _read_number(
  block: tf.Tensor, place: tf.Tensor | int, size: int
) -> tf.Tensor:
  """A number of a TIFF block, int32; of zeros beyond its end, or too large."""
  place = tf.minimum(place, tf.strings.length(block))
  # An empty text would not be filled up with zeros.
  piece = tf.strings.substr(block, place, size) + b"\0"
  values = tf.cast(
    tf.io.decode_raw(piece, tf.uint8, fixed_length=size), tf.int64
  )
  is_little = tf.equal(tf.strings.substr(block, 0, 1), b"I")
  ordered = tf.where(is_little, values, values[::-1])
  number = tf.reduce_sum(ordered * [256**i for i in range(size)])
  return tf.cast(tf.minimum(number, _MAX_HEADER), tf.int32)


def _read_orientation(block: tf.Tensor) -> tf.Tensor:
  """The orientation in a TIFF block, int32, 1 if it has none that is valid."""

  def read():
    start = _read_number(block, 4, 4)
    size = _ENTRY_SIZE * _read_number(block, start, 2)
    start = tf.minimum(start + 2, tf.strings.length(block))
    entries = tf.strings.substr(block, start, size)
    found = tf.strings.regex_replace(entries, _ORIENTATION, r"\1\2")
    is_found = tf.equal(found, [b"%c" % value for value in range(1, 9)])
    return 1 + tf.argmax(is_found, output_type=tf.int32)

  return tf.cond(tf.equal(block, b""), lambda: tf.constant(1), read)


def find_jpeg_orientation(content: tf.Tensor) -> tf.Tensor:
  """The EXIF orientation of a JPEG, int32 from 1 to 8; 1 if it has none."""
  head = tf.strings.substr(content, 0, _MAX_HEADER)
  return _read_orientation(_split(head, b"Exif\0\0")[1])


def find_png_header(
  content: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """EXIF orientation of a PNG, and whether it has colours and transparency."""
  head, _ = _split(tf.strings.substr(content, 0, _MAX_HEADER), b"IDAT")
  return (
    _read_orientation(_split(head, b"eXIf")[1]),
    tf.strings.regex_full_match(head, _COLORED),
    tf.strings.regex_full_match(head, _TRANSPARENT),
  )


def turn(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
  """Turns a picture `[height, width, channels]` as EXIF says it is seen."""

  def build_turn(number):
    axes = tf.constant(_REVERSED[number % 4], tf.int32)
    if number < 4:
      return lambda: tf.reverse(image, axes)
    return lambda: tf.reverse(tf.transpose(image, [1, 0, 2]), axes)

  return tf.switch_case(orientation - 1, [build_turn(i) for i in range(8)])
