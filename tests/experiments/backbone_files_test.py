"""Tests of the backbones that a run takes from a file, or leaves in one."""

import errno
import hashlib
import json
import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from experiments import backbone_files
from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.program import run_directory


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


@pytest.fixture(name="results")
def _results():
  embeddings = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], np.float32)
  result = verification.evaluate_pairs(embeddings, np.array([0, 0, 1, 1]))
  return {"validation": result, "test": result}


@pytest.fixture(name="begun")
def _begun(run_dir, weights_file, results):
  """A run that has begun with the weights of the file."""
  start = backbone_files.load_start(
    _create_backbone, weights_file, str(run_dir)
  )
  directory = run_directory.RunDirectory(run_dir, {"rounds": 3})
  backbone_files.record_start(start, results, directory)
  directory.close()
  return json.loads(json.dumps(start.record))


def _load(path, run_dir):
  return backbone_files.load_start(_create_backbone, path, str(run_dir))


class TestLoadStart:
  def test_random_weights(self, run_dir):
    assert _load(None, run_dir) is None
    assert not run_dir.exists()

  def test_weights_and_what_is_said_of_them(
    self, run_dir, weights_file, monkeypatch, capsys
  ):
    monkeypatch.chdir(os.path.dirname(weights_file))
    start = _load("public.h5", run_dir)
    for found, expected in zip(start.weights, [_KERNEL, _BIAS], strict=True):
      np.testing.assert_array_equal(found, expected)
    assumption = start.record.pop("assumption")
    assert assumption.startswith("made from public data: no epsilon")
    assert start.record == {
      "path": weights_file,
      "kind": "Keras HDF5 file",
      "num_loaded_parameters": 10,
      "num_initialized_parameters": 0,
      "sha256": hashlib.sha256(_KERNEL.tobytes() + _BIAS.tobytes()).hexdigest(),
    }
    (line,) = capsys.readouterr().out.splitlines()
    assert line == (
      "Loaded 10 weights of 1 layers from public.h5 (Keras HDF5 file). They"
      f" must be {assumption}."
    )
    # The run is not known to be able to start yet.
    assert not run_dir.exists()

  @pytest.mark.parametrize(
    ("name", "message"),
    [
      ("missing.h5", "must be a SavedModel's directory, a Keras file or a"),
      ("text.h5", "must be a SavedModel's directory, a Keras file or a"),
      ("wide.h5", r"must fit .* found .*wide.h5 with .*kernel of \[4, 3\]"),
      ("nan.h5", "that is not all finite numbers"),
    ],
  )
  def test_file_that_does_not_fit_is_refused(
    self, tmp_path, run_dir, name, message
  ):
    (tmp_path / "text.h5").write_text("weights")
    _write_weights(tmp_path / "wide.h5", np.zeros([4, 3]), np.zeros(3))
    _write_weights(tmp_path / "nan.h5", _KERNEL * np.nan, _BIAS)
    with pytest.raises(errors.FieldError, match=message) as error:
      _load(str(tmp_path / name), run_dir)
    assert str(error.value).startswith("pretrained_backbone must ")
    assert name in str(error.value)
    assert not run_dir.exists()

  def test_evaluation_is_kept_with_the_run(self, run_dir, begun, results):
    kept = json.loads((run_dir / "pretrained.json").read_text())
    assert kept == begun
    assert set(kept["evaluation"]) == {"validation", "test"}
    assert kept["evaluation"]["test"]["num_images"] == 4
    assert (
      kept["evaluation"]["test"]["recall_at_far"]
      == results["test"].to_json()["recall_at_far"]
    )
    # Thousands of points.
    assert "roc" not in kept["evaluation"]["test"]

  @pytest.mark.usefixtures("begun")
  def test_without_a_checkpoint_the_weights_must_be_the_same(
    self, tmp_path, run_dir, weights_file
  ):
    copy = _write_weights(tmp_path / "copy.hdf5", _KERNEL, _BIAS)
    for path in (weights_file, copy):
      np.testing.assert_array_equal(_load(path, run_dir).weights[0], _KERNEL)
    _write_weights(weights_file, _KERNEL, _BIAS + 1)
    before = (run_dir / "pretrained.json").read_bytes()
    with pytest.raises(errors.FieldError) as error:
      _load(weights_file, run_dir)
    assert str(error.value) == (
      f"pretrained_backbone must be what the run in {run_dir} has begun"
      f" with, found other weights in {weights_file}."
    )
    assert (run_dir / "pretrained.json").read_bytes() == before

  @pytest.mark.parametrize("file", ["kept", "changed", "gone"])
  def test_with_a_checkpoint_the_file_is_not_read(
    self, run_dir, weights_file, begun, file
  ):
    (run_dir / backbone_files.CHECKPOINTS / "round_3").mkdir(parents=True)
    if file == "changed":
      _write_weights(weights_file, _KERNEL, _BIAS + 1)
    if file == "gone":
      os.remove(weights_file)

    def create_backbone():
      raise AssertionError("it is not needed")

    start = backbone_files.load_start(
      create_backbone, weights_file, str(run_dir)
    )
    assert start == backbone_files.Start(None, begun)

  @pytest.mark.usefixtures("begun")
  def test_part_of_a_checkpoint_is_none(self, run_dir, weights_file):
    # What a program leaves that is killed while it saves the first one.
    (run_dir / backbone_files.CHECKPOINTS / "round_0_temp1").mkdir(parents=True)
    assert _load(weights_file, run_dir).weights is not None


class TestCheckExport:
  def test_a_new_path_beside_the_run(self, tmp_path, run_dir, monkeypatch):
    monkeypatch.chdir(tmp_path)
    backbone_files.check_export(None, str(run_dir))
    for path in ("backbone", "./backbone/", str(tmp_path / "run_backbone")):
      backbone_files.check_export(path, "run")
    assert not list(tmp_path.iterdir())

  @pytest.mark.parametrize(
    "path",
    ["", "run", "run/", "run/saved_model", "run/a/b", ".", "/", "a/../run"],
  )
  def test_paths_at_the_run_are_refused(self, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for run_dir in ("run", str(tmp_path / "run")):
      with pytest.raises(errors.FieldError) as error:
        backbone_files.check_export(path, run_dir)
      assert str(error.value) == (
        "export_backbone must be outside of --run_dir and not around it,"
        f" found {path!r}."
      )

  def test_a_link_to_the_run_is_refused(self, tmp_path, run_dir):
    run_dir.mkdir()
    (tmp_path / "link").symlink_to(run_dir)
    for path in (tmp_path / "link", tmp_path / "link" / "backbone"):
      with pytest.raises(errors.FieldError, match="must be outside of"):
        backbone_files.check_export(str(path), str(run_dir))

  @pytest.mark.parametrize("kind", ["file", "directory"])
  def test_what_is_there_is_not_replaced(self, tmp_path, run_dir, kind):
    path = tmp_path / "backbone"
    if kind == "file":
      path.write_text("mine")
    else:
      path.mkdir()
    with pytest.raises(
      errors.FieldError,
      match="export_backbone must be a path where there is nothing yet",
    ):
      backbone_files.check_export(str(path), str(run_dir))
    # A complete run has put it there, or leaves it.
    run_dir.mkdir()
    (run_dir / run_directory.SUMMARY).write_text("{}")
    backbone_files.check_export(str(path), str(run_dir))

  def test_a_missing_directory_is_refused(self, tmp_path, run_dir):
    path = tmp_path / "missing" / "backbone"
    with pytest.raises(
      errors.FieldError,
      match="export_backbone must be in a directory that can be written to",
    ):
      backbone_files.check_export(str(path), str(run_dir))
    assert not path.parent.exists()

  def test_a_directory_that_may_not_be_written_is_refused(
    self, tmp_path, run_dir, monkeypatch
  ):
    def refuse(dir):
      raise PermissionError(errno.EACCES, "Permission denied", str(dir))

    # Who runs the tests as root may write anywhere.
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    with pytest.raises(errors.FieldError, match="that can be written to"):
      backbone_files.check_export(str(tmp_path / "backbone"), str(run_dir))

  def test_a_file_is_no_directory(self, tmp_path, run_dir):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(errors.FieldError, match="that can be written to"):
      backbone_files.check_export(
        str(tmp_path / "file" / "backbone"), str(run_dir)
      )


class TestExport:
  @pytest.fixture(name="directory")
  def _directory(self, run_dir):
    directory = run_directory.RunDirectory(run_dir, {})
    saved_model = run_dir / backbone_files.SAVED_MODEL
    (saved_model / "variables").mkdir(parents=True)
    (saved_model / "saved_model.pb").write_text("model")
    (saved_model / "variables" / "variables.index").write_text("index")
    yield directory
    directory.close()

  def _read(self, path):
    return {
      str(entry.relative_to(path)): entry.read_text()
      for entry in path.rglob("*")
      if entry.is_file()
    }

  def test_copies_the_model(self, directory, tmp_path, capsys):
    backbone_files.export(directory, None)
    assert os.listdir(tmp_path) == ["run"]
    path = tmp_path / "backbone"
    # What is left of an earlier attempt.
    (tmp_path / ".backbone.partial").mkdir()
    (tmp_path / ".backbone.partial" / "half").write_text("half")
    backbone_files.export(directory, str(path))
    assert sorted(os.listdir(tmp_path)) == ["backbone", "run"]
    assert self._read(path) == {
      "saved_model.pb": "model",
      "variables/variables.index": "index",
    }
    assert self._read(directory.path / "saved_model") == self._read(path)
    assert capsys.readouterr().out == f"Exported the backbone to {path}.\n"

  def test_a_relative_path(self, directory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    backbone_files.export(directory, "backbone/")
    assert (tmp_path / "backbone" / "saved_model.pb").exists()

  def test_what_is_there_stays(self, directory, tmp_path, capsys):
    (tmp_path / "backbone").write_text("mine")
    backbone_files.export(directory, str(tmp_path / "backbone"))
    assert (tmp_path / "backbone").read_text() == "mine"
    assert "left as it is" in capsys.readouterr().out

  def test_a_copy_that_fails_leaves_nothing_under_the_name(
    self, directory, tmp_path
  ):
    (directory.path / "saved_model" / "gone").symlink_to("nowhere")
    with pytest.raises(OSError, match="gone"):
      backbone_files.export(directory, str(tmp_path / "backbone"))
    assert not (tmp_path / "backbone").exists()
