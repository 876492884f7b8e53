"""Tests of the reader of plain image folders.

`image_kinds_test` has files of every kind.
"""

import io

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from tests.data import photo_files
from tff_fedemb import errors
from tff_fedemb.data import encoded_images
from tff_fedemb.data import image_folder

_GREY = np.array([[0, 50, 100], [150, 200, 255]], np.uint8)


def _tiff(dtype, tags=None):
  """A TIFF whose tags say something else of its samples."""
  content = io.BytesIO()
  Image.fromarray(_GREY.astype(dtype)).save(content, "TIFF")
  changed = bytearray(content.getvalue())
  start = 2 + int.from_bytes(changed[4:8], "little")
  for place in range(start, len(changed), 12):
    tag = int.from_bytes(changed[place : place + 2], "little")
    if tag in (tags or {}):
      changed[place + 8] = tags[tag]
  return bytes(changed)


def _touch(path, content=b"x"):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)
  return path


class TestListImages:
  def test_sub_folders_are_classes(self, tmp_path):
    names = ("a/x.bmp", "a/y.pgm", "b/1.jpeg", "b/2.PNG")
    ignored = ("README", "a/deeper", "a/notes.txt", "only_text/n.txt")
    others = ("a/deeper/3.png", ".hidden/1.png", "a/.2.png")
    for name in (*names, *others, "README", "a/notes.txt", "only_text/n.txt"):
      _touch(tmp_path / name)
    folder = image_folder.list_images(tmp_path)
    assert folder.class_names == ("a", "b", "only_text")
    assert folder.paths == tuple(tmp_path / name for name in names)
    np.testing.assert_array_equal(folder.labels, [0, 0, 1, 1])
    assert folder.labels.dtype == np.int64
    assert folder.ignored == tuple(tmp_path / name for name in ignored)

  @pytest.mark.parametrize(
    ("names", "for_pairs", "message"),
    [
      ((), True, "gallery must hold .* two .* found 0 with 0 images"),
      (("x/a/1.png", "x/a/2.png", "x/b/1.svg"), True, "found 1 with 2 images"),
      (("x/a/1.png", "x/b/1.png", "x/c/1.png"), True, "found 3 with 3 images"),
      (("x/1.png",), False, "gallery must hold sub-folders"),
      (("x",), False, "Not a directory"),
    ],
  )
  def test_too_little_is_refused(self, tmp_path, names, for_pairs, message):
    if not names:
      (tmp_path / "x").mkdir()
    for name in names:
      _touch(tmp_path / name)
    with pytest.raises(errors.FieldError, match=message):
      image_folder.list_images(
        tmp_path / "x", name="gallery", for_pairs=for_pairs
      )


def test_all_images_below_a_folder(tmp_path):
  names = ("b.PNG", "a/é.heic", "a/deep/er/x y.jpg")
  for name in (*names, "a/.b.png", "a/notes.txt", ".git/x.png"):
    _touch(tmp_path / name)
  (tmp_path / "folder.png").mkdir()
  found = image_folder.list_all_images(tmp_path, name="query")
  assert found == tuple(tmp_path / name for name in names)
  with pytest.raises(errors.FieldError, match=r"query must hold images"):
    image_folder.list_all_images(tmp_path / "folder.png", name="query")
  with pytest.raises(errors.FieldError, match=r"query must be .* No such"):
    image_folder.list_all_images(tmp_path / "missing", name="query")


class TestReadImage:
  @pytest.mark.parametrize(
    ("form", "mode", "size", "channels"),
    [
      ("JPEG", "L", (300, 200), 3),
      ("PNG", "RGB", (30, 90), 1),
      # Converted to PNG first.
      ("GIF", "L", (30, 90), 1),
    ],
  )
  def test_photos_are_read_as_in_training(
    self, tmp_path, form, mode, size, channels
  ):
    shape = (28, 28, channels)
    content = photo_files.encode(5, form, mode, size)
    image = image_folder.read_image(_touch(tmp_path / "x", content), shape)
    assert image.dtype == np.uint8
    decode = encoded_images.build_decoder(shape)
    np.testing.assert_array_equal(image, decode(tf.constant([content]))[0])

  @pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
      ("text.png", lambda _: b"this is no picture", "cannot identify image"),
      ("x.heic", lambda _: b"\0\0\0\x18ftypheic\0\0\0\0", "WEBP, TIFF image"),
      ("header.png", lambda whole: whole[:20], "must be a"),
      (
        "flipped.png",
        lambda whole: whole[:90] + bytes([whole[90] ^ 255]) + whole[91:],
        "must be a",
      ),
      ("cut.jpg", lambda whole: whole[: len(whole) // 2], "must be a"),
      ("sizeless.pgm", lambda _: b"P5 three two 255\n123", "must be a"),
      ("float.tif", lambda _: _tiff(np.float32), "found: floating-point"),
      ("32.tif", lambda _: _tiff(np.int32), "or 32 bits a sample; convert it"),
      ("12.tif", lambda _: _tiff(np.uint16, {258: 12}), "or 12 bits a sample"),
      ("white.tif", lambda _: _tiff(np.uint16, {262: 0}), "which 0 is white"),
      ("gone.png", None, "No such file"),
    ],
  )
  def test_damaged_files_are_named(self, tmp_path, name, damage, message):
    noise = np.random.default_rng(0).integers(0, 255, (40, 40), np.uint8)
    path = tmp_path / name
    if damage:
      form = "JPEG" if path.suffix == ".jpg" else "PNG"
      Image.fromarray(noise).save(path, form)
      path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(image_folder.ImageFolderError, match=message) as error:
      image_folder.read_image(path, (28, 28, 1))
    assert str(error.value).startswith(f"{path} must be a")
    assert "\n" not in str(error.value)
    assert "BytesIO" not in str(error.value)
