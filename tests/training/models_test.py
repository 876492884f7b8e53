"""Tests of the model of a run: its start, and the images it is evaluated on."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.evaluation import embedding
from tff_fedemb.records import run_directory
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.training import models


def _create_backbone():
  """As small as a backbone can be: 4 pixels to an embedding of 2 numbers."""
  layers = tf.keras.layers
  inputs = layers.Input((2, 2, 1))
  return tf.keras.Model(
    inputs, layers.Dense(2, name="embedding")(layers.Flatten()(inputs))
  )


_KERNEL = np.arange(8, dtype=np.float32).reshape(4, 2)
_BIAS = np.array([-1.0, 0.5], np.float32)


def _write_weights(path, *weights):
  backbone = _create_backbone()
  backbone.set_weights(weights)
  backbone.save_weights(path)
  return str(path)


def test_a_run_starts_and_goes_on_from_the_same_weights(tmp_path, capsys):
  run_dir = tmp_path / "run"
  path = _write_weights(tmp_path / "public.h5", _KERNEL, _BIAS)

  def load(path, *, is_needed=False):
    return models.load_start(
      _create_backbone, path, str(run_dir), is_needed=is_needed
    )

  start = load(path)
  tf.nest.map_structure(
    np.testing.assert_array_equal, start.weights, [_KERNEL, _BIAS]
  )
  told = f"They must be {start.record['assumption']}.\n"
  assert capsys.readouterr().out.endswith(told)
  # The run is not begun by loading.
  assert not run_dir.exists()
  directory = run_directory.RunDirectory(run_dir, {"rounds": 3})
  directory.write_json(models.RECORD, start.record)
  directory.close()
  copy = _write_weights(tmp_path / "copy.hdf5", _KERNEL, _BIAS)
  np.testing.assert_array_equal(load(copy).weights[0], _KERNEL)
  # Part of a checkpoint, of a program that was killed, is none.
  (run_dir / "checkpoints" / "round_0_temp1").mkdir(parents=True)
  _write_weights(path, _KERNEL, _BIAS + 1)
  with pytest.raises(errors.FieldError, match=r"what the run in .* has begun"):
    load(path)
  # With a checkpoint the file is read only where the start is needed still.
  (run_dir / "checkpoints" / "round_3").mkdir()
  np.testing.assert_array_equal(load(copy, is_needed=True).weights[0], _KERNEL)
  with pytest.raises(errors.FieldError, match=r"what the run in .* has begun"):
    load(path, is_needed=True)
  os.remove(path)
  again = load(path)
  assert again.weights is None
  assert again.record == json.loads(json.dumps(start.record))


@pytest.mark.parametrize("path", ["", "run", "file", "none/a", "file/a"])
def test_a_place_where_no_backbone_can_be_put(tmp_path, monkeypatch, path):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "file").write_text("mine")
  models.check_export(str(tmp_path / "backbone"), "run")
  with pytest.raises(
    errors.FieldError, match=f"a path where there is nothing .*found '{path}'"
  ):
    models.check_export(path, str(tmp_path / "run"))
  assert os.listdir(tmp_path) == ["file"]


def test_a_backbone_is_copied_whole_and_over_nothing(tmp_path, capsys):
  variables = tmp_path / "run/release/saved_model/variables"
  variables.mkdir(parents=True)
  (variables / "index").write_text("index")
  # An earlier attempt has left this.
  (tmp_path / ".backbone.partial").mkdir()
  (tmp_path / ".backbone.partial/half").write_text("half")
  for _ in range(2):
    models.export(tmp_path / "run", str(tmp_path / "backbone"))
  assert sorted(os.listdir(tmp_path)) == ["backbone", "run"]
  assert (tmp_path / "backbone/variables/index").read_text() == "index"
  assert "left as it is" in capsys.readouterr().out


def test_a_run_without_its_model_has_none_to_copy(tmp_path):
  with pytest.raises(errors.FieldError, match="run_dir must hold release/sav"):
    models.export(str(tmp_path), str(tmp_path / "backbone"))
  assert not os.listdir(tmp_path)


class _Task:
  """As much of a task as loading its images needs."""

  name = "tiny"

  def __init__(self, labels):
    self._labels = np.array(labels)

  def load_images(self, split):
    del split  # The same for all.
    images = np.zeros([len(self._labels), 1, 1, 1], np.uint8)
    return embedding.LabelledImages(images, self._labels)


def _load_images(labels, max_evaluation_images=0, max_held_out_images=0):
  config = spec_lib.Evaluation(
    max_evaluation_images=max_evaluation_images,
    max_held_out_images=max_held_out_images,
  )
  return models.load_images(_Task(labels), config)


def test_of_many_images_the_same_sample_each_time():
  labels = np.random.default_rng(0).integers(0, 4, size=60)
  by_split, sample = _load_images(labels, 12, 40)
  again, _ = _load_images(labels, 12, 40)
  for split, images in by_split.items():
    assert (len(images.labels), images.num_found) == (40, 60)
    np.testing.assert_array_equal(images.labels, again[split].labels)
  assert (len(sample.labels), sample.num_found) == (12, 60)
  by_split, _ = _load_images(labels, 0, 60)
  assert by_split["test"].num_found is None


@pytest.mark.parametrize(
  ("labels", "max_images", "message"),
  [
    ([0, 0, 0], 0, "found 1 classes of at most 3 images"),
    ([0, 1, 2], 0, "found 3 classes of at most 1 images"),
    ([0, 0, 1, 1], 1, "found 1 classes of at most 1 images in its valid"),
  ],
)
def test_images_without_pairs_are_refused(labels, max_images, message):
  with pytest.raises(ValueError, match=message):
    _load_images(labels, max_images)


def test_images_for_test_do_not_tell_that_a_model_diverged(capsys):
  """They may be of users who train; a tuning ranks a model by others."""
  images = np.ones([4, 3], np.float32)
  bad = images.copy()
  bad[1] = np.inf
  labels = np.array([0, 0, 1, 1])
  good, broken = (
    embedding.LabelledImages(each, labels) for each in (images, bad)
  )

  def evaluate(validation, test):
    by_split = {"validation": validation, "test": test}
    backbone = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    backbone.build((None, 3))
    return models.Evaluator(backbone, by_split, validation).embed_all()

  found = evaluate(good, broken)["test"].embeddings
  assert np.all(np.isfinite(found))
  assert not np.any(found[1])
  assert "1 images have embeddings that are not finite" in (
    capsys.readouterr().out
  )
  with pytest.raises(errors.DivergedError):
    evaluate(broken, good)
