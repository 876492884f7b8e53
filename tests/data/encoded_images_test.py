"""Tests of images that stay encoded, and of their headers, against Pillow."""

import io
import itertools
import struct

import numpy as np
from PIL import Image
from PIL import ImageOps
import pytest
import tensorflow as tf

from tests.data import image_kinds
from tff_fedemb.data import encoded_images
from tff_fedemb.data import image_headers

_SHAPE = (24, 24, 3)
_FORMATS = ("JPEG", "PNG")
_save = image_kinds.save


def _draw(height, width):
  """A smooth picture uint8 `[height, width, 3]`, different on all sides."""
  y = np.linspace(0.0, 1.0, height)[:, np.newaxis]
  x = np.linspace(0.0, 1.0, width)
  waves = np.sin(9 * x + 5 * y) * np.cos(7 * y - 2 * x)
  channels = (0.5 + 0.4 * waves, x + 0 * y, 0.8 * y + 0.2 * x)
  return np.uint8(255 * np.stack(channels, axis=-1))


def _encode(pixels, form="JPEG", **options):
  return _save(pixels, form, "RGB", **options)


def _decode(contents, shape=_SHAPE):
  return encoded_images.build_decoder(shape)(tf.constant(contents)).numpy()


def _decode_with_pillow(content, shape):
  """The middle of the right proportions, resized."""
  height, width, _ = shape
  image = Image.open(io.BytesIO(content))
  scale = min(image.width / width, image.height / height)
  left = (image.width - scale * width) / 2
  top = (image.height - scale * height) / 2
  box = (left, top, left + scale * width, top + scale * height)
  resized = image.resize((width, height), Image.Resampling.BILINEAR, box=box)
  return np.asarray(resized).reshape(shape)


def _truncate(content):
  return content[: len(content) // 2]


_UNREADABLE = {
  "truncated JPEG": _truncate(_encode(_draw(60, 80), quality=95)),
  "JPEG without its end": _encode(_draw(60, 80))[:-2],
  "truncated progressive JPEG": _truncate(
    _encode(_draw(60, 80), progressive=True)
  ),
  "start of a JPEG": _encode(_draw(60, 80))[:3],
  "truncated PNG": _truncate(_encode(_draw(60, 80), "PNG")),
  "empty": b"",
  "text": b"no image",
  "bytes that are no text": b"\xff\xfe\x80" * 30,
  "another format": _encode(_draw(60, 80), "TIFF"),
}


class TestDecoder:
  # Large JPEGs are decoded at 1/2, 1/4 and 1/8 of their size.
  @pytest.mark.parametrize(
    ("sizes", "forms", "shape", "mean", "largest"),
    [
      ([(24, 30), (20, 20), (94, 90)], _FORMATS, _SHAPE, 0.5, 4),
      ([(96, 110), (200, 300), (400, 400)], ["JPEG"], _SHAPE, 2.5, 15),
      # The upper and the lower quarter are cut off.
      ([(90, 90)], ["PNG"], (20, 40, 3), 2.5, 6),
    ],
  )
  def test_crops_and_resizes_as_pillow_does(
    self, sizes, forms, shape, mean, largest
  ):
    for size, form in itertools.product(sizes, forms):
      content = _encode(_draw(*size), form)
      found = _decode([content], shape)[0].astype(int)
      difference = np.abs(found - _decode_with_pillow(content, shape))
      assert difference.mean() < mean
      assert difference.max() <= largest

  def test_a_batch_keeps_its_order(self):
    contents = [_encode(_draw(s, s + 9), f) for s in (30, 60) for f in _FORMATS]
    batch = _decode(contents)
    assert batch.shape == (4, *_SHAPE)
    assert _decode(np.zeros([0], np.str_)).shape == (0, *_SHAPE)
    for found, content in zip(batch, contents, strict=True):
      np.testing.assert_array_equal(found, _decode([content])[0])


class TestUnreadable:
  def test_finds_them(self):
    fine = [_encode(_draw(30, 30), form) for form in _FORMATS]
    contents = [fine[0], *_UNREADABLE.values(), fine[1]]
    assert encoded_images.find_unreadable(contents, _SHAPE) == list(
      range(1, 1 + len(_UNREADABLE))
    )
    assert encoded_images.find_unreadable([], _SHAPE) == []

  def test_another_error_is_raised(self, monkeypatch):
    def fail(contents):
      raise MemoryError

    monkeypatch.setattr(
      encoded_images,
      "build_decoder",
      lambda _: lambda some: tf.numpy_function(fail, [some], tf.uint8),
    )
    # A shape of its own, as decoders are kept by their shape.
    with pytest.raises(tf.errors.ResourceExhaustedError):
      encoded_images.find_unreadable([b"large"], (7, 9, 3))

  def test_readable_rows_in_a_graph(self):
    rows = tf.function(encoded_images.readable_rows, autograph=False)(
      tf.constant([b"no image", _encode(_draw(30, 30)), b""]),
      encoded_images.build_decoder(_SHAPE),
    )
    assert rows.numpy().tolist() == [1]


def test_is_an_array_that_is_read_where_it_is_indexed():
  contents = [_encode(_draw(24, 24 + i), "PNG") for i in range(3)]
  asked = []

  def read(rows):
    asked.append(rows.tolist())
    return [contents[row % 3] for row in rows]

  images = encoded_images.EncodedImages(read, str, 600, _SHAPE)
  assert len(images) == 600
  assert images.shape == (600, *_SHAPE)
  assert images.ndim == 4
  expected = np.tile(_decode(contents), (200, 1, 1, 1))
  np.testing.assert_array_equal(images[:], expected)
  # Many are read a part at a time.
  assert max(map(len, asked)) <= 256
  assert [row for rows in asked for row in rows] == list(range(600))
  asked.clear()
  np.testing.assert_array_equal(images[598:999], expected[598:])
  rows = np.array([4, 0, 4])
  np.testing.assert_array_equal(images[rows], expected[rows])
  assert asked == [[598, 599], [4, 0, 4]]
  assert images[600:].shape == (0, *_SHAPE)
  assert images[600:].dtype == images.dtype == np.uint8


def _draw_image(height=24, width=40, mode="RGB"):
  pixels = _draw(height, width)
  return Image.fromarray(np.dstack([pixels, pixels[..., :1]])).convert(mode)


def _exif(orientation, byte_order="II"):
  exif = Image.Exif()
  exif.endian = {"II": "<", "MM": ">"}[byte_order]
  exif[0x010F] = "A maker of cameras"
  exif[0x0112] = orientation
  exif[0x0131] = "Software"
  return exif.tobytes()


def _orient(content):
  return int(image_headers.find_jpeg_orientation(tf.constant(content)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
  ("form", "byte_order"), [("JPEG", "MM"), ("PNG", "II")]
)
def test_turns_as_pillow_does(form, byte_order, orientation):
  content = _save(_draw_image(), form, exif=_exif(orientation, byte_order))
  with Image.open(io.BytesIO(content)) as image:
    expected = np.asarray(ImageOps.exif_transpose(image))
  assert expected.shape[0] == (40 if orientation > 4 else 24)
  # The size is that of the turned image, so that nothing is resized.
  found = _decode([content], expected.shape)[0].astype(int)
  assert np.abs(found - expected).max() <= (2 if form == "JPEG" else 0)


def test_a_large_photo_on_its_side_is_decoded_at_a_fraction():
  # Upright it is 2 x 4 times the size wanted, on its side 1 x 8 times.
  content = _save(_draw_image(80, 320), "JPEG", exif=_exif(6), quality=95)
  upright = _save(
    _draw_image(80, 320).transpose(Image.Transpose.ROTATE_270),
    "JPEG",
    quality=95,
  )
  found, expected = _decode([content, upright], (160, 40, 3)).astype(int)
  assert np.abs(found - expected).mean() < 2


class TestJpegHeader:
  @pytest.mark.parametrize(
    ("order", "number", "start"), [("<", "H", 8), (">", "I", 27)]
  )
  def test_directories_as_they_are_laid_out(self, order, number, start):
    mark, kind = {"<": b"II", ">": b"MM"}[order], {"H": 3, "I": 4}[number]
    # The second of them is beyond the end of the directory.
    entries = [
      struct.pack(f"{order}HHI{number}", 0x0112, kind, 1, v).ljust(12, b"\0")
      for v in (7, 5)
    ]
    maker = struct.pack(f"{order}HHI4s", 0x010F, 2, 4, b"\x12\x01\3\0")
    for num_entries, expected in ((2, 7), (1, 1)):
      block = struct.pack(f"{order}2sHI", mark, 42, start).ljust(start, b"\0")
      block += struct.pack(f"{order}H", num_entries) + maker + b"".join(entries)
      size = struct.pack(">H", 8 + len(block))
      content = b"\xff\xd8\xff\xe1" + size + b"Exif\0\0" + block
      assert _orient(content) == expected

  def test_damaged_headers_and_no_orientation_turn_nothing(self):
    assert _orient(_save(_draw_image(), "JPEG")) == 1
    for value in (0, 9, 65535):
      assert _orient(_save(_draw_image(), "JPEG", exif=_exif(value))) == 1
    content = _save(_draw_image(), "JPEG", exif=_exif(6))
    place = content.index(b"Exif\0\0") + 6
    for end in (3, 10, place, place + 5, place + 9, place + 20):
      assert _orient(content[:end]) == 1
    damaged = bytearray(content)
    # Another byte order, version, or type of the value.
    value = content.index(b"\x12\x01\3\0", place)
    for where, byte in ((place, 0), (place + 2, 41), (value + 2, 2)):
      assert damaged[where] != byte
      other = damaged[:where] + bytes([byte]) + damaged[where + 1 :]
      assert _orient(bytes(other)) == 1
    # The directory is beyond the end of the block.
    damaged[place + 4 : place + 8] = b"\xff" * 4
    assert _orient(bytes(damaged)) == 1


def test_cut_pngs_turn_nothing():
  content = _save(_draw_image(mode="RGBA"), "PNG", exif=_exif(3))
  for end in (9, 20, 33, 60):
    orientation, *_ = image_headers.find_png_header(tf.constant(content[:end]))
    assert int(orientation) == 1
