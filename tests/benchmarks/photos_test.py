"""The photos of the benchmark are the same, encoded or not, and are used."""

import dataclasses
import io

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from benchmarks import cases
from benchmarks import photos as photos_lib
from benchmarks import training_rounds
from tests.algorithms import builders

_SIDE = 28


_ENCODED = cases.Case(
  num_clients=1,
  steps=1,
  batch_size=6,
  image_shape=(_SIDE, _SIDE, 3),
  photos=cases.Photos(2, (40, 60)),
)
_DECODED = dataclasses.replace(
  _ENCODED,
  photos=dataclasses.replace(_ENCODED.photos, is_decoded=True),
)


@pytest.fixture(name="tasks", scope="module")
def _tasks(tmp_path_factory):
  return tuple(
    photos_lib.create_task(tmp_path_factory.mktemp("photos"), case)
    for case in (_ENCODED, _DECODED)
  )


def test_decoded_images_are_those_that_a_client_decodes(tasks):
  encoded, decoded = tasks
  seen = []
  for client_id in ("0", "1"):
    (first,) = encoded.create_client_dataset(tf.constant(client_id))
    (second,) = decoded.create_client_dataset(tf.constant(client_id))
    images = encoded.decode_images(first["x"]).numpy()
    assert images.shape == (6, _SIDE, _SIDE, 3)
    np.testing.assert_array_equal(second["x"], images)
    np.testing.assert_array_equal(second["y"], first["y"])
    sizes = [Image.open(io.BytesIO(x)).size for x in first["x"].numpy()]
    for width, height in sizes:
      assert 36 <= min(width, height) <= 40
      assert 54 <= max(width, height) <= 60
    seen.append(images)
  assert np.abs(seen[0].astype(int) - seen[1]).mean() > 10.0
  assert not len(encoded.bad_examples)


def test_photos_have_the_detail_of_photographs():
  generator = np.random.default_rng(0)
  content = io.BytesIO()
  Image.fromarray(photos_lib.draw_photo(generator, 375, 500)).save(
    content, "JPEG", quality=90
  )
  assert 40_000 < content.tell() < 120_000


@pytest.mark.slow
def test_clients_train_on_photos(monkeypatch, tasks):
  monkeypatch.setattr(training_rounds, "NOISE_MULTIPLIER", 0.0)
  process = training_rounds.build_process(_ENCODED, tasks[0])
  before, after, _ = builders.run_round(process, _ENCODED.client_ids(0))
  # One client of six photos, and a norm of one to move by at most.
  moved = [np.sum((x - y) ** 2) for x, y in zip(after, before, strict=True)]
  assert 0.0 < np.sqrt(np.sum(moved)) <= 1.0 + 1e-5


def test_users_take_turns():
  case = dataclasses.replace(
    _ENCODED, num_clients=4, photos=cases.Photos(8, (40, 60))
  )
  assert case.client_ids(0) == ["0", "1", "2", "3"]
  assert case.client_ids(1) == ["4", "5", "6", "7"]
  assert case.client_ids(2) == case.client_ids(0)
