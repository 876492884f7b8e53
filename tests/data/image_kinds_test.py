"""Tests that every kind of image is read as Pillow reads it.

`pytest -rP` on this file prints the table of the largest errors.
"""

import io

import numpy as np
from PIL import Image
from PIL import ImageOps
import pytest
import tensorflow as tf

from tests.data import image_kinds
from tff_fedemb.data import encoded_images
from tff_fedemb.data import image_folder

_KINDS = image_kinds.list_kinds()
_MODES = {1: "L", 3: "RGB"}
# Decoders of JPEG may differ in the last bit.
_TOLERANCES = {"JPEG": 1}
# A decoder inside a computation refuses these: files are converted before.
_REFUSED = {"GIF in a larger one", "BMP 1", "WebP moving"}


def _convert(content, pixels, channels):
  """What Pillow makes of a file, or of its pixels."""
  if pixels is None:
    image = Image.open(io.BytesIO(content))
    # The grey of a JPEG is in the file.
    image.draft(_MODES[channels], image.size)
    image = ImageOps.exif_transpose(image)
  else:
    image = Image.fromarray(pixels)
  if image.has_transparency_data:
    paper = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(paper, image.convert("RGBA"))
  return np.asarray(image.convert(_MODES[channels])).astype(int)


@pytest.mark.parametrize("kind", _KINDS)
def test_every_kind_is_read_as_pillow_reads_it(kind):
  content, pixels = _KINDS[kind]
  errors = []
  for channels in _MODES:
    expected = _convert(content, pixels, channels)
    shape = (*expected.shape[:2], channels)
    found = [image_folder.read_image(kind, shape, content=content)]
    if kind in _REFUSED or kind.startswith(("TIFF", "PPM")):
      assert encoded_images.find_unreadable([content], shape) == [0]
    else:
      decode = encoded_images.create_eager_decoder(shape)
      found.append(decode(tf.constant([content]))[0].numpy())
    errors += [
      np.abs(image.astype(int) - expected.reshape(shape)).max()
      for image in found
    ]
  print(f"{kind:45} {' '.join(map(str, errors))}")
  assert max(errors) <= _TOLERANCES.get(kind.split()[0].strip(","), 0)


@pytest.mark.parametrize("kind", ["palette of 2", "palette of 4", "grey of 4"])
def test_a_damaged_transparency_is_not_left_out(kind):
  content = _KINDS[f"PNG {kind} with transparency"][0]
  place = content.index(b"tRNS") + 5
  damaged = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
  shape = (image_kinds.HEIGHT, image_kinds.WIDTH, 1)
  assert encoded_images.find_unreadable([damaged], shape) == [0]
  with pytest.raises(image_folder.ImageFolderError):
    image_folder.read_image("x", shape, content=damaged)
