"""Tests of the program that classifies features."""

import json
import math

import numpy as np
import pytest

from tests.binaries import closing
from tests.binaries import programs
from tests.features import feature_examples

_PROGRAM = "classify_features"


@pytest.fixture(name="flags")
def _flags(tmp_path):
  """Flags of a fit to small files, which are there."""
  return {
    **feature_examples.write_both(tmp_path),
    "output_json": tmp_path / "result.json",
    "overwrite": True,
    "method": "least_squares",
    "epsilon": 2.0,
    "delta": 1e-3,
  }


def _fit(flags, **changes):
  return feature_examples.call(_PROGRAM, **flags | changes)


def _unwrap(text):
  """The paragraphs of an ending, which has few lines."""
  closing.check_size(text)
  return text.replace("\n  ", " ").splitlines()


def test_program(flags, tmp_path):
  lines = feature_examples.run_program(
    _PROGRAM,
    **flags
    | {
      "method": "feature_covariance",
      "seed": 7,
      "hyperparameters": "steps=5, loss = sigmoid,covariance_share=0.25",
      "predictions": tmp_path / "predictions.npz",
      "output_weights": tmp_path / "weights.npz",
    },
  )
  accuracy, epsilon, warning, written = _unwrap("\n".join(lines))
  result = json.loads((tmp_path / "result.json").read_text())
  assert accuracy == (
    f"test accuracy {result['test_accuracy']:.4f} (60 examples, 3 classes),"
    " feature_covariance fitted to 60 examples"
  )
  assert (result["epsilon"], result["seed"]) == ("inf", 7)
  assert epsilon == (
    "epsilon = inf, an example's slot stays empty; the number of slots is"
    " public"
  )
  assert warning.startswith("warning: the noise is from a seed")
  assert written.count(str(tmp_path)) == 3
  assert len(list(tmp_path.iterdir())) == 5
  # A gradient has a fifth of three shares of zero-concentrated DP.
  of_covariance, of_gradients = (
    release["noise_multiplier"] for release in result["releases"]
  )
  assert of_gradients == pytest.approx(of_covariance * math.sqrt(5 / 3))
  hyperparameters = result["hyperparameters"]
  assert (hyperparameters["steps"], hyperparameters["loss"]) == (5, "sigmoid")
  # The weights, the predictions and the accuracy belong together.
  with np.load(tmp_path / "test.npz") as arrays:
    features, labels = arrays["features"], arrays["labels"]
  norms = np.linalg.norm(features, axis=1, keepdims=True)
  with np.load(tmp_path / "weights.npz") as arrays:
    logits = features / np.maximum(norms, 1) @ arrays["coef"].T
  with np.load(tmp_path / "predictions.npz") as arrays:
    np.testing.assert_allclose(arrays["logits"], logits, rtol=1e-4, atol=1e-5)
    predictions = arrays["predictions"]
  np.testing.assert_array_equal(predictions, logits.argmax(axis=1))
  assert result["test_accuracy"] == np.mean(predictions == labels)


def test_report(flags):
  result, _ = _fit(flags)
  assert (result["method"], result["target_epsilon"]) == ("least_squares", 2)
  assert 1.99 < result["epsilon"] <= 2
  assert (result["train_size"], result["test_size"]) == (60, 60)
  assert (result["dim"], result["num_classes"]) == (4, 3)
  assert (result["seed"], result["unit"]) == (None, "example")
  assert any("counted in the labels" in t for t in result["assumptions"])
  assert any("test examples" in text for text in result["not_covered"])
  assert result["warnings"] == []


def test_without_noise_of_more_classes(flags):
  result, _ = _fit(
    flags,
    num_classes=5,
    method="sgd",
    hyperparameters="steps=30,learning_rate=None",
    epsilon="inf",
    delta=None,
  )
  assert result["epsilon"] == result["target_epsilon"] == "inf"
  assert result["test_accuracy"] > 0.8
  assert result["releases"][0]["count"] == 30
  assert result["num_classes"] == 5


def test_classes_that_cannot_be_learned(flags):
  # Those of either file count; but what is missing is for the user only.
  feature_examples.write(flags["test"], seed=1, num_classes=4)
  ended = programs.call(
    _PROGRAM, *(f"--{name}={value}" for name, value in flags.items())
  )
  assert ended.errors == (
    "warning: 1 of 4 classes to test on have no example to fit on (which"
    " epsilon does not cover: keep it to yourself)\n"
  )
  text = flags["output_json"].read_text()
  assert json.loads(text)["num_classes"] == 4
  assert "no example" not in text


@pytest.mark.slow
def test_users(flags):
  feature_examples.write(flags["train"], seed=0, num_users=20)
  result, output = _fit(flags, delta=0.05, unit="user", user_clip_norm=0.5)
  assert result["unit"] == "user"
  # How many examples the users have is theirs.
  assert (result["num_users"], "train_size" in result) == (20, False)
  assert (result["user_clip_norm"], result["runtime"]) == (0.5, "in_process")
  for text in ("the number of users is public", "an example is of one user"):
    assert any(line.startswith(text) for line in result["assumptions"])
  for text in ("single precision", "also those of users"):
    assert any(text in line for line in result["not_covered"])
  accuracy, epsilon, warning, _ = _unwrap(output)
  assert accuracy.endswith("least_squares fitted to 20 users")
  assert epsilon.endswith(
    "; the number of slots is public, at delta = 0.05 (gaussian)"
  )
  assert "delta 0.05 is not below 1 / 20, one over the number of us" in warning


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"epsilon": 101}, "--epsilon must be in (0, 100], found 101.0."),
    ({"delta": None}, "--delta must be given where epsilon is finite,"),
    # No file is read before.
    ({"delta": None, "train": "none.npz"}, "--delta must be given where epsi"),
    ({"unit": "user", "seed": 1}, "--seed must not be set with unit user,"),
    ({"unit": "user"}, "--train must hold user with unit user, found"),
    (
      {"unit": "user", "method": "newton"},
      "--method must be one of feature_covar",
    ),
    (
      {"unit": "user", "hyperparameters": "covariance=per_class"},
      "covariance must be 'shared' in a federated fit: a user would send one",
    ),
    (
      {"train": "none.npz"},
      "none.npz must be an npz file of arrays, found: No",
    ),
    ({"hyperparameters": "speed=1"}, "speed must not be given with method"),
    ({"hyperparameters": "a=1,a=2"}, "--method must have hyperparameters NAME"),
    ({"predictions": "train.npz"}, "--predictions must be another file than t"),
    (
      {"method": "sgd", "hyperparameters": "steps=2.5"},
      "steps must be an integer of at least 1, found '2.5'",
    ),
  ],
)
def test_mistakes(flags, tmp_path, monkeypatch, changes, message):
  monkeypatch.chdir(tmp_path)
  feature_examples.check_refused(_PROGRAM, tmp_path, message, **flags | changes)


@pytest.mark.parametrize(
  ("name", "arrays", "message"),
  [
    ("train", {"features": np.full([4, 4], np.nan)}, "{path}: features must b"),
    ("test", {"features": np.full([4, 4], np.nan)}, "{path}: features must be"),
    ("test", {"labels": np.arange(4) - 1}, "{path}: labels must be at least 0"),
    (
      *("train", {"labels": np.array([0, 1, 2, 10**9])}),
      "--num_classes must be given unless labels are 0, 1, ... of two",
    ),
    ("train", {"labels": np.arange(4)}, "{path}: labels must be in [0, 3)"),
    ("test", {"features": np.ones([4, 5])}, "{path}: features must be [n, 4]"),
  ],
)
def test_mistakes_in_files(flags, tmp_path, name, arrays, message):
  defaults = {"features": np.ones([4, 4]), "labels": np.array([0, 1, 2, 2])}
  np.savez(flags[name], **defaults | arrays)
  message = message.format(path=flags[name])
  if "labels must be in" in message:
    flags["num_classes"] = 3
  feature_examples.check_refused(_PROGRAM, tmp_path, message, **flags)
