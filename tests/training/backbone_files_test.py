"""Tests of the backbones that a run takes from a file, or leaves in one."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.program import run_directory
from tff_fedemb.training import backbone_files


def _create_backbone(dim=2):
  """As small as a backbone can be: 4 pixels to an embedding of 2 numbers."""
  layers = tf.keras.layers
  inputs = layers.Input((2, 2, 1))
  return tf.keras.Model(
    inputs, layers.Dense(dim, name="embedding")(layers.Flatten()(inputs))
  )


_KERNEL = np.arange(8, dtype=np.float32).reshape(4, 2)
_BIAS = np.array([-1.0, 0.5], np.float32)


def _write_weights(path, *weights):
  backbone = _create_backbone(weights[1].size)
  backbone.set_weights(weights)
  backbone.save_weights(path)
  return str(path)


@pytest.fixture(name="run_dir")
def _run_dir(tmp_path):
  return tmp_path / "run"


@pytest.fixture(name="weights_file")
def _weights_file(tmp_path):
  return _write_weights(tmp_path / "public.h5", _KERNEL, _BIAS)


@pytest.fixture(name="begun")
def _begun(run_dir, weights_file):
  """A run that has begun with the weights of the file."""
  start = backbone_files.load_start(
    _create_backbone, weights_file, str(run_dir)
  )
  directory = run_directory.RunDirectory(run_dir, {"rounds": 3})
  directory.write_json(backbone_files.RECORD, start.record)
  directory.close()
  return json.loads(json.dumps(start.record))


def _load(path, run_dir):
  return backbone_files.load_start(_create_backbone, path, str(run_dir))


class TestLoadStart:
  def test_run_is_not_begun_by_loading(self, run_dir, weights_file, capsys):
    start = _load(weights_file, run_dir)
    tf.nest.map_structure(
      np.testing.assert_array_equal, start.weights, [_KERNEL, _BIAS]
    )
    assert capsys.readouterr().out.endswith(
      f"They must be {start.record['assumption']}.\n"
    )
    assert not run_dir.exists()

  @pytest.mark.usefixtures("begun")
  def test_without_a_checkpoint_the_weights_must_be_the_same(
    self, tmp_path, run_dir, weights_file
  ):
    copy = _write_weights(tmp_path / "copy.hdf5", _KERNEL, _BIAS)
    for path in (weights_file, copy):
      np.testing.assert_array_equal(_load(path, run_dir).weights[0], _KERNEL)
    # Part of a checkpoint, of a program that was killed, is none.
    (run_dir / "checkpoints" / "round_0_temp1").mkdir(parents=True)
    _write_weights(weights_file, _KERNEL, _BIAS + 1)
    with pytest.raises(
      errors.FieldError, match=r"what the run in .* has begun"
    ):
      _load(weights_file, run_dir)

  def test_with_a_checkpoint_the_file_is_not_read(
    self, run_dir, weights_file, begun
  ):
    (run_dir / "checkpoints" / "round_3").mkdir(parents=True)
    os.remove(weights_file)
    start = _load(weights_file, run_dir)
    assert start == backbone_files.Start(None, begun)
