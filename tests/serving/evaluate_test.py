"""Tests of the evaluation of exported models, in this process and as run."""

import functools
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from tasks import registry
from tests.binaries import programs
from tests.features import extractions
from tests.serving import image_classes
from tff_fedemb import errors
from tff_fedemb import runtime as runtimes
from tff_fedemb.evaluation import verification
from tff_fedemb.models import backbones
from tff_fedemb.records import export
from tff_fedemb.serving import evaluate as evaluation_run
from tff_fedemb.serving import image_sources

_NUM_CLASSES = 12
_IMAGES_OF_CLASS = 4
_NUM_IMAGES = _NUM_CLASSES * _IMAGES_OF_CLASS


@pytest.fixture(scope="module")
def lenet():
  tf.keras.utils.set_random_seed(0)
  return backbones.create_backbone("lenet", (28, 28, 1), embedding_dim=8)


@pytest.fixture(scope="module")
def models(tmp_path_factory, lenet):
  """SavedModels by name; embeddings of the identity are pixels."""
  directory = tmp_path_factory.mktemp("models")
  export.export_backbone(lenet, directory / "lenet")
  return {
    "lenet": directory / "lenet",
    "identity": extractions.export(directory / "identity", (6, 5, 1), 1.0),
  }


@pytest.fixture(scope="module")
def pixels():
  return image_classes.draw(_NUM_CLASSES, _IMAGES_OF_CLASS, (6, 5), noise=50)


@pytest.fixture
def folder(tmp_path, pixels):
  suffixes = ("png", "bmp", "pgm")
  return image_classes.write(tmp_path / "images", pixels, suffixes)


@pytest.fixture
def evaluate(models, folder, tmp_path):
  """Evaluates the identity on the folder unless the options say otherwise."""

  def run(runtime_name="in_process", **options):
    options = {
      "saved_model": models["identity"],
      "output_json": tmp_path / "result.json",
      **({} if "task" in options else {"image_folder": folder}),
      **options,
    }
    evaluation_run.execute(
      evaluation_run.EvaluationConfig(**options),
      runtimes.RuntimeConfig(runtime=runtime_name),
    )
    return json.loads((tmp_path / "result.json").read_text())

  return run


@pytest.mark.slow
def test_a_cluster_gives_the_same_numbers(evaluate, models):
  pytest.importorskip("ray")
  alone = evaluate(saved_model=models["lenet"])
  in_cluster = evaluate("ray", saved_model=models["lenet"], overwrite=True)
  assert in_cluster == alone


class TestFolder:
  def test_result_is_that_of_the_pixels(
    self, evaluate, models, folder, pixels, capsys
  ):
    report = evaluate(metrics=True)
    labels = np.repeat(np.arange(_NUM_CLASSES), _IMAGES_OF_CLASS)
    expected = verification.evaluate_pairs(
      pixels.reshape(_NUM_IMAGES, -1), labels, with_metrics=True
    )
    found = verification.VerificationResult.from_json(
      {name: report[name] for name in vars(expected)}
    )
    assert found == expected
    assert 0 < report["recall_at_far"]["0.1"] < 1
    assert report["saved_model"] == os.fspath(models["identity"])
    assert report["source"] == {
      "image_folder": os.fspath(folder),
      "num_images_found": _NUM_IMAGES,
      "num_skipped": 0,
      "skipped": [],
      "num_ignored": 0,
      "max_images": 0,
    }
    table = capsys.readouterr().out
    assert f"{_NUM_IMAGES} images of {_NUM_CLASSES} classes" in table
    assert f"  0.1 {report['recall_at_far']['0.1']:.4f} [" in table
    # Far from the 10,000 negative pairs that FAR 0.001 asks for.
    assert "warning: FAR 0.001 needs" in table

  def test_max_images_draws_some(self, evaluate):
    with pytest.raises(errors.DataError, match=r"give no .* 2 classes"):
      evaluate(max_images=1)
    report = evaluate(max_images=30)
    assert report["num_images"] == 30
    assert report["source"]["num_images_found"] == _NUM_IMAGES
    assert report["source"]["max_images"] == 30

  def test_bad_example_fails_or_is_skipped(
    self, evaluate, folder, tmp_path, capsys
  ):
    bad = folder / "class03" / "bad.png"
    bad.write_text("no picture")
    (folder / "class03" / "notes.txt").write_text("ignored")
    with pytest.raises(ValueError) as error:
      evaluate()
    assert str(error.value).startswith(f"{bad} must be a PNG")
    assert " on_bad_example=skip" in str(error.value)
    assert not (tmp_path / "result.json").exists()
    report = evaluate(on_bad_example="skip")
    assert report["num_images"] == _NUM_IMAGES
    assert report["source"]["num_images_found"] == _NUM_IMAGES + 1
    assert report["source"]["num_skipped"] == 1
    assert report["source"]["skipped"] == [os.fspath(bad)]
    assert report["source"]["num_ignored"] == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"warning: skipped 1 unreadable file: {bad}" in told
    assert "warning: ignored 1 non-image file: " in told
    assert len([w for w in report["warnings"] if " file: " in w]) == 2

  def test_a_bad_image_counts_once_however_often_it_is_read(self, folder):
    bad = folder / "class03" / "bad.png"
    bad.write_text("no picture")
    source = image_sources.open_folder(
      os.fspath(folder), (6, 5, 1), on_bad_example="skip"
    )
    rows = np.arange(len(source.labels))
    for _ in range(2):
      read = np.concatenate([some for some, _ in source.read(rows)])
      assert len(read) == _NUM_IMAGES
    assert source.skipped == [os.fspath(bad)]


class TestGroups:
  """Figures by group, of a table with a column for it."""

  @pytest.fixture
  def table(self, tmp_path):
    """Training users of one group and three; held-out classes of two."""
    images = image_classes.draw(60, 2, (6, 6), noise=30)
    image_classes.write(tmp_path, images)
    rows = ["image,user,label,split,Age"]
    splits = ["test"] * 44 + ["train"] * 12 + ["validation"] * 4
    ages = ["old"] * 22 + ["middle"] * 22 + ["young"] + ["old"] * 15
    for number, (split, group) in enumerate(zip(splits, ages, strict=True)):
      for name in ("0.png", "1.png"):
        path = f"class{number:02}/{name}"
        rows.append(f"{path},user{number},class{number},{split},{group}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    return tmp_path / "table.csv"

  def test_a_group_is_told_apart_by_itself(
    self, evaluate, table, tmp_path, capsys
  ):
    task = registry.Photos(
      table=os.fspath(table), cache_dir=os.fspath(tmp_path / "cache")
    )
    square = extractions.export(tmp_path / "square", (6, 6, 1), 1.0)
    evaluate = functools.partial(evaluate, task=task, saved_model=square)
    report = evaluate(group_column="age")
    names = ("name", "num_classes", "share_of_training_users")
    found = [[x[name] for name in names] for x in report["groups"]["groups"]]
    # All but number 44 of the twelve who train.
    share = pytest.approx(11 / 12)
    assert found == [["middle", 22, 0.0], ["old", 22, share]]
    assert report["galleries"]["by_images"][0]["num_classes"] == 44
    output = capsys.readouterr().out
    assert "Groups, at the thresholds of all: FAR 0.001" in output
    assert "note: Shares of training users are counted without noise" in output
    with pytest.raises(errors.FieldError, match="table must have one column h"):
      evaluate(group_column="height", overwrite=True)
    one = "class03/1.png,user3,class3,test,"
    table.write_text(table.read_text().replace(f"{one}old", f"{one}young"))
    with pytest.raises(
      errors.DataError, match="found old and young for class3"
    ):
      evaluate(group_column="age", overwrite=True)


def test_command_line(models, emnist_dir, tmp_path):
  def call(model, *options):
    return programs.call(
      "evaluate",
      f"--saved_model={models[model]}",
      f"--output_json={tmp_path / 'out.json'}",
      *options,
    )

  task = ("--task=emnist", f"--data_dir={emnist_dir}")
  # A mistake: one line, and nothing is written.
  for options, message in (
    (["--image_folder=no"], "--image_folder must be a folder"),
    (["--image_folder=no", "--data_dir=d"], "--data_dir must be set with task"),
    (["--image_folder=no", *task], "--image_folder must be given, or task"),
    ([*task, "--group_column=a"], "--group_column must be given with a table"),
    (task, "--saved_model must take images of [28, 28, 1], the size of"),
  ):
    programs.check_refused(call("identity", *options), message)
    assert not any(tmp_path.iterdir())
  right = call("lenet", *task)
  assert (right.status, right.errors) == (0, "")
  assert "FAR recall" in right.output
  report = json.loads((tmp_path / "out.json").read_text())
  assert list(report["recall_at_far"]) == ["0.001", "0.01", "0.1"]
