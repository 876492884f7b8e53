"""Tests of made-up photos in the formats of the benchmarks and in folders."""

import collections
import io
import itertools
import pathlib

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import photos
from tasks.synthetic import registry
from tasks.synthetic import textures
from tests.tasks.prepare import made_up
from tff_fedemb.data import tfrecord_files

_NUM_USERS = 6
_WRITERS = registry.WRITERS
_FOLDERS = {"person": "photos", "user": "photos_shared"}


def _files(folder, suffix="jpg"):
  """Contents by the parts of their path."""
  return {
    path.relative_to(folder).parts: path.read_bytes()
    for path in sorted(pathlib.Path(folder).rglob(f"*.{suffix}"))
  }


class TestFolders:
  @pytest.fixture(name="kind", scope="class", params=_FOLDERS)
  def _kind(self, request):
    return request.param

  @pytest.fixture(name="files", scope="class")
  def _files(self, kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp(kind) / "photos"
    _WRITERS[_FOLDERS[kind]](folder, num_users=_NUM_USERS, seed=3)
    return _files(folder)

  def test_users_and_their_classes(self, kind, files):
    classes = collections.defaultdict(set)
    for user, label, _ in files:
      classes[user].add(label)
    assert sorted(classes) == [f"{kind}_{i:04d}" for i in range(_NUM_USERS)]
    if kind == "person":
      assert all(labels == {user} for user, labels in classes.items())
    else:
      owners = collections.Counter(x for some in classes.values() for x in some)
      assert len(owners) > 6 and max(owners.values()) > 1

  def test_match_is_of_other_users_and_has_strangers(self, files, tmp_path):
    _WRITERS["photos_match"](tmp_path / "match", num_users=_NUM_USERS, seed=3)
    found = _files(tmp_path / "match")
    owners = collections.defaultdict(set)
    for part, label, name in found:
      owners[part].add(label)
      assert name.startswith(label)
    assert len(owners["query"]) == _NUM_USERS
    assert len(owners["gallery"]) == _NUM_USERS - 1
    assert owners["gallery"] < owners["query"]
    assert not owners["query"] & {user for user, *_ in files}
    assert len(set(found.values())) == len(found)
    assert not set(found.values()) & set(files.values())


def test_a_face_is_a_class(tmp_path, monkeypatch):
  monkeypatch.setattr(photos, "_IMAGES_OF_FACE", 3)
  for number in (2, 17):
    _WRITERS["digiface"](tmp_path / str(number), num_users=number, seed=3)
  fewer, more = (_files(tmp_path / str(n), "png") for n in (2, 17))
  for number in range(5):
    image = textures.draw(
      (112, 112), seed=3, class_id=100_002, user=number, index=number
    )
    content = more["100002", f"{number}.png"]
    written = Image.open(io.BytesIO(content))
    assert (written.format, written.mode) == ("PNG", "RGB")
    np.testing.assert_array_equal(np.asarray(written), image)
  # People are the same whatever their number.
  assert len(fewer) == 6
  assert fewer.items() <= more.items()


@pytest.mark.parametrize(("num_users", "many"), [(15, 15), (17, 9), (33, 25)])
def test_faces_are_of_two_parts(tmp_path, monkeypatch, num_users, many):
  # The pictures would take nearly all of the time.
  monkeypatch.setattr(
    textures, "draw", lambda *_, **__: np.zeros((1, 1, 3), np.uint8)
  )
  _WRITERS["digiface"](tmp_path, num_users=num_users)
  sizes = collections.Counter(
    int(subject) for subject, _ in _files(tmp_path, "png")
  )
  assert sizes == dict.fromkeys(range(many), 72) | dict.fromkeys(
    range(100_000, 100_000 + num_users - many), 5
  )


def _read_variant(folder):
  """The records of each user, and those of the test set."""
  records = made_up.read_records(folder)
  test = records.pop("test.tfRecord")
  return records, test


class TestRecords:
  @pytest.fixture(name="gld", scope="class")
  def _gld(self, tmp_path_factory):
    directory = tmp_path_factory.mktemp("gld")
    _WRITERS["gld"](directory, num_users=4, seed=3)
    return directory

  def test_small_variant_is_a_part_of_the_large(self, gld):
    users, test = _read_variant(gld / "gld160k")
    small_users, small_test = _read_variant(gld / "gld23k")
    images = list(itertools.chain(test, *users.values()))
    everything = set(images)
    assert len(everything) == len(images)
    assert set(small_test) < everything
    owners = set()
    for records in small_users.values():
      owner = [user for user in users if set(records) <= set(users[user])]
      assert len(owner) == 1
      owners.update(owner)
    assert len(owners) == len(small_users) == 2
    # These are half of the 10 classes.
    assert len({label for _, label in small_test}) == 5

  # 5.2 * 4 ** 0.5 is 10.4.
  @pytest.mark.parametrize(
    ("variant", "classes"), [("gld160k", 10), ("gld23k", 5)]
  )
  def test_number_of_classes_follows_from_the_users_alone(
    self, gld, variant, classes
  ):
    _, test = _read_variant(gld / variant)
    assert min(collections.Counter(label for _, label in test).values()) >= 5
    assert {label for _, label in test} == set(range(classes))
    told = tfrecord_files.read_json(gld / variant / "generator.json")
    assert told == {"num_classes": classes}

  def test_classes_have_several_users(self):
    # The labels alone: the pictures would take nearly all of the time.
    classes = photos.num_classes(60)
    assert classes == 40
    labels = [
      photos.draw_labels(np.random.default_rng(user), classes)
      for user in range(60)
    ]
    sizes = np.array([len(own) for own in labels])
    assert sizes.min() >= 8 and sizes.max() <= 40 and sizes.std() > 3
    # A gamma variable of standard deviation 6.9, clipped at 40.
    assert abs(sizes.mean() - 20) < 3 * 6.9 / 60**0.5
    owners = np.sum(
      [np.bincount(np.unique(own), minlength=classes) for own in labels], axis=0
    )
    assert np.median(owners) >= 5
    images = np.bincount(np.concatenate(labels), minlength=classes)
    assert images.max() > 3 * np.median(images)
