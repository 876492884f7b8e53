"""Tests of the folders of photos: layout, sizes, what users share."""

import collections
import pathlib

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import photos

_NUM_USERS = 6
_KINDS = {"person": photos.PEOPLE, "writer": photos.WRITERS}


@pytest.fixture(name="kind", scope="module", params=_KINDS)
def _kind(request):
  return request.param


@pytest.fixture(name="folder", scope="module")
def _folder(kind, tmp_path_factory):
  folder = tmp_path_factory.mktemp(kind) / "photos"
  _KINDS[kind].write(folder, num_users=_NUM_USERS, seed=3)
  return folder


def _parts(folder):
  return [path.relative_to(folder).parts for path in folder.rglob("*.jpg")]


def test_users_and_their_classes(kind, folder):
  classes = collections.defaultdict(set)
  for user, label, _ in _parts(folder):
    classes[user].add(label)
  assert sorted(classes) == [f"{kind}_{i:04d}" for i in range(_NUM_USERS)]
  if kind == "person":
    assert all(labels == {user} for user, labels in classes.items())
    return
  assert all(8 <= len(labels) <= 16 for labels in classes.values())
  # Of 47 classes, no user has more than 16.
  shared = collections.Counter(x for labels in classes.values() for x in labels)
  assert max(shared.values()) > 1
  assert len({label.lower() for label in shared}) == len(shared)


def test_images_are_small_photos_of_all_sizes(folder):
  sizes = set()
  for path in folder.rglob("*.jpg"):
    with Image.open(path) as image:
      assert image.format == "JPEG"
      assert np.asarray(image).std() > 5
      sizes.add(image.size)
  assert len(sizes) > 20
  assert 64 <= np.min(list(sizes)) <= np.max(list(sizes)) <= 112


def test_a_user_is_the_same_whatever_their_number(kind, folder, tmp_path):
  _KINDS[kind].write(tmp_path / "fewer", num_users=2, seed=3)
  names = _parts(tmp_path / "fewer")
  assert len({user for user, *_ in names}) == 2
  for name in names:
    content = pathlib.Path(tmp_path, "fewer", *name).read_bytes()
    assert content == pathlib.Path(folder, *name).read_bytes()


def test_match_is_of_other_users_and_has_strangers(kind, folder, tmp_path):
  _KINDS[kind].write_match(tmp_path / "match", num_users=_NUM_USERS, seed=3)
  owners = {"gallery": set(), "query": set()}
  files = [p for p in (tmp_path / "match").rglob("*.jpg")]
  for part, _, name in _parts(tmp_path / "match"):
    owners[part].add(name.rsplit("_", 1)[0])
  assert len(owners["query"]) == _NUM_USERS
  assert len(owners["gallery"]) == _NUM_USERS - 1
  assert owners["gallery"] < owners["query"]
  assert not owners["query"] & {user for user, *_ in _parts(folder)}
  contents = [path.read_bytes() for path in files]
  assert len(set(contents)) == len(contents)


def test_classes_are_those_that_emnist_tells_apart():
  labels = set()
  generator = np.random.default_rng(0)
  while len(labels) < 47:
    labels |= {label for label, _ in photos.WRITERS.draw(generator, "w")}
  assert len(labels) == 47
  assert {"digit_0", "letter_A", "letter_A_small", "letter_C"} <= labels
  assert "letter_C_small" not in labels
