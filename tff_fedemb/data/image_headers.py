"""What stands before the pixels of a JPEG or PNG, in TensorFlow operations.

The EXIF orientation (CIPA DC-008, tag 0x0112 of the first directory of a TIFF
block), which TensorFlow's decoders do not look at, and whether a PNG (ISO/IEC
15948) has transparency.
"""

import tensorflow as tf

_ORIENTATION_TAG = 0x0112
_EXIF = b"Exif\0\0"
_LONG = 4
# A JFIF segment of the usual length, and a table of the picture after it.
_JFIF_AND_TABLE, _AFTER_JFIF = b"\xff\xd8\xff\xe0\0\x10\xff\xdb", 20
# Bytes of a marker or of a chunk's length and name that are looked at.
_JPEG_HEAD, _PNG_HEAD = 10, 8
_PNG_COLOR_TYPE = 25
# Colour types: a palette, and those with an alpha channel.
_PALETTE, _ALPHA = 3, 4
# A segment is of 64 kB at most; chunks should be, of EXIF.
_MAX_BLOCK = 1 << 16


def _read(content: tf.Tensor, position: tf.Tensor, size: int) -> tf.Tensor:
  """Some bytes as int32 `[size]`, with zeros beyond the end."""
  place = tf.minimum(position, tf.strings.length(content))
  piece = tf.strings.substr(content, place, size)
  # An empty text would have no bytes to be filled up.
  return tf.cast(tf.io.decode_raw(piece, tf.uint8, fixed_length=size), tf.int32)


def _equals(found: tf.Tensor, expected: bytes) -> tf.Tensor:
  return tf.reduce_all(tf.equal(found, list(expected)))


def _read_orientation(content: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
  """The orientation in a TIFF block, int32, 1 if it has none that is valid."""
  place = tf.minimum(start, tf.strings.length(content))
  piece = tf.strings.substr(content, place, _MAX_BLOCK)
  # With zeros at the end, which are no entry.
  block = tf.cast(
    tf.io.decode_raw(tf.strings.join([piece, b"\0" * 16]), tf.uint8), tf.int32
  )
  is_little = tf.equal(block[0], ord("I"))

  def join(bytes_, size):
    """A number of bytes `[..., size]`."""
    ordered = tf.where(is_little, bytes_, tf.reverse(bytes_, [-1]))
    powers = [256**i for i in range(size)]
    return tf.reduce_sum(tf.cast(ordered, tf.int64) * powers, -1)

  last = tf.size(block, tf.int64)
  first = tf.minimum(join(block[4:8], 4), last - 2)
  count = join(block[first : first + 2], 2)
  count = tf.minimum(count, (last - first - 2) // 12)
  entries = tf.reshape(block[first + 2 : first + 2 + 12 * count], [-1, 12])
  values = tf.where(
    tf.equal(join(entries[:, 2:4], 2), _LONG),
    join(entries[:, 8:12], 4),
    join(entries[:, 8:10], 2),
  )
  is_orientation = tf.equal(join(entries[:, 0:2], 2), _ORIENTATION_TAG)
  found = tf.reduce_max(
    tf.pad(tf.boolean_mask(values, is_orientation), [[0, 1]])
  )
  return tf.clip_by_value(
    tf.cast(tf.where(found > 8, tf.ones_like(found), found), tf.int32), 1, 8
  )


def _walk_jpeg(content: tf.Tensor) -> tf.Tensor:
  """The orientation in the first EXIF segment before the picture, or 1."""

  def is_other_segment(_, head):
    is_application = tf.logical_and(
      tf.equal(head[0], 0xFF), tf.equal(head[1] // 16, 0xE)
    )
    return tf.logical_and(
      is_application, tf.logical_not(_equals(head[4:], _EXIF))
    )

  def skip_segment(position, head):
    position += 2 + 256 * head[2] + head[3]
    return position, _read(content, position, _JPEG_HEAD)

  start = tf.constant(2)
  position, head = tf.while_loop(
    is_other_segment, skip_segment, (start, _read(content, start, _JPEG_HEAD))
  )
  is_found = tf.logical_and(tf.equal(head[1], 0xE1), _equals(head[4:], _EXIF))
  return tf.cond(
    is_found,
    lambda: _read_orientation(content, position + _JPEG_HEAD),
    lambda: tf.constant(1),
  )


def find_jpeg_orientation(content: tf.Tensor) -> tf.Tensor:
  """The EXIF orientation of a JPEG, int32 from 1 to 8; 1 if it has none."""
  # Most JPEGs without it begin in one way, which is seen in no time.
  place = tf.minimum(_AFTER_JFIF, tf.strings.length(content))
  is_plain = tf.equal(
    tf.strings.substr(content, 0, 6) + tf.strings.substr(content, place, 2),
    _JFIF_AND_TABLE,
  )
  return tf.cond(is_plain, lambda: tf.constant(1), lambda: _walk_jpeg(content))


def find_png_header(content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """EXIF orientation of a PNG, int32, and whether it may be transparent."""
  # Most have nothing between their size and the picture.
  place = tf.minimum(_PNG_COLOR_TYPE, tf.strings.length(content))
  head = tf.strings.substr(content, place, 16)
  return tf.cond(
    tf.strings.regex_full_match(head, r"[\x00\x02]\C{11}IDAT"),
    lambda: (tf.constant(1), tf.constant(False)),
    lambda: _walk_png(content),
  )


def _walk_png(content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  color_type = _read(content, tf.constant(_PNG_COLOR_TYPE), 1)[0]
  start = tf.constant(8)

  def is_before_pixels(position, head, *_):
    return tf.logical_and(
      position < tf.strings.length(content),
      tf.logical_not(_equals(head[4:], b"IDAT")),
    )

  def skip_chunk(position, head, exif, is_transparent):
    exif = tf.where(_equals(head[4:], b"eXIf"), position + _PNG_HEAD, exif)
    is_transparent = tf.logical_or(is_transparent, _equals(head[4:], b"tRNS"))
    # Of a damaged length no more than leads to the end.
    length = 65536 * (256 * tf.minimum(head[0], 63) + head[1])
    position += 12 + length + 256 * head[2] + head[3]
    return position, _read(content, position, _PNG_HEAD), exif, is_transparent

  _, _, exif, is_transparent = tf.while_loop(
    is_before_pixels,
    skip_chunk,
    (
      start,
      _read(content, start, _PNG_HEAD),
      tf.constant(0),
      color_type > _PALETTE,
    ),
  )
  orientation = tf.cond(
    exif > 0, lambda: _read_orientation(content, exif), lambda: tf.constant(1)
  )
  return orientation, is_transparent


def turn(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
  """Turns a picture `[height, width, channels]` as EXIF says it is seen."""

  def is_among(*numbers):
    return tf.reduce_any(tf.equal(orientation, numbers))

  def turn_it():
    turned = tf.cond(
      orientation >= 5, lambda: tf.transpose(image, [1, 0, 2]), lambda: image
    )
    turned = tf.cond(
      is_among(2, 3, 6, 7), lambda: tf.reverse(turned, [1]), lambda: turned
    )
    return tf.cond(
      is_among(3, 4, 7, 8), lambda: tf.reverse(turned, [0]), lambda: turned
    )

  return tf.cond(orientation > 1, turn_it, lambda: image)
