"""Tests of the reader of plain image folders."""

import os

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from tests.data import photo_files
from tff_fedemb import errors
from tff_fedemb.data import encoded_images
from tff_fedemb.data import image_folder

_GREY = np.array([[0, 50, 100], [150, 200, 255]], np.uint8)
_COLOUR = np.stack([_GREY, 255 - _GREY, _GREY // 2], axis=-1)
_VEILED = np.array([[[0, 0, 0, 255], [0] * 4, [0, 0, 0, 51]]], np.uint8)


def _save(path, pixels, **options):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.fromarray(pixels).save(path, **options)
  return path


def _touch(path, content=b"x"):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)
  return path


class TestListImages:
  def test_sub_folders_are_classes(self, tmp_path):
    for name in ("b/2.PNG", "b/1.jpeg", "a/x.bmp", "a/y.pgm", "c/z.jpg"):
      _touch(tmp_path / name)
    (tmp_path / "empty").mkdir()
    folder = image_folder.list_images(tmp_path)
    assert folder.class_names == ("a", "b", "c", "empty")
    assert folder.paths == tuple(
      tmp_path / name
      for name in ("a/x.bmp", "a/y.pgm", "b/1.jpeg", "b/2.PNG", "c/z.jpg")
    )
    np.testing.assert_array_equal(folder.labels, [0, 0, 1, 1, 2])
    assert folder.labels.dtype == np.int64
    assert not folder.ignored

  def test_what_is_no_image_by_its_name_is_ignored_and_told(self, tmp_path):
    for name in ("a/1.png", "a/2.png", "b/1.png", ".hidden/1.png", "a/.2.png"):
      _touch(tmp_path / name)
    ignored = ("README", "a/deeper", "a/notes.txt", "only_text/n.txt")
    for name in ("README", "a/deeper/3.png", "a/notes.txt", "only_text/n.txt"):
      _touch(tmp_path / name)
    folder = image_folder.list_images(tmp_path)
    assert folder.class_names == ("a", "b", "only_text")
    assert len(folder.paths) == 3
    assert folder.ignored == tuple(tmp_path / name for name in ignored)

  @pytest.mark.parametrize(
    ("names", "found"),
    [
      ((), "found 0 with 0 images"),
      (("a/1.png", "a/2.png"), "found 1 with 2 images"),
      (("a/1.png", "b/1.png", "c/1.png"), "found 3 with 3 images"),
      (("a/1.png", "a/2.png", "b/1.svg"), "found 1 with 2 images"),
    ],
  )
  def test_too_few_classes_are_refused(self, tmp_path, names, found):
    for name in names:
      _touch(tmp_path / name)
    with pytest.raises(errors.FieldError, match=found) as error:
      image_folder.list_images(tmp_path)
    assert str(error.value).startswith("image_folder must hold two")

  def test_missing_folder_and_file_are_refused(self, tmp_path):
    with pytest.raises(errors.FieldError, match="No such file"):
      image_folder.list_images(tmp_path / "missing")
    with pytest.raises(errors.FieldError, match="Not a directory"):
      image_folder.list_images(_touch(tmp_path / "file"))

  def test_a_gallery_may_have_one_image(self, tmp_path):
    _touch(tmp_path / "ann" / "1.png")
    folder = image_folder.list_images(tmp_path, name="gallery", for_pairs=False)
    assert folder.class_names == ("ann",)
    with pytest.raises(errors.FieldError, match="gallery must hold sub-fold"):
      image_folder.list_images(
        tmp_path / "ann", name="gallery", for_pairs=False
      )


class TestListAllImages:
  def test_folders_may_be_nested(self, tmp_path):
    for name in ("b.PNG", "a/deep/er/x y.jpg", "a/é.heic", "a/.b.png"):
      _touch(tmp_path / name)
    for name in ("a/notes.txt", ".git/x.png"):
      _touch(tmp_path / name)
    (tmp_path / "folder.png").mkdir()
    found = image_folder.list_all_images(tmp_path, name="query")
    names = ("b.PNG", "a/é.heic", "a/deep/er/x y.jpg")
    assert found == tuple(tmp_path / name for name in names)

  def test_missing_and_empty_folders_are_refused(self, tmp_path):
    with pytest.raises(errors.FieldError, match=r"query must hold images"):
      image_folder.list_all_images(tmp_path, name="query")
    with pytest.raises(errors.FieldError, match=r"query must be .* No such"):
      image_folder.list_all_images(tmp_path / "missing", name="query")


class TestReadImage:
  # The veiled pixels are black: opaque, not there at all, and a fifth opaque
  # (255 * 0.8 = 204). The last picture has a sample of 16 bits that stands for
  # transparency.
  @pytest.mark.parametrize(
    ("name", "picture", "options", "expected"),
    [
      ("x.png", _GREY, {}, _GREY[..., np.newaxis]),
      ("x.bmp", _GREY, {}, _GREY[..., np.newaxis]),
      ("x.pgm", _GREY, {}, _GREY[..., np.newaxis]),
      ("x.gif", _GREY, {}, _GREY[..., np.newaxis]),
      ("x.tif", _COLOUR, {}, _COLOUR),
      ("x.webp", _COLOUR, {"lossless": True}, _COLOUR),
      (
        "x.webp",
        _VEILED,
        {"lossless": True},
        [[[0] * 3, [255] * 3, [204] * 3]],
      ),
      # The content counts, not the name.
      ("x.png", _GREY, {"format": "BMP"}, _GREY[..., np.newaxis]),
      ("x.png", _GREY, {}, np.stack([_GREY] * 3, axis=-1)),
      ("x.bmp", _COLOUR, {}, _COLOUR),
      (
        "x.jpg",
        np.full([16, 16, 3], 77, np.uint8),
        {},
        np.full([16, 16, 3], 77),
      ),
      ("x.png", _GREY.astype("u2") * 257, {}, _GREY[..., np.newaxis]),
      ("x.pgm", _GREY.astype("u2") * 257, {}, _GREY[..., np.newaxis]),
      (
        "x.png",
        np.array([[0, 2570, 5140]], np.uint16),
        {"transparency": 2570},
        [[[0], [255], [20]]],
      ),
    ],
  )
  def test_pictures_of_every_kind(
    self, tmp_path, name, picture, options, expected
  ):
    if isinstance(picture, np.ndarray):
      picture = Image.fromarray(picture)
    picture.save(tmp_path / name, **options)
    image = image_folder.read_image(tmp_path / name, np.shape(expected))
    assert image.dtype == np.uint8
    np.testing.assert_allclose(image, expected, atol=0.51)

  @pytest.mark.parametrize(
    ("form", "mode", "size"),
    [
      ("JPEG", "RGB", (100, 60)),
      ("JPEG", "L", (300, 200)),
      ("PNG", "RGB", (30, 90)),
    ],
  )
  @pytest.mark.parametrize("channels", [1, 3])
  def test_photos_are_read_as_in_training(
    self, tmp_path, form, mode, size, channels
  ):
    shape = (28, 28, channels)
    content = photo_files.encode(5, form, mode, size)
    image = image_folder.read_image(_touch(tmp_path / "x", content), shape)
    decode = encoded_images.build_decoder(shape)
    np.testing.assert_array_equal(image, decode(tf.constant([content]))[0])

  def test_damaged_files_are_named(self, tmp_path):
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 255, (40, 40), np.uint8)
    whole = _save(tmp_path / "whole.png", noise).read_bytes()
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 255
    jpeg = _save(tmp_path / "whole.jpg", noise).read_bytes()
    for name, content in {
      "text.png": b"this is no picture",
      "empty.png": b"",
      "cut.png": whole[: len(whole) // 2],
      "header.png": whole[:20],
      "flipped.png": bytes(broken),
      "cut.jpg": jpeg[: len(jpeg) // 2],
      "cut.pgm": b"P5 3 2 255\n123",
      "sizeless.pgm": b"P5 three two 255\n123",
    }.items():
      path = _touch(tmp_path / name, content)
      with pytest.raises(image_folder.ImageFolderError) as error:
        image_folder.read_image(path, (28, 28, 1))
      assert str(error.value).startswith(f"{path} must be a")
      assert "\n" not in str(error.value)
      assert "BytesIO" not in str(error.value)

  def test_other_formats_and_missing_files_are_named(self, tmp_path):
    path = _save(tmp_path / "x.png", _GREY, format="TGA")
    with pytest.raises(image_folder.ImageFolderError, match="something else"):
      image_folder.read_image(path, (28, 28, 1))
    path = _touch(tmp_path / "x.heic", b"\0\0\0\x18ftypheic\0\0\0\0")
    with pytest.raises(image_folder.ImageFolderError, match="WEBP, TIFF image"):
      image_folder.read_image(path, (28, 28, 1))
    path = tmp_path / "gone.png"
    with pytest.raises(image_folder.ImageFolderError, match=os.fspath(path)):
      image_folder.read_image(path, (28, 28, 1))
