"""Tests of the program that classifies features, and of one fit on files."""

import dataclasses
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from experiments import feature_problems
from experiments import feature_runs
from experiments import feature_settings
from tff_fedemb.features import registry

_ROOT = pathlib.Path(__file__).parents[2]
# Runs a program as `python -m` does, and says what it imported.
_PROGRAM = """
import runpy, sys
try:
  runpy.run_module("binaries.classify_features", run_name="__main__")
finally:
  print("tensorflow" in sys.modules, "dp_accounting" in sys.modules)
"""


# Says what the flags make of a fit, in its place.
_SETTINGS_PROGRAM = """
import runpy
from experiments import feature_runs
feature_runs.execute = lambda config: print(config.settings.users)
runpy.run_module("binaries.classify_features", run_name="__main__")
"""


def write_features(
  path, *, seed, num_examples=60, dim=4, num_classes=3, num_users=0
):
  """Writes clusters of features, longer than 1, and returns what is in them."""
  rng = np.random.default_rng(seed)
  labels = np.arange(num_examples) % num_classes
  features = 3 * np.eye(num_classes, dim)[labels]
  features += rng.normal(size=features.shape)
  arrays = {"features": features.astype(np.float32), "labels": labels}
  if num_users:
    arrays["users"] = np.arange(num_examples) % num_users
  np.savez(path, **arrays)
  return features, labels


@pytest.fixture(name="files")
def _files(tmp_path):
  for seed, name in enumerate(("train", "test")):
    write_features(tmp_path / f"{name}.npz", seed=seed)
  return tmp_path


def settings(method="least_squares", epsilon=2.0, delta=1e-3, **kwargs):
  return feature_settings.FitSettings(
    registry.create_method(method), epsilon, delta, seed=1, **kwargs
  )


def config(directory, **changes):
  values = {
    "train": f"{directory}/train.npz",
    "test": f"{directory}/test.npz",
    "output_json": f"{directory}/result.json",
    "settings": settings(),
  }
  return feature_runs.ClassificationConfig(**(values | changes))


def execute(directory, **changes):
  """Returns the report that one fit writes."""
  feature_runs.execute(config(directory, overwrite=True, **changes))
  # Infinity is "inf", as JSON has none.
  return json.loads(
    (directory / "result.json").read_text(), parse_constant=pytest.fail
  )


def run(directory, *arguments, program=_PROGRAM):
  """Runs the program itself."""
  return subprocess.run(
    [
      *(sys.executable, "-c", program),
      f"--train={directory}/train.npz",
      f"--test={directory}/test.npz",
      f"--output_json={directory}/result.json",
      *arguments,
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


def test_program(files):
  process = run(
    files,
    "--method=feature_covariance",
    "--epsilon=3",
    "--delta=0.001",
    "--seed=7",
    "--split=covariance=1,gradient=3",
    "--hyperparameters=steps=5,loss=sigmoid,learning_rate=0.5",
    f"--predictions={files}/predictions.npz",
    f"--output_weights={files}/weights.npz",
  )
  assert process.returncode == 0, process.stderr
  assert not process.stderr
  result = json.loads((files / "result.json").read_text())
  accuracy, epsilon, releases, written, modules = process.stdout.splitlines()
  assert modules == "False True"
  assert accuracy == (
    f"test accuracy {result['test_accuracy']:.4f} (60 examples, 3 classes),"
    " feature_covariance fitted to 60 examples"
  )
  assert epsilon.startswith(f"epsilon = {result['epsilon']:.4f} at delta =")
  assert releases.startswith("releases: covariance once, noise multiplier ")
  assert "; gradient 5 times, noise multiplier " in releases
  assert written.count(str(files)) == 3
  assert sorted(path.name for path in files.iterdir()) == [
    "predictions.npz",
    "result.json",
    "test.npz",
    "train.npz",
    "weights.npz",
  ]
  assert result["hyperparameters"]["steps"] == 5
  assert result["hyperparameters"]["loss"] == "sigmoid"
  # The weights, the predictions and the accuracy belong together.
  with np.load(files / "test.npz") as arrays:
    features, labels = arrays["features"], arrays["labels"]
  norms = np.linalg.norm(features, axis=1, keepdims=True)
  with np.load(files / "weights.npz") as arrays:
    logits = features / np.maximum(norms, 1) @ arrays["coef"].T
  with np.load(files / "predictions.npz") as arrays:
    np.testing.assert_allclose(arrays["logits"], logits, rtol=1e-4, atol=1e-5)
    predictions = arrays["predictions"]
  np.testing.assert_array_equal(predictions, logits.argmax(axis=1))
  assert result["test_accuracy"] == np.mean(predictions == labels)


def test_program_refuses_in_one_line(files):
  process = run(files, "--method=sgd", "--epsilon=0", "--delta=0.001")
  assert process.returncode == 1
  assert process.stderr.startswith("error: --epsilon must be in (0,")
  assert process.stderr.count("\n") == 1
  assert not (files / "result.json").exists()


@pytest.mark.parametrize("method", registry.METHODS)
def test_report_of_every_method(files, method):
  result = execute(files, settings=settings(method))
  assert result["method"] == method
  assert result["target_epsilon"] == 2
  assert 1.99 < result["epsilon"] <= 2
  assert (result["train_size"], result["test_size"]) == (60, 60)
  assert (result["dim"], result["num_classes"]) == (4, 3)
  assert (result["seed"], result["unit"]) == (1, "example")
  assert result["neighboring_relation"] == "add or remove one example"
  assert result["versions"]["dp-accounting"]
  names = registry.METHODS[method].hyperparameter_names()
  assert list(result["hyperparameters"]) == names
  assert feature_runs.CLASSES_FROM_LABELS in result["assumptions"]
  # The label 'public' of a number that was not told would be wrong.
  about_classes = [t for t in result["assumptions"] if "of classes" in t]
  assert len(about_classes) == 1
  assert any("test examples" in text for text in result["not_covered"])
  # Balle and Wang 2018, theorem 8, of all releases as one.
  total = math.sqrt(
    sum(r["count"] / r["noise_multiplier"] ** 2 for r in result["releases"])
  )
  for release in result["releases"]:
    assert f"={release['noise_multiplier']}" in release["event"]
  shift = result["epsilon"] / total
  delta = stats.norm.cdf(total / 2 - shift)
  delta -= math.exp(result["epsilon"]) * stats.norm.cdf(-total / 2 - shift)
  assert delta == pytest.approx(1e-3, rel=1e-4)


def test_known_number_of_classes(files):
  result = execute(files, num_classes=5)
  assert result["num_classes"] == 5
  assert feature_runs.CLASSES_FROM_LABELS not in result["assumptions"]
  assert any("number of classes is public" in t for t in result["assumptions"])


def test_classes_of_either_file(files):
  write_features(files / "test.npz", seed=1, dim=4, num_classes=4)
  assert execute(files)["num_classes"] == 4


def test_without_noise(files, capsys):
  result = execute(files, settings=settings(epsilon=math.inf, delta=None))
  assert result["epsilon"] == result["target_epsilon"] == "inf"
  assert result["delta"] is None
  assert {r["noise_multiplier"] for r in result["releases"]} == {0.0}
  assert result["test_accuracy"] > 0.8
  assert "epsilon = inf: no noise, no privacy" in capsys.readouterr().out


def test_sampled_examples(files, capsys):
  method = registry.create_method("sgd", steps=2, batch_size=6)
  # Without noise, as PLD would take seconds to find out how much there must be.
  noiseless = dataclasses.replace(settings(epsilon=math.inf), method=method)
  result = execute(files, settings=noiseless)
  assert result["releases"][0]["sampling_probability"] == pytest.approx(0.1)
  assert "gradient 2 times, noise multiplier 0, sampling probability 0.1" in (
    capsys.readouterr().out
  )


def test_same_seed_same_result(files):
  assert execute(files) == execute(files)
  other = dataclasses.replace(settings(), seed=2)
  for name, fit_settings in (("a", settings()), ("b", other)):
    execute(files, settings=fit_settings, output_weights=f"{files}/{name}.npz")
  with np.load(files / "a.npz") as a, np.load(files / "b.npz") as b:
    assert not np.allclose(a["coef"], b["coef"])


def test_users(files, capsys):
  write_features(files / "train.npz", seed=0, num_users=20)
  users = feature_settings.UserSettings(
    example_weighting="mean", user_clip_norm=0.5
  )
  fit_settings = dataclasses.replace(
    settings(delta=0.05), seed=None, users=users
  )
  result = execute(files, settings=fit_settings)
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
  for start in (
    "the number of users is public",
    "every user takes part in every release",
    "an example is of one user",
    "the number of classes was taken from the labels",
  ):
    assert any(text.startswith(start) for text in result["assumptions"])
  for text in ("given no seed", "also those of users"):
    assert any(text in line for line in result["not_covered"])
  assert result["versions"]["tensorflow-federated"]
  out = capsys.readouterr().out
  assert "least_squares fitted to 20 users\n" in out
  assert ", add or remove one user\n" in out
  assert "delta 0.05 is not below 1 / 20, one over the number of users:" in out


def test_users_by_flags(files):
  write_features(files / "train.npz", seed=0, num_users=20)
  flags = ("--unit=user", "--epsilon=inf", "--method=sgd")
  more = ("--runtime=tff", "--example_weighting=mean", "--user_clip_norm=0.3")
  process = run(files, *flags, *more, program=_SETTINGS_PROGRAM)
  assert process.stdout == (
    "UserSettings(example_weighting='mean', user_clip_norm=0.3,"
    " runtime='tff')\n"
  )


def test_users_have_to_be_known(files):
  """Which is found out without TensorFlow."""
  process = run(files, "--unit=user", "--epsilon=inf", "--method=sgd")
  assert process.returncode == 1
  assert process.stderr == (
    "error: --train must hold user, whose each example is, with --unit=user,"
    f" found none in {files}/train.npz.\n"
  )
  assert process.stdout.startswith("False ")
  assert not (files / "result.json").exists()


@pytest.mark.parametrize("name", ["train", "test"])
def test_mistakes_in_files_of_users(files, name):
  users = feature_settings.UserSettings()
  fit_settings = dataclasses.replace(settings(), seed=None, users=users)
  write_features(files / "train.npz", seed=0, num_users=20)
  arrays = {"features": np.ones([4, 4]), "labels": np.arange(4)}
  np.savez(files / f"{name}.npz", **arrays, users=["a", "b", "", "d"])
  if name == "train":
    with pytest.raises(ValueError, match="users must have names"):
      execute(files, settings=fit_settings)
  else:
    # Whose test examples are makes no difference.
    problem = feature_problems.read_problem(
      f"{files}/train.npz", f"{files}/test.npz", has_users=True
    )
    assert problem.size["test_size"] == 4


@pytest.mark.parametrize("delta,is_large", [(1 / 60, True), (1 / 61, False)])
def test_warns_of_a_delta_that_is_too_large(files, capsys, delta, is_large):
  result = execute(files, settings=settings(delta=delta))
  assert len(result["warnings"]) == is_large
  assert ("warning: delta" in capsys.readouterr().out) == is_large


@pytest.mark.parametrize(
  "changes,message",
  [
    ({"train": "none.npz"}, "--train must be a file of features: none.npz"),
    ({"test": "test.txt"}, "--test must be a file of features"),
    ({"num_classes": 1}, "num_classes must be an integer of at least 2"),
    ({"num_classes": 2}, "--num_classes must be above all labels, found 2"),
    ({"output_json": "no/such/dir.json"}, "output_json must be in a dir"),
    (
      {"settings": settings(clip_norm=0.0)},
      "clip_norm must be in [1e-10, 1e+10], found 0.0",
    ),
    ({"settings": settings(scaling="cut")}, "scaling must be one of"),
    (
      {"settings": settings(split={"hessian": 1.0})},
      "split must name releases of the method",
    ),
    (
      {
        "settings": feature_settings.FitSettings(
          registry.create_method("sgd", batch_size=61), 1.0, 1e-3
        )
      },
      "--hyperparameters must fit method sgd: batch_size must be at most",
    ),
  ],
)
def test_mistakes(files, changes, message):
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
    ({"labels": np.zeros(3, int)}, "labels must be integers [4]"),
    ({"labels": np.array([0, 1, 2, 10**9])}, "--num_classes must be given"),
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
  write_features(files / "test.npz", seed=1, dim=5)
  with pytest.raises(ValueError, match="must have 4 features an"):
    feature_runs.execute(config(files))
  np.savez(files / "a.npz", features=np.ones([3, 2]), labels=np.zeros(3, int))
  with pytest.raises(ValueError, match="of two or more classes"):
    feature_problems.read_problem(f"{files}/a.npz", f"{files}/a.npz")


def test_files_are_not_replaced_unasked(files):
  execute(files)
  before = (files / "result.json").read_text()
  for changes, message in (
    ({}, "output_json must be a new file unless --overwrite"),
    (
      {"overwrite": True, "predictions": f"{files}/train.npz"},
      "predictions must be another file than --train",
    ),
    (
      {"overwrite": True, "output_weights": f"{files}/result.json"},
      "output_weights must be another file than --output_json",
    ),
  ):
    with pytest.raises(ValueError, match=message):
      feature_runs.execute(config(files, **changes))
  assert (files / "result.json").read_text() == before


def test_all_files_are_written_or_none(files, monkeypatch):
  def fail(*args, **kwargs):
    raise OSError(28, "No space left on device")

  before = sorted(files.iterdir())
  monkeypatch.setattr(np, "savez", fail)
  with pytest.raises(ValueError, match="No space left") as error:
    execute(files, output_weights=f"{files}/weights.npz")
  assert "output_weights must be a file" in str(error.value)
  assert sorted(files.iterdir()) == before


@pytest.mark.parametrize(
  "pairs,found",
  [
    ({"steps": "7", "momentum": "0"}, {"steps": 7, "momentum": 0.0}),
    ({"batch_size": "None"}, {"batch_size": None}),
    ({"batch_size": "12"}, {"batch_size": 12.0}),
    ({"loss": "sigmoid"}, {"loss": "sigmoid"}),
    ({"learning_rate": "1e-2"}, {"learning_rate": 0.01}),
  ],
)
def test_hyperparameters(pairs, found):
  method = feature_settings.create_method("sgd", pairs)
  assert {name: getattr(method, name) for name in found} == found


@pytest.mark.parametrize(
  "pairs,message",
  [
    ({"steps": "2.5"}, "steps must be an integer, found '2.5'"),
    ({"steps": "None"}, "steps must be an integer, found 'None'"),
    ({"steps": "0"}, "steps must be an integer of at least 1, found 0"),
    ({"momentum": "a"}, "momentum must be a number, found 'a'"),
    ({"batch_size": "a"}, "batch_size must be a number or None, found 'a'"),
    ({"batch_size": "nan"}, "batch_size must be at least 1, found nan"),
    ({"loss": "hinge"}, "loss must be one of"),
    ({"loss": "None"}, "loss must be one of"),
    ({"speed": "1"}, "hyperparameters of sgd must be among .*'speed'"),
    ({"name": "newton"}, "hyperparameters of sgd must be among .*'name'"),
  ],
)
def test_mistakes_in_hyperparameters(pairs, message):
  with pytest.raises(feature_settings.HyperparameterError, match=message):
    feature_settings.create_method("sgd", pairs)


def test_unknown_method():
  with pytest.raises(ValueError, match=r"method must be one of .*'magic'"):
    feature_settings.create_method("magic", {"steps": "1"})


def test_parse_split():
  assert feature_settings.parse_split(["a=0.3", " b = 7 "]) == {
    "a": 0.3,
    "b": 7.0,
  }
  for texts in (["a"], ["a="], ["=1"], ["a=1", "a=2"]):
    with pytest.raises(ValueError, match="split must have items NAME=VALUE"):
      feature_settings.parse_split(texts)
  for text in ("a=x", "a=0", "a=nan", "a=inf"):
    with pytest.raises(ValueError, match=f"positive shares, found {text}"):
      feature_settings.parse_split([text])


@pytest.mark.parametrize(
  "changes,message",
  [
    ({"epsilon": None}, r"epsilon must be in .* found None"),
    ({"epsilon": math.nan}, "epsilon must be in"),
    ({"delta": None}, "delta must be given"),
    ({"delta": 1.0}, r"delta must be in \(0, 1\)"),
  ],
)
def test_settings_that_say_nothing(changes, message):
  with pytest.raises(ValueError, match=message):
    settings(**changes)
  with pytest.raises(ValueError, match="seed must be an integer of at least 0"):
    dataclasses.replace(settings(), seed=-1)


@pytest.mark.parametrize(
  "options,message",
  [
    ({"unit": "device"}, "unit must be one of .*'device'"),
    ({"runtime": "tff"}, "runtime must be given with --unit=user only"),
    ({"example_weighting": "sum"}, "example_weighting must be given with"),
    ({"user_clip_norm": 1.0}, "user_clip_norm must be given with --unit"),
    ({"unit": "user", "runtime": "ray"}, "runtime must be one of"),
    (
      {"unit": "user", "example_weighting": "max"},
      "example_weighting must be one of",
    ),
    ({"unit": "user", "user_clip_norm": 0.0}, "user_clip_norm must be pos"),
    (
      {
        "unit": "user",
        "user_clip_norm": 2.0,
        "example_weighting": "mean",
      },
      "user_clip_norm must be at most 1",
    ),
  ],
)
def test_mistakes_in_settings_of_users(options, message):
  with pytest.raises(ValueError, match=message):
    feature_settings.create_user_settings(**{"unit": "example", **options})


def test_settings_that_users_cannot_have():
  users = feature_settings.create_user_settings("user", runtime=None)
  assert users == feature_settings.UserSettings()
  with pytest.raises(ValueError, match="seed must not be given with --unit=us"):
    settings(users=users)
  for method, options, message in (
    ("sgd", {"batch_size": 4.0}, "batch_size must not be given"),
    ("least_squares", {"covariance": "per_class"}, "covariance must be 'sha"),
  ):
    with pytest.raises(feature_settings.HyperparameterError, match=message):
      feature_settings.FitSettings(
        registry.create_method(method, **options), math.inf, users=users
      )
  with pytest.raises(ValueError, match=r"method must be one of .* newton"):
    settings("newton", users=users)


def test_description_names_every_hyperparameter():
  lines = feature_settings.describe_methods().split(";\n")
  for line, (name, cls) in zip(lines, registry.METHODS.items(), strict=True):
    assert line.startswith(f"{name}: ")
    for field in dataclasses.fields(cls):
      assert f"{field.name}={field.default}" in line
