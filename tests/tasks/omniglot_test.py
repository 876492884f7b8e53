"""Tests of the Omniglot task on a few made-up characters."""

import io
import os
import shutil
import zipfile

import numpy as np
from PIL import Image
import pytest

from tasks import omniglot
from tests.tasks import clients
from tff_fedemb import errors

# In alphabetical order; the 3rd is for validation, the 5th for test.
_ALPHABETS = ("Angle", "Bow's (old)", "Curl", "Dot", "Edge", "Flag")
_CHARACTERS = 2
_DRAWINGS = 3


def _draw(seed, alphabets=_ALPHABETS, side=28):
  """Images uint8 `[drawings, side, side]` by alphabet and character."""
  generator = np.random.default_rng(seed)
  return {
    (alphabet, character): generator.integers(
      0, 256, (_DRAWINGS, side, side), np.uint8
    )
    for alphabet in alphabets
    for character in range(1, _CHARACTERS + 1)
  }


def _write_zip(path, drawings, **damage):
  """Writes PNG files as the publisher has them; `damage` changes some."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("__MACOSX/Angle/character01/._0000_01.png", b"no image")
    for number, ((alphabet, character), images) in enumerate(drawings.items()):
      for drawer, image in enumerate(images, 1):
        content = io.BytesIO()
        Image.fromarray(image).save(content, "PNG")
        name = f"{alphabet}/character{character:02}/{number:04}_{drawer:02}.png"
        written = damage.get(name, content.getvalue())
        archive.writestr(f"{path.stem}/{name}", written)
  return path


def _write_compact(path, drawings, **changes):
  names = list(dict.fromkeys(alphabet for alphabet, _ in drawings))
  path.parent.mkdir(parents=True, exist_ok=True)
  places = np.array([names.index(a) for a, _ in drawings], np.int8)
  arrays = {
    "images": np.concatenate(list(drawings.values())),
    "character_id": np.repeat(np.arange(len(drawings)), _DRAWINGS),
    "alphabet_id": np.repeat(places, _DRAWINGS),
    "alphabets": np.array(names),
    **changes,
  }
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
  return path


_WRITERS = {
  "zip": ("images_background.zip", _write_zip),
  "compact": ("omniglot_background_28.npz", _write_compact),
}


def _write(kind, directory, drawings):
  name, write = _WRITERS[kind]
  return write(directory / name, drawings)


@pytest.fixture
def create(tmp_path):
  return clients.creator(omniglot.create_omniglot_task, tmp_path)


def _check(task, split, drawings, *alphabets):
  """Checks that a split has all drawings of some alphabets, and no others."""
  images = [drawings[key] for key in drawings if key[0] in alphabets]
  found = task.load_images(split)
  np.testing.assert_array_equal(found.images[..., 0], np.concatenate(images))
  # Characters are not mixed up.
  assert np.all(np.diff(found.labels.reshape(-1, _DRAWINGS)) == 0)
  assert len(set(found.labels)) == len(images)
  assert task.count_images(split) == len(found.labels)


@pytest.mark.parametrize("kind", sorted(_WRITERS))
def test_every_source_gives_the_same_images(tmp_path, create, kind):
  drawings = _draw(0)
  _write(kind, tmp_path / "data", drawings)
  task = create()
  assert task.image_shape == (28, 28, 1)
  assert task.num_train_classes == len(task.train_users) == 8
  for user_id, (alphabet, character), label in zip(
    clients.user_ids(task),
    [key for key in drawings if key[0] not in ("Curl", "Edge")],
    range(8),
    strict=True,
  ):
    images, labels = clients.read_client(task, user_id)
    np.testing.assert_array_equal(
      images, drawings[alphabet, character][..., np.newaxis]
    )
    np.testing.assert_array_equal(labels, [label] * _DRAWINGS)
  _check(task, "validation", drawings, "Curl")
  _check(task, "test", drawings, "Edge")
  clients.check_counts(task)


def test_names_that_differ_in_a_quote_are_different_users(tmp_path, create):
  drawings = _draw(0, ("A%27", "A'", "A-held-out", "A_", "A_held_out", "B\n"))
  _write("zip", tmp_path / "data", drawings)
  user_ids = clients.user_ids(create())
  assert len(set(user_ids)) == 8
  assert {"A_/character01", "A%27/character01", "A%2527/character01"} < set(
    user_ids
  )


def test_splits_of_the_real_number_of_alphabets():
  names = [f"alphabet{i:02}" for i in range(1, 31)]
  splits = omniglot.split_alphabets(names)
  numbers = {
    split: [int(n[-2:]) for n in names if split in splits[n]]
    for split in (
      *("validation", "test", "train", "public_half", "private_half"),
      *("search", "search_validation", "search_test"),
    )
  }
  assert numbers["test"] == [5, 10, 15, 20, 25, 30]
  assert numbers["validation"] == [3, 13, 23]
  assert len(numbers["train"]) == 21
  assert numbers["public_half"] == numbers["train"][0::2]
  assert numbers["private_half"] == numbers["train"][1::2]
  assert numbers["search_test"] == [7, 14, 21, 28]
  assert numbers["search_validation"] == [4, 18]
  others = {*numbers["search_test"], *numbers["search_validation"]}
  assert set(numbers["search"]) == set(numbers["train"]) - others


@pytest.mark.parametrize("has_evaluation", [False, True])
def test_a_search_sees_training_alphabets_alone(
  tmp_path, create, has_evaluation
):
  letters = _draw(0, "abcdefg")
  _write("zip", tmp_path / "data", letters)
  if has_evaluation:
    path = tmp_path / "data" / "images_evaluation.zip"
    _write_zip(path, _draw(1, ["Unseen"]))
  task = create(task_variant="search")
  # c and e are for validation and test otherwise; of a, b, d, f, g these are d
  # and g.
  assert {user[0] for user in clients.user_ids(task)} == {*"abf"}
  assert task.num_train_classes == len(task.train_users) == 6
  _check(task, "validation", letters, "d")
  _check(task, "test", letters, "g")


def test_evaluation_set_becomes_the_test_set(tmp_path, create):
  drawings, evaluation = _draw(0), _draw(1, ("Hook", "Zebra"))
  _write("compact", tmp_path / "data", drawings)
  _write_zip(tmp_path / "data" / "images_evaluation.zip", evaluation)
  task = create()
  assert len(task.train_users) == 8
  _check(task, "test", evaluation, "Hook", "Zebra")
  _check(task, "validation", drawings, "Curl", "Edge")


def test_drawings_are_made_smaller_by_averaging(tmp_path, create):
  # One pixel of 56 x 56 in the corner of each: a quarter of a pixel of 28 x 28.
  drawings = {
    key: np.full_like(images, 255) for key, images in _draw(0, side=56).items()
  }
  for images in drawings.values():
    images[:, 0, 0] = 55
  _write("zip", tmp_path / "data", drawings)
  images, _ = clients.read_client(create(), "Angle/character01")
  assert images.shape == (_DRAWINGS, 28, 28, 1)
  assert np.all(images[:, 0, 0] == 205)
  assert np.all(images[:, 1:] == 255)


def test_copy_is_used_again_and_renewed(tmp_path, create, monkeypatch):
  _write("compact", tmp_path / "data", _draw(0))
  before = clients.user_ids(create())
  with monkeypatch.context() as patch:
    patch.setattr(omniglot, "_read_splits", None)
    assert clients.user_ids(create()) == before
  (copy,) = (tmp_path / "cache").iterdir()
  copy.write_bytes(copy.read_bytes()[:5000])
  task = create()
  assert clients.user_ids(task) == before
  assert len(task.load_images("test").labels) == _CHARACTERS * _DRAWINGS
  # With another source there is another copy.
  changed = _draw(5)
  _write("compact", tmp_path / "data", changed)
  images, _ = clients.read_client(create(), before[0])
  np.testing.assert_array_equal(images, changed["Angle", 1][..., np.newaxis])
  shutil.rmtree(copy.parent)
  copy.parent.write_text("not a directory")
  with pytest.raises(errors.FieldError, match="cache_dir must be writable"):
    create()


class TestMistakes:
  @pytest.mark.parametrize(
    ("options", "message"),
    [
      ({"task_variant": "half"}, "task_variant must be one of "),
      ({"image_size": 32}, "image_size must be 28 for task omniglot"),
      ({"on_bad_example": "skip"}, "on_bad_example must be fail for task"),
      ({"task_variant": "search"}, "task_variant must be another one with few"),
    ],
  )
  def test_options(self, tmp_path, create, options, message):
    _write("zip", tmp_path / "data", _draw(0))
    assert clients.read_error(create, **options).startswith(message)

  def test_zip_without_images(self, tmp_path, create):
    _write("zip", tmp_path / "data", {})
    message = clients.read_error(create)
    assert "images_background.zip must hold <alphabet>/" in message

  @pytest.mark.parametrize("content", [b"text", b"\x89PNG\r\n\x1a\n cut"])
  def test_damaged_image_is_named(self, tmp_path, create, content):
    name = "Dot/character02/0007_02.png"
    path = tmp_path / "data" / "images_background.zip"
    _write_zip(path, _draw(0), **{name: content})
    text = clients.read_error(create)
    assert text.startswith(f"{path} must be a whole zip archive of PNG images")
    assert f"found in images_background/{name}: " in text
    assert "BytesIO" not in text
    assert not (tmp_path / "cache").exists()

  @pytest.mark.parametrize(
    ("kind", "place", "length", "expected"),
    [
      ("zip", -20, 20, "a whole zip archive of PNG images, found in it"),
      ("zip", 500, 16, "a whole zip archive of PNG images, found in images_b"),
      ("compact", 1000, 16, "an npz file"),
      ("compact", -20, 20, "an npz file"),
    ],
  )
  def test_damaged_archive_is_named(
    self, tmp_path, create, kind, place, length, expected
  ):
    path = _write(kind, tmp_path / "data", _draw(0))
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place : place + length] = bytes(length)
    path.write_bytes(content)
    assert clients.read_error(create).startswith(f"{path} must be {expected}")

  @pytest.mark.parametrize(
    ("name", "value", "found"),
    [
      ("images", np.zeros([36, 105, 105], np.uint8), "uint8 [36, 105, 105]"),
      ("alphabets", None, "found: 'alphabets is not a file"),
      ("character_id", np.zeros([3], int), "found: zip() argument"),
      ("alphabet_id", np.full([36], 6), "found: index 6 is out of bounds"),
      ("alphabets", np.array([{}] * 6), "found: Object arrays cannot"),
    ],
  )
  def test_npz_of_another_form_is_named(
    self, tmp_path, create, name, value, found
  ):
    path = tmp_path / "data" / "omniglot_background_28.npz"
    _write_compact(path, _draw(0), **{name: value})
    text = clients.read_error(create)
    assert text.startswith(f"{path} must ")
    assert found in text

  def test_too_few_alphabets_or_the_same(self, tmp_path, create):
    background = _write("zip", tmp_path / "data", _draw(0))
    path = tmp_path / "data" / "images_evaluation.zip"
    _write_zip(path, _draw(1, ("Hook", "Flag")))
    text = clients.read_error(create)
    assert text.startswith(f"{path} must hold alphabets that are not in")
    assert os.fspath(background) in text
    assert "found 'Flag' in both" in text
    _write("zip", tmp_path / "data", _draw(0, _ALPHABETS[1:5]))
    text = clients.read_error(create)
    assert text.startswith(f"{background} must hold 5 alphabets or more")
    assert text.endswith("found 4.")
