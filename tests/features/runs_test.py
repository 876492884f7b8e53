"""Tests of one private fit on files of features."""

import json
import math

import numpy as np
import pytest

from tests.features import feature_examples
from tff_fedemb import errors
from tff_fedemb.features import registry
from tff_fedemb.features import runs as feature_runs
from tff_fedemb.features import settings as feature_settings
from tff_fedemb.features.federated import settings as federated_settings

_USERS = federated_settings.UserSettings()


@pytest.fixture(name="files")
def _files(tmp_path):
  feature_examples.write_pair(tmp_path)
  return tmp_path


def config(directory, **changes):
  values = {
    "train": f"{directory}/train.npz",
    "test": f"{directory}/test.npz",
    "output_json": f"{directory}/result.json",
    "method": "least_squares",
    "epsilon": 2.0,
    "delta": 1e-3,
  }
  return feature_runs.ClassificationConfig(**(values | changes))


def execute(directory, **changes):
  """Returns the report that one fit writes."""
  feature_runs.execute(config(directory, overwrite=True, **changes))
  # Infinity is "inf", as JSON has none.
  return json.loads(
    (directory / "result.json").read_text(), parse_constant=pytest.fail
  )


@pytest.mark.parametrize("method", registry.METHODS)
def test_report_of_every_method(files, method):
  result = execute(files, method=method)
  assert result["method"] == method
  assert result["target_epsilon"] == 2
  assert 1.99 < result["epsilon"] <= 2
  assert (result["train_size"], result["test_size"]) == (60, 60)
  assert (result["dim"], result["num_classes"]) == (4, 3)
  assert (result["seed"], result["unit"]) == (None, "example")
  assert result["neighboring_relation"] == "add or remove one example"
  assert result["versions"]["dp-accounting"]
  names = registry.METHODS[method].hyperparameter_names()
  assert list(result["hyperparameters"]) == names
  assert feature_runs.CLASSES_FROM_LABELS in result["assumptions"]
  # The label 'public' of a number that was not told would be wrong.
  about_classes = [t for t in result["assumptions"] if "of classes" in t]
  assert len(about_classes) == 1
  assert any("test examples" in text for text in result["not_covered"])
  assert result["warnings"] == []


def test_number_of_classes(files):
  result = execute(files, num_classes=5)
  assert result["num_classes"] == 5
  assert feature_runs.CLASSES_FROM_LABELS not in result["assumptions"]
  assert any("number of classes is public" in t for t in result["assumptions"])
  # Those of either file count.
  feature_examples.write(files / "test.npz", seed=1, dim=4, num_classes=4)
  assert execute(files)["num_classes"] == 4


def test_without_noise(files, capsys):
  # Sampled as well, which with noise takes PLD seconds.
  result = execute(
    files,
    method="sgd",
    hyperparameters=("steps=30", "batch_size=6"),
    epsilon=math.inf,
    delta=None,
  )
  assert result["epsilon"] == result["target_epsilon"] == "inf"
  assert result["delta"] is None
  (release,) = result["releases"]
  assert release["noise_multiplier"] == 0.0
  assert release["sampling_probability"] == pytest.approx(0.1)
  assert result["test_accuracy"] > 0.8
  output = capsys.readouterr().out
  assert "epsilon = inf: no noise, no privacy" in output
  assert "gradient 30 times, noise multiplier 0, sampling probability 0.1" in (
    output
  )


def test_same_seed_same_result(files):
  results = []
  for name, seed in (("a", 1), ("a", 1), ("b", 2)):
    protection = feature_settings.ExampleSettings(seed=seed)
    weights = f"{files}/{name}.npz"
    result = execute(files, protection=protection, output_weights=weights)
    assert (result["seed"], result["epsilon"]) == (seed, "inf")
    if seed == 1:
      results.append(result)
  assert results[0] == results[1]
  with np.load(files / "a.npz") as a, np.load(files / "b.npz") as b:
    assert not np.allclose(a["coef"], b["coef"])


def test_users(files, capsys):
  feature_examples.write(files / "train.npz", seed=0, num_users=20)
  users = federated_settings.UserSettings(
    example_weighting="mean", user_clip_norm=0.5
  )
  result = execute(files, delta=0.05, protection=users)
  assert result["unit"] == "user"
  assert result["neighboring_relation"] == "add or remove one user"
  # How many examples the users have is theirs.
  assert (result["num_users"], "train_size" in result) == (20, False)
  assert [(r["name"], r["count"]) for r in result["releases"]] == [
    ("statistics", 1)
  ]
  assert (result["rounds"], result["runtime"]) == (1, "in_process")
  assert result["seed"] is None
  assert result["hyperparameters"]["example_weighting"] == "mean"
  assert result["hyperparameters"]["user_clip_norm"] == 0.5
  assert feature_runs.CLASSES_FROM_LABELS in result["assumptions"]
  for text in ("the number of users is public", "an example is of one user"):
    assert any(line.startswith(text) for line in result["assumptions"])
  for text in ("single precision", "also those of users"):
    assert any(text in line for line in result["not_covered"])
  assert result["versions"]["tensorflow-federated"]
  out = capsys.readouterr().out
  assert "least_squares fitted to 20 users\n" in out
  assert ", add or remove one user\n" in out
  assert "delta 0.05 is not below 1 / 20, one over the number of users:" in out


def test_users_must_have_names(files):
  arrays = {"features": np.ones([4, 4]), "labels": np.arange(4)}
  np.savez(files / "train.npz", **arrays, users=["a", "b", "", "d"])
  with pytest.raises(errors.DataError, match="users must have names"):
    execute(files, protection=_USERS)


@pytest.mark.parametrize(
  "changes,message",
  [
    ({"train": "none.npz"}, "--train must be a file of features: none.npz"),
    ({"test": "test.txt"}, "test must end with .npz or .tfrecord, found "),
    ({"num_classes": 2}, "num_classes must be above all labels, found 2"),
    ({"output_json": "no/such/dir.json"}, "output_json must be in a dir"),
    ({"predictions": "train.npz"}, "predictions must be another file than"),
    ({"output_weights": "test.npz"}, "output_weights must be another file"),
    ({"split": ("hessian=1",)}, "split must name releases of the method"),
    (
      {"method": "sgd", "hyperparameters": ("batch_size=61",)},
      "hyperparameters must fit method sgd: batch_size must be at most the"
      " number of examples, 60, found 61.0.",
    ),
    (
      {"hyperparameters": ("speed=1",)},
      "hyperparameters must fit method least_squares: hyperparameters must be",
    ),
    ({"protection": _USERS}, "train must hold user, whose each example is, wi"),
    (
      {"protection": _USERS, "hyperparameters": ("covariance=per_class",)},
      "fit method least_squares: covariance must be 'shared': a user would",
    ),
    ({"protection": _USERS, "method": "newton"}, "method must be one of sgd"),
  ],
)
def test_mistakes(files, monkeypatch, changes, message):
  monkeypatch.chdir(files)
  before = sorted(files.iterdir())
  with pytest.raises(ValueError) as error:
    feature_runs.execute(config(files, **changes))
  assert message in str(error.value)
  assert sorted(files.iterdir()) == before


@pytest.mark.parametrize("name", ["train", "test"])
@pytest.mark.parametrize(
  "arrays,message",
  [
    ({"features": np.full([4, 4], np.nan)}, "must be finite numbers"),
    ({"labels": np.array([0, 1, 2, -1])}, "labels must be at least 0"),
    ({"labels": np.array([0, 1, 2, 10**9])}, "num_classes must be given"),
  ],
)
def test_mistakes_in_files(files, name, arrays, message):
  arrays = {"features": np.ones([4, 4]), "labels": np.arange(4)} | arrays
  np.savez(files / f"{name}.npz", **arrays)
  with pytest.raises(ValueError) as error:
    feature_runs.execute(config(files))
  assert message in str(error.value)
  if "num_classes" not in message:
    assert str(error.value).startswith(f"--{name} must be a file of features")
  assert not (files / "result.json").exists()


def test_files_that_do_not_match(files):
  feature_examples.write(files / "test.npz", seed=1, dim=5)
  with pytest.raises(ValueError, match="must have 4 features an"):
    feature_runs.execute(config(files))
  path = f"{files}/a.npz"
  np.savez(path, features=np.ones([3, 2]), labels=np.zeros(3, int))
  with pytest.raises(ValueError, match="of two or more classes"):
    feature_runs.read_problem(config(files), path, path)
