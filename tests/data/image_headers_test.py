"""Tests of EXIF orientations and transparency, against Pillow."""

import io

import numpy as np
from PIL import Image
from PIL import ImageOps
import pytest
import tensorflow as tf

from tff_fedemb.data import encoded_images
from tff_fedemb.data import image_headers

_ORIENTATION = 0x0112


def _draw(mode="RGB", size=(40, 24)):
  pixels = np.random.default_rng(1).integers(0, 256, (3, 4, 4), np.uint8)
  return (
    Image.fromarray(pixels, "RGBA")
    .resize(size, Image.Resampling.BILINEAR)
    .convert(mode)
  )


def _encode(image, form, **options):
  content = io.BytesIO()
  image.save(content, form, **options)
  return content.getvalue()


def _exif(orientation, byte_order="II"):
  exif = Image.Exif()
  exif.endian = {"II": "<", "MM": ">"}[byte_order]
  exif[0x010F] = "A maker of cameras"
  exif[_ORIENTATION] = orientation
  exif[0x0131] = "Software"
  return exif.tobytes()


def _decode(content, shape):
  images = encoded_images.EncodedImages(
    lambda rows: [content] * len(rows), str, 1, shape
  )
  return images[:][0]


_find_jpeg_orientation = tf.function(
  image_headers.find_jpeg_orientation,
  input_signature=[tf.TensorSpec([], tf.string)],
)


def _orient(content):
  return int(_find_jpeg_orientation(content))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("byte_order", ["II", "MM"])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_turns_as_pillow_does(form, byte_order, orientation):
  content = _encode(_draw(), form, exif=_exif(orientation, byte_order))
  with Image.open(io.BytesIO(content)) as image:
    expected = np.asarray(ImageOps.exif_transpose(image))
  assert expected.shape[0] == (40 if orientation > 4 else 24)
  # Of the size that it has when it is turned, so that nothing is resized.
  found = _decode(content, expected.shape).astype(int)
  assert np.abs(found - expected).max() <= (2 if form == "JPEG" else 0)


def test_a_large_photo_on_its_side_is_decoded_at_a_fraction():
  # Upright it is 2 x 4 times the size wanted, on its side 1 x 8 times.
  content = _encode(_draw(size=(320, 80)), "JPEG", exif=_exif(6), quality=95)
  upright = _encode(
    _draw(size=(320, 80)).transpose(Image.Transpose.ROTATE_270),
    "JPEG",
    quality=95,
  )
  found, expected = (_decode(c, (160, 40, 3)) for c in (content, upright))
  assert np.abs(found.astype(int) - expected).mean() < 2


class TestJpegHeader:
  def test_after_other_segments(self):
    plain = _encode(_draw(), "JPEG", exif=_exif(6))
    many = _encode(_draw(), "JPEG", exif=_exif(6), icc_profile=b"p" * 150_000)
    # The colour profile comes before EXIF.
    start = many.index(b"Exif") - 4
    size = 2 + int.from_bytes(many[start + 2 : start + 4], "big")
    exif = many[start : start + size]
    rest = many[:start] + many[start + size :]
    tables = rest.index(b"\xff\xdb")
    late = rest[:tables] + exif + rest[tables:]
    assert late.index(b"Exif") > 150_000
    for content in (plain, many, late):
      assert _orient(content) == 6

  @pytest.mark.parametrize("value", [0, 9, 65535])
  def test_what_is_no_orientation_turns_nothing(self, value):
    assert _orient(_encode(_draw(), "JPEG", exif=_exif(value))) == 1

  def test_damaged_headers_turn_nothing(self):
    assert _orient(_encode(_draw(), "JPEG")) == 1
    content = _encode(_draw(), "JPEG", exif=_exif(6))
    place = content.index(b"Exif\0\0") + 6
    for end in (3, 10, place, place + 5, place + 9, place + 20):
      assert _orient(content[:end]) == 1
    damaged = bytearray(content)
    # The directory is beyond the end of the block.
    damaged[place + 4 : place + 8] = b"\xff" * 4
    assert _orient(bytes(damaged)) == 1


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparency_is_laid_on_white(mode, channels):
  options = {}
  image = _draw("RGBA")
  if mode in ("P", "RGB", "L"):
    image = _draw(mode)
    options["transparency"] = image.getpixel((3, 3))
  else:
    image = image.convert(mode)
  content = _encode(image, "PNG", **options)
  with Image.open(io.BytesIO(content)) as read:
    assert read.has_transparency_data
    paper = Image.new("RGBA", read.size, "white")
    laid = Image.alpha_composite(paper, read.convert("RGBA"))
  expected = np.asarray(laid.convert("L" if channels == 1 else "RGB"))
  found = _decode(content, (24, 40, channels)).astype(int)
  assert np.abs(found - expected.reshape(24, 40, channels)).max() <= 1


def test_cut_pngs_are_no_endless_loop():
  content = _encode(_draw("RGBA"), "PNG", exif=_exif(3))
  for end in (9, 20, 33, 60):
    orientation, _ = image_headers.find_png_header(tf.constant(content[:end]))
    assert int(orientation) == 1
