"""Tests of the synthetic folders of photos by user."""

import collections
import dataclasses
import itertools
import pathlib

import numpy as np
import pytest
from tensorflow_federated.python.simulation.datasets import (
  vision_datasets_utils,
)

from tasks.synthetic import registry
from tasks.synthetic import tfrecord_twin
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_files

_NUM_USERS = 4
_SEED = 3


def _read_variant(folder):
  """The records of each user, and those of the test set."""
  folder = pathlib.Path(folder)
  users = {
    path.name: tfrecord_twin.read_records(path)
    for path in (folder / "train").iterdir()
  }
  return users, tfrecord_twin.read_records(folder / "test.tfRecord")


_PLAIN = tfrecord_twin.Twin("plain", {"all": 1.0, "half": 0.5})


def test_shapes_are_upright_and_wide():
  generator = np.random.default_rng(0)
  shapes = [tfrecord_twin.draw_shape(generator) for _ in range(200)]
  sides = np.array(shapes)[:, :2]
  assert sides.min() >= 90 and sides.max() <= 180
  assert 0.1 < np.mean(sides[:, 0] > sides[:, 1]) < 0.4


@pytest.fixture(scope="module")
def gld_folder(tmp_path_factory):
  directory = tmp_path_factory.mktemp("gld")
  registry.GLD.write(directory, num_users=_NUM_USERS, seed=_SEED)
  return directory


@pytest.fixture(scope="module", params=["gld160k", "gld23k"])
def variant(request, gld_folder):
  return gld_folder / request.param


class TestFormat:
  def test_tff_reads_the_files(self, variant):
    # Whatever is wrong with its way to the files, see `tasks.synthetic
    # .registry`, this is how TFF 0.87 reads one.
    users, test = _read_variant(variant)
    name, records = next(iter(users.items()))
    for path, expected in (("train/" + name, records), ("test.tfRecord", test)):
      loaded = list(
        vision_datasets_utils.load_tfrecord(
          str(variant / path), "test"
        ).as_numpy_iterator()
      )
      assert [int(example["class"][0]) for example in loaded] == [
        label for label, _ in expected
      ]
      for example in loaded:
        assert example["image/decoded"].dtype == np.uint8
        assert example["image/decoded"].shape[2] in (1, 3)


class TestPopulation:
  def test_classes_have_several_users(self):
    # The labels alone: the pictures would take nearly all of the time.
    classes = tfrecord_twin.num_classes(60)
    assert classes == 40
    labels = [
      tfrecord_twin.draw_labels(np.random.default_rng(user), classes)
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

  def test_small_variant_is_a_part_of_the_large(self, gld_folder):
    users, test = _read_variant(gld_folder / "gld160k")
    small_users, small_test = _read_variant(gld_folder / "gld23k")
    images = list(itertools.chain(test, *users.values()))
    everything = set(images)
    assert len(everything) == len(images)
    assert set(small_test) < everything
    owners = set()
    for records in small_users.values():
      owner = [user for user in users if set(records) <= set(users[user])]
      assert len(owner) == 1
      owners.update(owner)
    assert len(owners) == len(small_users) == _NUM_USERS // 2
    # Of 10 classes.
    assert len({label for label, _ in small_test}) == 5


# 5.2 * 7 ** 0.5 is 13.76.
@pytest.mark.parametrize(("num_users", "classes"), [(1, 6), (2, 7), (7, 14)])
def test_number_of_classes_follows_from_the_users_alone(
  tmp_path, num_users, classes
):
  for seed in range(2):
    directory = tmp_path / str(seed)
    paths = _PLAIN.write(directory, num_users=num_users, seed=seed)
    users, test = _read_variant(paths[0])
    assert len(users) == num_users
    assert min(collections.Counter(label for label, _ in test).values()) >= 5
    assert {label for label, _ in test} == set(range(classes))
    told = [tfrecord_files.read_generator(p)["num_classes"] for p in paths]
    assert told == [classes, round(classes / 2)]


@pytest.mark.parametrize("change", ["version", "name"])
def test_other_pictures_are_refused(tmp_path, monkeypatch, change):
  _PLAIN.write(tmp_path, num_users=1)
  twin = _PLAIN
  if change == "version":
    monkeypatch.setattr(tfrecord_twin, "_GENERATOR_VERSION", 99)
  else:
    twin = dataclasses.replace(_PLAIN, name="other")
  with pytest.raises(errors.DataError, match=r"found name=plain, gen.*=4, num"):
    twin.write(tmp_path, num_users=1)
